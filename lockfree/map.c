// SPDX-License-Identifier: MIT OR Apache-2.0
// The hash map (ebbtide/map.h has the sources). All nodes stand in one list, sorted by their place: an
// entry's is its hash with the lowest bit set, a bucket's is the least hash of the bucket, with that
// bit clear. A bucket is the hashes with one prefix, so that a table of twice the size splits each
// bucket in two and moves nothing: the new buckets are found from the old ones when first needed.
//
//     table of 2^k links:   [000..]     [001..]     [010..] ...
//                              |           |           |
//     the list:             (bucket) -> e -> e -> (bucket) -> e -> (bucket) ...
//
// map_list.h has the invariants.
#include "map_list.h"

#include <errno.h>

#define FIRST_BITS 5 // of the first table: 32 buckets
#define MOST_BITS 48
#define ENTRIES_PER_BUCKET 2

struct ebbi_map_table {
    struct ebbi_map_table *smaller; // half the size; NULL: the first
    unsigned bits;
    EBBI_ATOMIC(struct ebbi_map_node *) buckets[];
};

// A bijection in which each bit of the key reaches the upper ones.
static uint64_t mix(uint64_t key)
{
    key = (key ^ (key >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    key = (key ^ (key >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return key ^ (key >> 32);
}

static uint64_t place_of(const struct ebb_map *map, uint64_t key)
{
    uint64_t hash =
        map->options.hash != NULL ? map->options.hash(key, map->options.context) : mix(key);
    return hash | 1;
}

// ---- buckets -------------------------------------------------------------------------------------

static uint64_t prefix_of(uint64_t place, unsigned bits)
{
    EBBI_LOCKFREE_ASSERT(bits >= FIRST_BITS && bits <= MOST_BITS);
    return place >> (64 - bits);
}

// Of the bucket: its place.
static uint64_t begin_of(uint64_t place, unsigned bits)
{
    return prefix_of(place, bits) << (64 - bits);
}

// The bucket's node: found, or linked from `start`, a bucket before it. NULL: memory refused.
static struct ebbi_map_node *bucket_node(struct ebb_map *map, struct ebbi_map_node *start,
                                         uint64_t place)
{
    struct ebbi_map_node *node = (struct ebbi_map_node *)ebb_malloc(sizeof *node);
    struct ebbi_map_position at;
    if (node == NULL) {
        return NULL;
    }
    node->place = place;
    do {
        if (ebbi_map_search_bucket(map, start, place, &at)) {
            ebb_free(node);
            EBBI_LOCKFREE_ASSERT(!ebbi_map_is_entry(at.node));
            return at.node;
        }
    } while (!ebbi_map_link(&at, node));
    return node;
}

static struct ebbi_map_node *bucket_in(struct ebbi_map_table *table, uint64_t place)
{
    // acquire[map-bucket <- map-bucket-set]: the bucket's node
    struct ebbi_map_node *node = ebbi_load_acquire(&table->buckets[prefix_of(place, table->bits)]);
    EBBI_LOCKFREE_ASSERT(node == NULL || node->place == begin_of(place, table->bits));
    return node;
}

// Makes a bucket of a table from the one that it is a part of. NULL: memory refused.
static struct ebbi_map_node *split_bucket(struct ebb_map *map, struct ebbi_map_table *table,
                                          struct ebbi_map_node *whole, uint64_t place)
{
    uint64_t prefix = prefix_of(place, table->bits);
    uint64_t begin = begin_of(place, table->bits);
    EBBI_LOCKFREE_ASSERT(!ebbi_map_is_entry(whole) && whole->place <= begin);
    struct ebbi_map_node *node = whole->place == begin ? whole : bucket_node(map, whole, begin);
    if (node != NULL) {
        EBBI_LOCKFREE_ASSERT(node->place == begin && !ebbi_map_is_entry(node));
        // release[map-bucket-set -> map-bucket]: the bucket's node
        ebbi_store_release(&table->buckets[prefix], node);
    }
    return node;
}

// From the smallest table that lacks it up to this one. While memory is refused a larger bucket does.
static struct ebbi_map_node *make_buckets(struct ebb_map *map, struct ebbi_map_table *table,
                                          uint64_t place)
{
    for (;;) {
        struct ebbi_map_table *lacking = table;
        struct ebbi_map_node *whole = NULL;
        while (lacking->smaller != NULL && (whole = bucket_in(lacking->smaller, place)) == NULL) {
            lacking = lacking->smaller;
        }
        whole = whole != NULL ? whole : &map->first;
        struct ebbi_map_node *node = split_bucket(map, lacking, whole, place);
        if (node == NULL || lacking == table) {
            return node != NULL ? node : whole;
        }
    }
}

static struct ebbi_map_node *bucket_of(struct ebb_map *map, uint64_t place)
{
    // acquire[map-table <- map-grow]: the table
    struct ebbi_map_table *table = ebbi_load_acquire(&map->table);
    struct ebbi_map_node *node = bucket_in(table, place);
    return __builtin_expect(node != NULL, 1) ? node : make_buckets(map, table, place);
}

static struct ebbi_map_table *table_create(struct ebbi_map_table *smaller, unsigned bits)
{
    EBBI_LOCKFREE_ASSERT(bits == (smaller != NULL ? smaller->bits + 1 : FIRST_BITS));
    struct ebbi_map_table *table = (struct ebbi_map_table *)ebb_calloc(
        1, sizeof *table + (sizeof(EBBI_ATOMIC(struct ebbi_map_node *)) << bits));
    if (table != NULL) {
        table->smaller = smaller;
        table->bits = bits;
    }
    return table;
}

// Doubles the table when there are too many entries. Refused memory only keeps the buckets long.
static void grow(struct ebb_map *map)
{
    // acquire[map-table <- map-grow]: the table
    struct ebbi_map_table *table = ebbi_load_acquire(&map->table);
    if (ebb_map_size(map) <= (size_t)ENTRIES_PER_BUCKET << table->bits ||
        table->bits == MOST_BITS) {
        return;
    }
    int saved_errno = errno;
    struct ebbi_map_table *larger = table_create(table, table->bits + 1);
    // release[map-grow -> map-table]: the table
    if (larger != NULL && !ebbi_cas_release(&map->table, &table, larger)) {
        ebb_free(larger);
    }
    errno = saved_errno;
}

// ---- operations ----------------------------------------------------------------------------------

// Without the last field where there is no use for it.
static size_t entry_bytes(const struct ebb_map *map)
{
    return map->options.destroy != NULL ? sizeof(struct ebbi_map_entry)
                                        : offsetof(struct ebbi_map_entry, later);
}

static struct ebbi_map_entry *entry_create(const struct ebb_map *map, uint64_t place, uint64_t key,
                                           void *value)
{
    EBBI_LOCKFREE_ASSERT((place & 1) != 0);
    struct ebbi_map_entry *entry = (struct ebbi_map_entry *)ebb_malloc(entry_bytes(map));
    if (entry != NULL) {
        entry->node.place = place;
        entry->key = key;
        entry->value = value;
    }
    return entry;
}

static int put(struct ebb_map *map, struct ebbi_map_entry *fresh, bool replace, void **old)
{
    uint64_t place = fresh->node.place;
    struct ebbi_map_node *start = bucket_of(map, place);
    struct ebbi_map_position at;
    for (;;) {
        if (!ebbi_map_search(map, start, place, fresh->key, &at)) {
            if (ebbi_map_link(&at, &fresh->node)) {
                return 1;
            }
        } else if (!replace) {
            return 0;
        } else if (ebbi_map_supplant(&at, fresh)) {
            if (old != NULL) {
                EBBI_LOCKFREE_ASSERT(ebbi_map_is_entry(at.node));
                *old = ebbi_map_entry_of(at.node)->value;
            }
            // Unlinks the one that has left.
            (void)ebbi_map_search(map, start, place, fresh->key, &at);
            return 0;
        }
    }
}

static int insert(struct ebb_map *map, uint64_t key, void *value, bool replace, void **old)
{
    ebb_pin();
    struct ebbi_map_entry *fresh = entry_create(map, place_of(map, key), key, value);
    int result = fresh != NULL ? put(map, fresh, replace, old) : -1;
    if (result == 1) {
        (void)ebbi_fetch_add_relaxed(&map->count, 1); // relaxed: a count
        grow(map);
    }
    ebb_unpin();
    if (result < 0) {
        errno = ENOMEM;
    } else if (result == 0 && !replace) {
        ebb_free(fresh);
    }
    return result;
}

int ebb_map_insert(struct ebb_map *map, uint64_t key, void *value)
{
    return insert(map, key, value, false, NULL);
}

int ebb_map_replace(struct ebb_map *map, uint64_t key, void *value, void **old)
{
    return insert(map, key, value, true, old);
}

bool ebb_map_find(struct ebb_map *map, uint64_t key, void **value)
{
    ebb_pin();
    uint64_t place = place_of(map, key);
    struct ebbi_map_node *node = bucket_of(map, place);
    for (; node != NULL && node->place <= place;) {
        // acquire[map-read <- map-link]: the next node
        uintptr_t next = ebbi_load_acquire(&node->next);
        if (node->place == place && (next & EBBI_MAP_MARK) == 0 &&
            ebbi_map_is_key(map, node, key)) {
            break;
        }
        node = ebbi_map_node_of(next);
    }
    EBBI_LOCKFREE_ASSERT(node == NULL || node->place > place || ebbi_map_is_entry(node));
    bool found = node != NULL && node->place == place;
    if (found && value != NULL) {
        *value = ebbi_map_entry_of(node)->value;
    }
    ebb_unpin();
    return found;
}

// Marks the entry with the key. False: there is none.
static bool take(struct ebb_map *map, uint64_t key, void **value)
{
    uint64_t place = place_of(map, key);
    struct ebbi_map_node *start = bucket_of(map, place);
    struct ebbi_map_position at;
    do {
        if (!ebbi_map_search(map, start, place, key, &at)) {
            return false;
        }
    } while (!ebbi_map_mark(&at));
    if (value != NULL) {
        *value = ebbi_map_entry_of(at.node)->value;
    }
    if (!ebbi_map_unlink(map, &at)) {
        (void)ebbi_map_search(map, start, place, key, &at); // unlinks it, or finds that another has
    }
    return true;
}

bool ebb_map_remove(struct ebb_map *map, uint64_t key, void **value)
{
    ebb_pin();
    bool removed = take(map, key, value);
    ebb_unpin();
    if (removed) {
        (void)ebbi_fetch_sub_relaxed(&map->count, 1); // relaxed: a count
        ebbi_map_retire_refused(map);
    }
    return removed;
}

size_t ebb_map_size(const struct ebb_map *map)
{
    // relaxed: a count; below 0 in the midst of races
    size_t count = ebbi_load_relaxed(&map->count);
    return count <= SIZE_MAX / 2 ? count : 0;
}

void ebb_map_each(struct ebb_map *map, bool (*visit)(uint64_t key, void *value, void *context),
                  void *context)
{
    ebb_pin();
    for (struct ebbi_map_node *node = &map->first; node != NULL;) {
        // An entry that takes another's place stands behind it: this look at `next` decides between
        // the two (M1).
        // acquire[map-read <- map-link]: the next node
        uintptr_t next = ebbi_load_acquire(&node->next);
        struct ebbi_map_entry *entry = ebbi_map_entry_of(node);
        if (ebbi_map_is_entry(node) && (next & EBBI_MAP_MARK) == 0 &&
            !visit(entry->key, entry->value, context)) {
            break;
        }
        node = ebbi_map_node_of(next);
    }
    ebb_unpin();
}

// ---- create, destroy -----------------------------------------------------------------------------

struct ebb_map *ebb_map_create(const struct ebb_map_options *options)
{
    if (options != NULL && (options->hash == NULL) != (options->equal == NULL)) {
        errno = EINVAL;
        return NULL;
    }
    struct ebb_map *map = (struct ebb_map *)ebb_aligned_alloc(64, sizeof *map);
    struct ebbi_map_table *table = table_create(NULL, FIRST_BITS);
    if (map == NULL || table == NULL) {
        ebb_free(map);
        ebb_free(table);
        errno = ENOMEM;
        return NULL;
    }
    *map = (struct ebb_map){.table = table};
    if (options != NULL) {
        map->options = *options;
    }
    return map;
}

static void destroy_entries(struct ebb_map *map)
{
    // relaxed: nobody else uses the map, here and below
    struct ebbi_map_node *node = ebbi_map_node_of(ebbi_load_relaxed(&map->first.next));
    while (node != NULL) {
        uintptr_t next = ebbi_load_relaxed(&node->next);   // relaxed: as above
        EBBI_LOCKFREE_ASSERT((next & EBBI_MAP_MARK) == 0); // else it is retired, too
        EBBI_LOCKFREE_ASSERT(next == 0 || ebbi_map_node_of(next)->place >= node->place);
        if (ebbi_map_is_entry(node) && map->options.destroy != NULL) {
            ebbi_map_destroy_entry(node, map);
        } else {
            ebb_free(node);
        }
        node = ebbi_map_node_of(next);
    }
}

void ebb_map_destroy(struct ebb_map *map)
{
    if (map == NULL) {
        return;
    }
    if (map->options.destroy != NULL) {
        ebb_barrier();
    }
    destroy_entries(map);
    // relaxed: nobody else uses the map, here and below
    struct ebbi_map_entry *entry = ebbi_load_relaxed(&map->refused);
    while (entry != NULL) {
        // relaxed: as above
        EBBI_LOCKFREE_ASSERT((ebbi_load_relaxed(&entry->node.next) & EBBI_MAP_MARK) != 0); // M1
        struct ebbi_map_entry *later = entry->later;
        ebbi_map_destroy_entry(entry, map);
        entry = later;
    }
    struct ebbi_map_table *table = ebbi_load_relaxed(&map->table); // relaxed: as above
    while (table != NULL) {
        struct ebbi_map_table *smaller = table->smaller;
        ebb_free(table);
        table = smaller;
    }
    ebb_free(map);
}
