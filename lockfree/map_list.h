// SPDX-License-Identifier: MIT OR Apache-2.0
// The list below the hash map (map.c): all nodes, sorted by their place. Private to lockfree/. Every
// function is called inside a pin, by any thread, unless it says otherwise.
//
// M1  a node's `next` has the lowest bit set from the moment that the node has left the map; from then
//     on it is fixed. An entry that takes another's place is linked by the same store that marks the
//     other: its `next` then leads to the new entry.
// M2  who unlinks a marked node, by changing the link to it, retires it. Nothing links to it then: the
//     nodes before it that were unlinked earlier are out of reach for pins that begin later.
// M3  bucket nodes stay, as do the older tables; both go with the map.
// M4  an entry is one block: key, value and place are fixed once it is linked.
// M5  an entry comes in front of those of its place, but where it takes another's: whoever walks down the list meets none that
//     came while it was at this place or behind it, so no key twice. That nobody has linked the same key meanwhile the
//     link shows, by which all of them come. Whoever links one has met all others of its place: what was marked there of the same
//     key is unlinked by then, so that a search for the key meets it first as long as it is not.
#ifndef EBBTIDE_LOCKFREE_MAP_LIST_H
#define EBBTIDE_LOCKFREE_MAP_LIST_H

#include <ebbtide/map.h>

#include "check.h"

#define EBBI_LOCKFREE_HIDDEN __attribute__((visibility("hidden")))
#define EBBI_MAP_MARK ((uintptr_t)1)

struct ebbi_map_node {
    EBBI_ATOMIC(uintptr_t) next; // M1
    uint64_t place;              // lowest bit: an entry; else a bucket
};

struct ebbi_map_entry {
    struct ebbi_map_node node;
    uint64_t key;
    void *value;
    struct ebbi_map_entry *later; // in `refused`; only there where the map has a destroy function
};

struct ebbi_map_table;

struct ebb_map {
    EBBI_ATOMIC(struct ebbi_map_table *) table;
    struct ebb_map_options options;
    struct ebbi_map_node first; // the bucket of prefix 0
    EBBI_ATOMIC(size_t) count __attribute__((aligned(64)));
    EBBI_ATOMIC(struct ebbi_map_entry *) refused; // have left, but ebb_retire_with had no memory
} __attribute__((aligned(64)));

// Where an operation stands: *link leads to `node`, the first whose place is not lower.
struct ebbi_map_position {
    EBBI_ATOMIC(uintptr_t) * link;
    struct ebbi_map_node *node;
    uintptr_t next; // of `node`
};

static inline struct ebbi_map_node *ebbi_map_node_of(uintptr_t link)
{
    return (struct ebbi_map_node *)(link & ~EBBI_MAP_MARK);
}

static inline struct ebbi_map_entry *ebbi_map_entry_of(struct ebbi_map_node *node)
{
    return (struct ebbi_map_entry *)(void *)node;
}

static inline bool ebbi_map_is_entry(const struct ebbi_map_node *node)
{
    return (node->place & 1) != 0;
}

static inline bool ebbi_map_is_key(const struct ebb_map *map, struct ebbi_map_node *node,
                                   uint64_t key)
{
    uint64_t other = ebbi_map_entry_of(node)->key;
    return map->options.equal != NULL ? map->options.equal(other, key, map->options.context)
                                      : other == key;
}

// Finds an entry, or where it belongs: before those of the same place. `start` comes before it.
EBBI_LOCKFREE_HIDDEN bool ebbi_map_search(struct ebb_map *map, struct ebbi_map_node *start,
                                          uint64_t place, uint64_t key,
                                          struct ebbi_map_position *at);
// Finds the bucket's node of this place, or where it belongs.
EBBI_LOCKFREE_HIDDEN bool ebbi_map_search_bucket(struct ebb_map *map, struct ebbi_map_node *start,
                                                 uint64_t place, struct ebbi_map_position *at);
// The moves. False: another thread has changed the list here. Link a node that nobody knows yet; put
// an entry in the place of the one at `at`; mark that one; unlink it once it is marked.
EBBI_LOCKFREE_HIDDEN bool ebbi_map_link(struct ebbi_map_position *at, struct ebbi_map_node *node);
EBBI_LOCKFREE_HIDDEN bool ebbi_map_supplant(struct ebbi_map_position *at,
                                            struct ebbi_map_entry *fresh);
EBBI_LOCKFREE_HIDDEN bool ebbi_map_mark(struct ebbi_map_position *at);
EBBI_LOCKFREE_HIDDEN bool ebbi_map_unlink(struct ebb_map *map, struct ebbi_map_position *at);

// Outside of a pin too: tries again what ebb_retire_with has refused.
EBBI_LOCKFREE_HIDDEN void ebbi_map_retire_refused(struct ebb_map *map);
// For ebb_retire_with, context being the map: passes the entry on and frees it.
EBBI_LOCKFREE_HIDDEN void ebbi_map_destroy_entry(void *p, void *context);

#endif
