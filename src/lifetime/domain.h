// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer lifetime: domains, and what is current in a thread. `own` is the calling thread's heap.
#ifndef EBB_LIFETIME_DOMAIN_H
#define EBB_LIFETIME_DOMAIN_H

#include "debug/site.h"
#include "heap/heap.h"

#define EBBI_SCOPE_REGION ((uintptr_t)1)
#define EBBI_SCOPE_DOMAIN ((uintptr_t)2)
#define EBBI_SCOPE_NONE ((uintptr_t)4)                 // an enter that did not happen
struct ebb_domain *ebbi_domain_find(const char *name); // NULL: memory refused
bool ebbi_domain_set_policy(struct ebb_domain *domain, unsigned policy, size_t n);
void ebbi_domain_advance(struct ebbi_heap *own, struct ebb_domain *domain); // own: or NULL
// As malloc, or aligned, with the domain current. Its label may be one of regions.
void *ebbi_domain_alloc(struct ebbi_heap *own, struct ebb_domain *domain, size_t align,
                        size_t bytes, ebbi_site site);
struct ebb_domain *ebbi_domain_of_label(struct ebbi_label *label); // NULL: memory refused
const struct ebbi_label *ebbi_domain_label(const struct ebb_domain *domain);
uintptr_t ebbi_enter_region(struct ebbi_heap *own, struct ebb_region *region);
uintptr_t ebbi_enter_domain(struct ebbi_heap *own, struct ebb_domain *domain);
uintptr_t ebbi_enter_heap(struct ebbi_heap *own);
void ebbi_leave(struct ebbi_heap *own, uintptr_t before);
// Around what makes a thread: libc keeps what it allocates for one, with its stack, for the next. It is to outlive a region
// that is current.
EBBI_INLINE uintptr_t ebbi_scope_suspend(void)
{
    struct ebbi_heap *own = ebbi_heap_mine();
    return own != NULL ? ebbi_enter_heap(own) : EBBI_SCOPE_NONE;
}
EBBI_INLINE void ebbi_scope_resume(uintptr_t before)
{
    if (before != EBBI_SCOPE_NONE) {
        ebbi_leave(ebbi_heap_mine(), before);
    }
}
void ebbi_domain_idle(struct ebbi_heap *own);  // its thread is between two units of work
void ebbi_seats_rest(struct ebbi_heap *heap);  // its thread ends: ebbi_heap_rest
void ebbi_seats_leave(struct ebbi_heap *heap); // then, under the registry's lock
void ebbi_seats_flush(struct ebbi_heap *heap);
void ebbi_seat_abandon(struct ebbi_heap *heap);  // under the registry lock: for the next thread
void ebbi_scope_abandon(struct ebbi_heap *heap); // what is current in it is so no more

#endif
