// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer front: what malloc, free, retire and a region's allocation do when their fast paths (front/fast.h)
// leave off. The one place that knows all sources of memory: what is current, classes, large objects,
// regions. Here a thread gets its heap; on the way out of a free or retire it makes a pass that is wanted.
//
// All thread-safe; ENOMEM in errno with NULL.
#ifndef EBB_FRONT_FRONT_H
#define EBB_FRONT_FRONT_H

#include "heap/blocks.h"
#include "lifetime/lifetime.h"
#include "os/control.h"
#include "os/wake.h"
#include "process/process.h"

// On the way out of a slow call; no lock held.
EBBI_INLINE void ebbi_serve(void)
{
    if (ebbi_pass_is_wanted()) {
        ebbi_pass_serve();
    }
    if (ebbi_control_is_asked()) {
        ebbi_asked_serve(false);
    }
    if (EBBI_UNLIKELY(ebbi_load_relaxed(&ebbi_metrics_due_ms) != 0)) { // relaxed: a time
        ebbi_metrics_lapse(false);
    }
}

// The bin for at most EBBI_SMALL_MAX bytes while a profile is on, of a heap whose sampler counts; 0 where its round is not the current one, and for 0 bytes.
EBBI_INLINE size_t ebbi_counted_bin_for(const struct ebbi_fast *heap, size_t bytes)
{
    // relaxed: the tables are constant, see set_lookup of registry.c
    const uint16_t *bins = ebbi_load_relaxed(&heap->sampler.bins);
    return ebbi_load_relaxed(&bins[(bytes + EBBI_QUANTUM - 1) / EBBI_QUANTUM]); // relaxed: as above
}

// ---- slow.c --------------------------------------------------------------------------------------
void *ebbi_malloc_slow(size_t bytes, ebbi_site site); // above EBBI_SMALL_MAX
void *ebbi_malloc_empty(size_t bytes,
                        ebbi_site site); // others, where the fast one has found nothing
void *ebbi_malloc_parked(size_t bytes, ebbi_site site); // after a pop that is to be taken back
void *ebbi_aligned(size_t align, size_t bytes, ebbi_site site); // align: a power of two
// By the fast path of a malloc of the class that is so aligned. NULL, errno as it was: there is more to do.
void *ebbi_aligned_fast(size_t align, size_t bytes);
void *ebbi_large_zeroed(size_t bytes, ebbi_site site); // above EBBI_CLASS_MAX
// That is the next sample, for the calling thread's heap. NULL, errno as it was: it is made as all others are.
void *ebbi_sample_make(struct ebbi_heap *mine, size_t bytes, size_t align, bool zero,
                       ebbi_site site);
// Memory was refused: all that is free goes back, and address space comes together.
void ebbi_give_all(void);
void ebbi_free_slow(void *p, ebbi_site site);
// What a call that frees says of the block.
struct ebbi_given {
    size_t bytes; // or EBBI_UNSAID
    size_t align; // a power of two, or 0: it says none
    bool
        is_exact; // the bytes are those of the allocation; not looked at where it says an alignment
};
void ebbi_free_given_slow(void *p, struct ebbi_given given, ebbi_site site);
void ebbi_stay_slow(void *p); // may have been freed lately
void ebbi_retire_slow(void *p);
void *ebbi_region_slow(struct ebb_region *region, size_t align, size_t bytes);

// ---- realloc.c -----------------------------------------------------------------------------------
void *ebbi_calloc(size_t count, size_t size);
void *ebbi_realloc(void *p, size_t bytes); // realloc(p, 0) frees and gives NULL
void *ebbi_region_aligned(struct ebb_region *region, size_t align, size_t bytes);
void *ebbi_region_realloc(struct ebb_region *region, void *p, size_t bytes);
void *ebbi_promote(const void *p, struct ebb_region *to);

#endif
