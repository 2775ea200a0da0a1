// SPDX-License-Identifier: MIT OR Apache-2.0
// A hash map from 64-bit keys, or from keys that the caller compares, to pointers. It grows without
// stopping anybody. Linearizable; lock-free, finds wait for nobody. Every operation on one key is O(1)
// on average but for what it repeats in races. What the buckets take stays until the map is destroyed: some
// 16 to 34 bytes for each entry of those that it had at most, and half a KiB.
//
// Source: one sorted list for all entries, into which the buckets point: O. Shalev, N. Shavit,
// "Split-ordered lists: lock-free extensible hash tables", J. ACM 53 (2006). The list is that of
// M. M. Michael, "High performance dynamic lock-free hash tables and list-based sets", SPAA 2002.
//
// Keys. By default the number itself. With `hash` and `equal` a key is whatever these two make of it,
// mostly a pointer: pass (uint64_t)(uintptr_t)p.
//
// Who owns what. The map owns its entries: pairs of a key and a value that never change. An entry
// leaves the map when its key is removed or replaced, or with the map. Values are the caller's, who
// may free one only when no reader can hold it any more: a value that the map returned is valid while
// the pin lasts in which it was asked for, provided that it is retired (ebb_retire and the like) after
// it has left the map, not freed. With `destroy` the map does that: each entry that has left is passed
// to it after the grace period, as by ebb_retire_with. The same goes for keys that are pointers.
//
// Every function but destroy may be called by any thread, inside a pin or outside; each pins by itself,
// so only a caller that goes on to use a value needs a pin of its own.
#ifndef EBBTIDE_MAP_H
#define EBBTIDE_MAP_H

#include <ebbtide/reclaim.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_map;

struct ebb_map_options {
    // Both or neither. The map reads at most 63 bits of the hash, from the top; it must be well mixed
    // there. They are called inside a pin.
    uint64_t (*hash)(uint64_t key, void *context);
    bool (*equal)(uint64_t a, uint64_t b, void *context);
    // NULL: the map only forgets the entry. When memory for the call is refused it is made at a later
    // removal, at the latest in ebb_map_destroy.
    void (*destroy)(uint64_t key, void *value, void *context);
    void *context; // for all three; it must stay until the map has been destroyed
};

// An empty map; `options` (copied) may be NULL. NULL with errno = ENOMEM, or EINVAL for one of hash
// and equal without the other.
EBB_EXPORT struct ebb_map *ebb_map_create(const struct ebb_map_options *options) EBB_NOEXCEPT;
// For one thread, when no other uses it any more. All entries leave the map. With `destroy` it returns
// when that has been called for every entry (ebb_barrier), and so must be called neither inside a pin
// nor in a destructor. NULL is allowed. O(entries).
EBB_EXPORT void ebb_map_destroy(struct ebb_map *map) EBB_NOEXCEPT;

// 1: inserted; 0: the key was there, and nothing has changed; -1 with errno = ENOMEM: nothing has
// changed. Where key and value are refused they stay the caller's.
EBB_EXPORT int ebb_map_insert(struct ebb_map *map, uint64_t key, void *value) EBB_NOEXCEPT;
// 1: inserted; 0: took the place of the entry with that key, in one step, and *old, unless `old` is
// NULL, is that one's value; -1 with errno = ENOMEM: nothing has changed.
EBB_EXPORT int ebb_map_replace(struct ebb_map *map, uint64_t key, void *value,
                               void **old) EBB_NOEXCEPT;
// Whether the key is there; then *value, unless `value` is NULL, is its value.
EBB_EXPORT bool ebb_map_find(struct ebb_map *map, uint64_t key, void **value) EBB_NOEXCEPT;
// Whether this call has removed the key; then *value as above.
EBB_EXPORT bool ebb_map_remove(struct ebb_map *map, uint64_t key, void **value) EBB_NOEXCEPT;
// About the number of entries a moment ago; exact while nobody changes the map, but in the child of a fork:
// there as many off as threads of its parent were amid an insertion or a removal. O(1).
EBB_EXPORT size_t ebb_map_size(const struct ebb_map *map) EBB_NOEXCEPT;

// Calls visit for the entries, in no useful order, inside one pin, until it returns false. Entries that
// are there all the time are visited once; those that come or go meanwhile, once at most, also where they
// come again. visit may use the map. O(entries and buckets), with those that come meanwhile.
EBB_EXPORT void ebb_map_each(struct ebb_map *map,
                             bool (*visit)(uint64_t key, void *value, void *context),
                             void *context) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
