// SPDX-License-Identifier: MIT OR Apache-2.0
// The list below the hash map: see map_list.h for its invariants.
#include "map_list.h"

// ---- leaving the map -----------------------------------------------------------------------------

void ebbi_map_destroy_entry(void *p, void *context)
{
    const struct ebb_map *map = (const struct ebb_map *)context;
    struct ebbi_map_entry *entry = (struct ebbi_map_entry *)p;
    EBBI_LOCKFREE_ASSERT(map->options.destroy != NULL && ebbi_map_is_entry(&entry->node));
    map->options.destroy(entry->key, entry->value, map->options.context);
    ebb_free(entry);
}

static void refuse(struct ebb_map *map, struct ebbi_map_entry *entry)
{
    EBBI_LOCKFREE_ASSERT(map->options.destroy != NULL); // else the entry has no such field
    entry->later = ebbi_load_relaxed(&map->refused);    // relaxed: not read through here
    // release[map-refuse -> map-refused]: `later`
    while (!ebbi_cas_release(&map->refused, &entry->later, entry)) {
    }
}

static void retire_entry(struct ebb_map *map, struct ebbi_map_entry *entry)
{
    EBBI_LOCKFREE_ASSERT(ebbi_map_is_entry(&entry->node)); // M3
    // relaxed: M1, fixed since it was marked
    EBBI_LOCKFREE_ASSERT((ebbi_load_relaxed(&entry->node.next) & EBBI_MAP_MARK) != 0);
    if (map->options.destroy == NULL) {
        ebb_retire(entry);
    } else if (ebb_retire_with(entry, ebbi_map_destroy_entry, map) != 0) {
        refuse(map, entry);
    }
}

void ebbi_map_retire_refused(struct ebb_map *map)
{
    // relaxed: a look
    if (ebbi_load_relaxed(&map->refused) == NULL) {
        return;
    }
    // acquire[map-refused <- map-refuse]: the chain
    struct ebbi_map_entry *entry = ebbi_exchange_acquire(&map->refused, NULL);
    while (entry != NULL) {
        struct ebbi_map_entry *later = entry->later;
        retire_entry(map, entry);
        entry = later;
    }
}

// ---- the list ------------------------------------------------------------------------------------

bool ebbi_map_unlink(struct ebb_map *map, struct ebbi_map_position *at)
{
    uintptr_t seen = (uintptr_t)at->node;
    EBBI_LOCKFREE_ASSERT((at->next & EBBI_MAP_MARK) != 0);
    // release[map-link -> map-read]: the next node, as map-link has published it
    if (!ebbi_cas_release(at->link, &seen, at->next & ~EBBI_MAP_MARK)) {
        return false;
    }
    retire_entry(map, ebbi_map_entry_of(at->node));
    at->node = ebbi_map_node_of(at->next);
    return true;
}

// Goes on to the first unmarked node of `place` or above; of a marked one it meets it frees the list.
// False: another thread has changed the list here.
static bool advance(struct ebb_map *map, struct ebbi_map_position *at, uint64_t place)
{
    while (at->node != NULL) {
        // acquire[map-read <- map-link]: the next node
        at->next = ebbi_load_acquire(&at->node->next);
        EBBI_LOCKFREE_ASSERT(ebbi_map_node_of(at->next) == NULL ||
                             ebbi_map_node_of(at->next)->place >= at->node->place);
        if ((at->next & EBBI_MAP_MARK) != 0) {
            if (!ebbi_map_unlink(map, at)) {
                return false;
            }
        } else if (at->node->place >= place) {
            return true;
        } else {
            at->link = &at->node->next;
            at->node = ebbi_map_node_of(at->next);
        }
    }
    return true;
}

static struct ebbi_map_position position_at(struct ebbi_map_node *start)
{
    // acquire[map-read <- map-link]: the next node
    uintptr_t next = ebbi_load_acquire(&start->next);
    EBBI_LOCKFREE_ASSERT(!ebbi_map_is_entry(start) && (next & EBBI_MAP_MARK) == 0); // M3
    return (struct ebbi_map_position){&start->next, ebbi_map_node_of(next), 0};
}

bool ebbi_map_search(struct ebb_map *map, struct ebbi_map_node *start, uint64_t place, uint64_t key,
                     struct ebbi_map_position *at)
{
    struct ebbi_map_position before = {NULL, NULL, 0}; // the first of its place
    EBBI_LOCKFREE_ASSERT((place & 1) != 0 && start->place < place);
    *at = position_at(start);
    for (;;) {
        if (!advance(map, at, place)) {
            *at = position_at(start);
            before.link = NULL;
        } else if (at->node == NULL || at->node->place != place) {
            *at = before.link != NULL ? before : *at;
            return false;
        } else if (ebbi_map_is_key(map, at->node, key)) {
            return true;
        } else {
            before = before.link != NULL ? before : *at;
            at->link = &at->node->next;
            at->node = ebbi_map_node_of(at->next);
        }
    }
}

bool ebbi_map_link(struct ebbi_map_position *at, struct ebbi_map_node *node)
{
    EBBI_LOCKFREE_ASSERT(at->node == NULL || at->node->place >= node->place);
    EBBI_LOCKFREE_ASSERT(at->node != node);
    uintptr_t seen = (uintptr_t)at->node;
    ebbi_store_relaxed(&node->next, seen); // relaxed: published below
    // release[map-link -> map-read]: the node, and what its value points to
    return ebbi_cas_release(at->link, &seen, (uintptr_t)node);
}

bool ebbi_map_supplant(struct ebbi_map_position *at, struct ebbi_map_entry *fresh)
{
    EBBI_LOCKFREE_ASSERT((at->next & EBBI_MAP_MARK) == 0 && at->node != &fresh->node);
    EBBI_LOCKFREE_ASSERT(at->node->place == fresh->node.place);
    uintptr_t seen = at->next;
    ebbi_store_relaxed(&fresh->node.next, seen); // relaxed: published below
    // release[map-link -> map-read]: the entry, and what its value points to
    return ebbi_cas_release(&at->node->next, &seen, (uintptr_t)fresh | EBBI_MAP_MARK);
}

bool ebbi_map_mark(struct ebbi_map_position *at)
{
    EBBI_LOCKFREE_ASSERT((at->next & EBBI_MAP_MARK) == 0 && ebbi_map_is_entry(at->node));
    uintptr_t seen = at->next;
    // release[map-link -> map-read]: the next node, as map-link has published it
    if (!ebbi_cas_release(&at->node->next, &seen, seen | EBBI_MAP_MARK)) {
        return false;
    }
    at->next |= EBBI_MAP_MARK;
    return true;
}

bool ebbi_map_search_bucket(struct ebb_map *map, struct ebbi_map_node *start, uint64_t place,
                            struct ebbi_map_position *at)
{
    EBBI_LOCKFREE_ASSERT((place & 1) == 0 && start->place < place);
    do {
        *at = position_at(start);
    } while (!advance(map, at, place));
    return at->node != NULL && at->node->place == place;
}
