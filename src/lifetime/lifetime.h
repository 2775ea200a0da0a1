// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer lifetime: regions above their sheets. `heap` is the calling thread's, or NULL where it has none for
// good; no lock is held.
#ifndef EBB_LIFETIME_LIFETIME_H
#define EBB_LIFETIME_LIFETIME_H

#include "debug/site.h"
#include "heap/heap.h"
#include "region/region.h"

// What the fast path leaves. `site`: who is noted as asking, in debug mode and where a block is the heap's. A region that is
// closed passes on to its parent, the last one to the heap. NULL and ENOMEM.
void *ebbi_region_alloc(struct ebbi_heap *heap, struct ebb_region *region, size_t align,
                        size_t bytes, ebbi_site site);
struct ebb_region *ebbi_region_of(const void *p);
void *ebbi_region_resize(void *p, size_t bytes);           // in place, or NULL
void ebbi_region_promise_close(struct ebb_region *region); // it is new
int ebbi_region_cleanup(struct ebb_region *region, void (*call)(void *argument), void *argument);
void ebbi_region_release(struct ebb_region *region, bool stays_open);
void ebbi_region_end(struct ebb_region *region); // closes it

#endif
