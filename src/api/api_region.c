// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer api: include/ebbtide/region.h.
#define EBB_REGION_NO_INLINE
#include <ebbtide/region.h>

#include <errno.h>
#include <string.h>

#include "debug/quarantine.h"
#include "diag/load.h"
#include "front/fast.h"
#include "lifetime/domain.h"

_Static_assert(EBB_LABEL_BYTES == EBBI_LABEL_BYTES, "one length");

struct ebb_region *ebb_region_open(const struct ebb_region_options *wanted)
{
    ebbi_helper_look();
    static const struct ebb_region_options plain;
    const struct ebb_region_options *o = wanted != NULL ? wanted : &plain;
    if (o->parent != NULL) {
        ebbi_region_check(o->parent, "open within");
        if (!ebbi_region_is_open(o->parent)) {
            errno = EINVAL;
            return NULL;
        }
    }
    struct ebbi_heap *heap = ebbi_heap_get();
    struct ebb_region *region = NULL;
    if (heap != NULL || ebbi_start() == 0) {
        ebbi_quarantine_begin();
        region = ebbi_region_open(o->parent, o->label != NULL ? o->label : "region", o->soft_limit,
                                  o->hard_limit);
    }
    if (region == NULL) {
        errno = ENOMEM;
    } else if (heap == NULL) {
        ebbi_region_detach(region);
    } else {
        heap->has_regions = true;
        if (EBBI_UNLIKELY(o->hard_limit != 0)) {
            ebbi_helper_kick(); // the sheet of its handle may have been above it
        }
        if (o->closes != 0) {
            ebbi_region_promise_close(region);
        }
    }
    return region;
}

static void ends_settle(void)
{
    ebbi_helper_look();
    ebbi_serve();
}

void ebb_region_release(struct ebb_region *region)
{
    if (region != NULL) {
        ebbi_region_release(region, false);
        ends_settle();
    }
}

void ebb_region_reset(struct ebb_region *region)
{
    ebbi_region_release(region, true);
    ends_settle();
}

void ebb_region_close(struct ebb_region *region)
{
    if (region != NULL) {
        ebbi_region_end(region);
        ends_settle();
    }
}

int ebb_region_cleanup(struct ebb_region *region, void (*call)(void *argument), void *argument)
{
    int result = ebbi_region_cleanup(region, call, argument);
    errno = result != 0 ? -result : errno;
    return result != 0 ? -1 : 0;
}

void *ebb_region_alloc(struct ebb_region *region, size_t bytes)
{
    return ebbi_region_malloc(region, bytes);
}

void *ebb_region_alloc_slow(struct ebb_region *region, size_t bytes)
{
    return ebbi_region_slow(region, 1, bytes);
}

void *ebb_region_calloc(struct ebb_region *region, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = ebbi_region_malloc(region, bytes);
    return p != NULL ? memset(p, 0, bytes) : NULL;
}

void *ebb_region_aligned_alloc(struct ebb_region *region, size_t align, size_t bytes)
{
    if (!ebbi_is_power_of_two(align)) {
        errno = EINVAL;
        return NULL;
    }
    return ebbi_region_aligned(region, align, bytes);
}

void *ebb_region_realloc(struct ebb_region *region, void *p, size_t bytes)
{
    return ebbi_region_realloc(region, p, bytes);
}

void *ebb_region_promote(const void *p, struct ebb_region *to) { return ebbi_promote(p, to); }

struct ebb_region *ebb_region_of(const void *p) { return ebbi_region_of(p); }

void ebb_region_detach(struct ebb_region *region) { ebbi_region_detach(region); }

const char *ebb_region_label(const struct ebb_region *region)
{
    ebbi_region_check(region, "label of");
    return region->label->name;
}

// ---- domains and scopes --------------------------------------------------------------------------

struct ebb_domain *ebb_domain_open(const char *label)
{
    if (label == NULL || label[0] == '\0') {
        errno = EINVAL;
        return NULL;
    }
    ebbi_helper_look();
    bool usable = ebbi_heap_get() != NULL || ebbi_start() == 0;
    struct ebb_domain *domain = usable ? ebbi_domain_find(label) : NULL;
    if (domain == NULL) {
        errno = ENOMEM;
    }
    return domain;
}

int ebb_domain_set_policy(struct ebb_domain *domain, enum ebb_domain_policy policy, size_t n)
{
    if (!ebbi_domain_set_policy(domain, (unsigned)policy, n)) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

void ebb_domain_advance(struct ebb_domain *domain)
{
    ebbi_domain_advance(ebbi_heap_get(), domain);
    ebbi_serve();
}

void ebb_thread_idle(void)
{
    int saved = errno;
    // relaxed: by this thread, or it is of no matter
    struct ebbi_heap *own = ebbi_load_relaxed(&ebbi_dying) ? NULL : ebbi_heap_get();
    if (own != NULL) {
        ebbi_domain_idle(own);
        ebbi_serve();
    }
    errno = saved;
}

static struct ebb_scope no_scope(void) { return (struct ebb_scope){EBBI_SCOPE_NONE}; }

struct ebb_scope ebb_region_enter(struct ebb_region *region)
{
    struct ebbi_heap *own = ebbi_heap_get();
    return own != NULL ? (struct ebb_scope){ebbi_enter_region(own, region)} : no_scope();
}

struct ebb_scope ebb_domain_enter(struct ebb_domain *domain)
{
    struct ebbi_heap *own = ebbi_heap_get();
    return EBBI_LIKELY(own != NULL) ? (struct ebb_scope){ebbi_enter_domain(own, domain)}
                                    : no_scope();
}

struct ebb_scope ebb_heap_enter(void)
{
    struct ebbi_heap *own = ebbi_heap_get();
    return own != NULL ? (struct ebb_scope){ebbi_enter_heap(own)} : no_scope();
}

void ebb_leave(struct ebb_scope before)
{
    if (EBBI_LIKELY(before.before != EBBI_SCOPE_NONE)) {
        ebbi_leave(ebbi_heap_get(), before.before);
        ebbi_serve();
    }
}
