// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: all heaps and all owners, and the lock over the list, which is also that of all records in
// collectors.
#ifndef EBB_HEAP_REGISTRY_H
#define EBB_HEAP_REGISTRY_H

#include "heap/heap.h"

void ebbi_registry_lock(void);
void ebbi_registry_unlock(void);
void ebbi_registry_assert(void); // checked builds: aborts unless the calling thread holds it
#define EBBI_ASSERT_REGISTRY() (EBBI_HAVE_ASSERT ? ebbi_registry_assert() : (void)0)

// One that is in no list; NULL: memory refused. Under no lock: it may make a system call, and touches its pages first.
struct ebbi_heap *ebbi_heap_make(unsigned first_lane);

// After a profile has begun or ended: where every heap's malloc leads. O(heaps), takes the registry's lock.
void ebbi_heaps_look_up(void);

// Takes the registry's lock and every owner's, for a reader of all slabs.
void ebbi_owners_freeze(void);
void ebbi_owners_thaw(void);
// Between the two: each heap; depots have nothing that is not in their slabs.
void ebbi_heaps_visit(void (*visit)(struct ebbi_heap *heap, void *context), void *context);
// Each in turn under its own lock, which visit may drop and take again; no other lock is held.
void ebbi_heaps_each(void (*visit)(struct ebbi_heap *heap, void *context), void *context);
void ebbi_depots_each(void (*visit)(struct ebbi_owner *owner, void *context), void *context);
// What threads have freed of owners that have not looked since is free: whole slabs are the arena's: so many bytes.
size_t ebbi_owners_gather(void);
// Destroys abandoned heaps without slabs but for a few. `discard` comes first, under the registry's lock and
// the heap's: what the layers above keep in it and do not need.
void ebbi_heaps_prune(void (*discard)(struct ebbi_heap *heap));

// Under the registry's lock.
struct ebbi_heap *ebbi_heap_adopt(void); // an abandoned heap; NULL: there is none
// Made just now: into the list of all. A domain's has its domain and its label already.
void ebbi_heap_join(struct ebbi_heap *heap);
void ebbi_heap_push_abandoned(struct ebbi_heap *heap);
// Its thread has gone: abandoned. Or not NULL: out of the list, for ebbi_heap_end, which is not under the lock.
struct ebbi_heap *ebbi_heap_abandon(struct ebbi_heap *heap,
                                    void (*discard)(struct ebbi_heap *heap));
struct ebbi_heap *ebbi_heaps_first(void); // of all, through `next`

void ebbi_heap_end(struct ebbi_heap *heap);

#endif
