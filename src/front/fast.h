// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer front: the four fast paths. Their instruction counts are pinned in tests/golden.
//
//   malloc: size -> bin -> pop -> parked?  empty, no heap, sampled: ebbi_malloc_empty
//   free:   granule -> tag = bin -> push   full, large, outside of the window, in error: ebbi_free_slow
//   retire: the same, to the bag beside    the same, or no bag: ebbi_retire_slow
//   region: owner? -> bump, start bit      another thread, no room: ebbi_region_slow
#ifndef EBB_FRONT_FAST_H
#define EBB_FRONT_FAST_H

#include "front/front.h"
#include "heap/lately.h"

// A relaxed load of 16 bits. Clang widens what it has loaded atomically by an instruction more.
#define LOAD_16(p) ebbi_load_relaxed(p) // relaxed: see set_lookup of registry.c
#ifdef __clang__
#if !__has_feature(thread_sanitizer)
#undef LOAD_16
#define LOAD_16(p) (*(const volatile uint16_t *)(p))
#endif
#endif

// Of at most EBBI_SMALL_MAX bytes. gcc does not put the place of an array into the address of such a load; the
// round-up takes it along: one instruction less.
EBBI_INLINE size_t ebbi_bin_for(const struct ebbi_fast *heap, size_t bytes)
{
#ifdef EBB_MODEL
    return heap->bin_of[(bytes + EBBI_QUANTUM - 1) / EBBI_QUANTUM];
#else
    const size_t before = offsetof(struct ebbi_fast, bin_of) / sizeof heap->bin_of[0];
    const uint16_t *table = (const uint16_t *)heap;
    // relaxed: see set_lookup of registry.c
    return LOAD_16(&table[(bytes + (before + 1) * EBBI_QUANTUM - 1) / EBBI_QUANTUM]);
#endif
}

// Evaluated where a slow path begins, and only there: the fast ones are to be without it. site: 0, or known already.
#define SITE_OF(family, site) ((site) != 0 ? (site) : EBBI_SITE(family))

// From the magazine of `bin`; or by when_empty; or by when_parked, after a pop that is to be taken back.
EBBI_INLINE void *ebbi_pop(struct ebbi_fast *heap, size_t bin, size_t bytes,
                           enum ebbi_family family, ebbi_site site,
                           void *(*when_empty)(size_t bytes, ebbi_site site),
                           void *(*when_parked)(size_t bytes, ebbi_site site))
{
    ebbi_slot *top = heap->top[bin];
    void *block = top[-1];
    if (EBBI_UNLIKELY(block == NULL)) {
        return when_empty(bytes, SITE_OF(family, site));
    }
    ebbi_store_relaxed(&heap->top[bin], top - 1); // relaxed: others only count
    ebbi_compiler_fence();
    if (EBBI_UNLIKELY(ebbi_source_now() != heap)) { // parked: the block may have gone home
        return when_parked(bytes, SITE_OF(family, site));
    }
    return block;
}

EBBI_INLINE void *ebbi_malloc_at(size_t bytes, enum ebbi_family family, ebbi_site site)
{
    if (EBBI_UNLIKELY(bytes > EBBI_SMALL_MAX)) {
        return ebbi_malloc_slow(bytes, SITE_OF(family, site));
    }
    struct ebbi_fast *heap = ebbi_source_now();
    size_t bin = ebbi_bin_for(heap, bytes);
    return ebbi_pop(heap, bin, bytes, family, site, ebbi_malloc_empty, ebbi_malloc_parked);
}

EBBI_INLINE void *ebbi_malloc(size_t bytes, enum ebbi_family family)
{
    return ebbi_malloc_at(bytes, family, 0);
}

// To the magazine or tray of the bin that the granule's tag has. False: it is to be freed the slow way.
EBBI_INLINE bool ebbi_push_to(struct ebbi_fast *heap, size_t bin, int64_t tag, void *p)
{
    ebbi_slot *top = heap->top[bin];
    if (EBBI_UNLIKELY(top == heap->limit[bin] || !ebbi_slab_has_place(p, tag) ||
                      ebbi_was_freed_lately(top, p))) {
        return false;
    }
    ebbi_store_relaxed(top, p); // relaxed: a snapshot reads it meanwhile, as a hint
    ebbi_compiler_fence();      // another thread's fork() must not find a top without its block
    ebbi_store_relaxed(&heap->top[bin], top + 1); // relaxed: others only count
    return true;
}

EBBI_INLINE bool ebbi_push(void *p)
{
    size_t granule = ebbi_granule_of(p);
    if (EBBI_UNLIKELY(granule >= ebbi_window.fast_granules)) { // huge, foreign, NULL
        return false;
    }
    int64_t tag = ebbi_tag_load(&ebbi_window.tags[granule]); // set before p was handed out
    return ebbi_push_to(ebbi_source_now(), ebbi_tag_bin(tag), tag, p);
}

#ifndef EBB_MODEL
// The same of what a call says to be of `bytes`, at most EBBI_SMALL_MAX: most often it is of the bin from which this
// thread would allocate as many. False, too: it is of another class.
EBBI_INLINE bool ebbi_push_sized(void *p, size_t bytes)
{
    struct ebbi_fast *heap = ebbi_source_now();
    size_t bin = ebbi_bin_for(heap, bytes);
    size_t granule = ebbi_granule_of(p);
    if (EBBI_UNLIKELY(granule >= ebbi_window.fast_granules)) {
        return false;
    }
    int64_t tag = ebbi_tag_load(&ebbi_window.tags[granule]); // as above
    if (EBBI_UNLIKELY(ebbi_tag_bin(tag) != bin)) {
        bin = ebbi_tag_bin(tag);
        if (ebbi_tag_class((unsigned)bin) != ebbi_class_for(bytes)) {
            return false;
        }
    }
    return ebbi_push_to(heap, bin, tag, p);
}
#endif

EBBI_INLINE void ebbi_free_at(void *p, ebbi_site site)
{
    if (EBBI_UNLIKELY(!ebbi_push(p))) {
        ebbi_free_slow(p, site);
    }
}

EBBI_INLINE void ebbi_free(void *p, enum ebbi_family family)
{
    if (EBBI_UNLIKELY(!ebbi_push(p))) {
        ebbi_free_slow(p, EBBI_SITE(family));
    }
}

#ifndef EBB_MODEL
// is_exact: the bytes are those that it was allocated with; else a realloc may have made it smaller since.
EBBI_INLINE void ebbi_free_sized(void *p, size_t bytes, bool is_exact, enum ebbi_family family)
{
    if (EBBI_UNLIKELY(bytes > EBBI_SMALL_MAX || !ebbi_push_sized(p, bytes))) {
        struct ebbi_given given = {ebbi_min(bytes, EBBI_UNSAID - 1), 0, is_exact};
        ebbi_free_given_slow(p, given, EBBI_SITE(family));
    }
}

// bytes: or EBBI_UNSAID.
EBBI_INLINE void ebbi_free_aligned(void *p, size_t bytes, size_t align, enum ebbi_family family)
{
    ebbi_free_given_slow(p, (struct ebbi_given){bytes, align, false}, EBBI_SITE(family));
}
#endif

EBBI_INLINE void ebbi_retire(void *p)
{
    size_t granule = ebbi_granule_of(p);
    if (EBBI_UNLIKELY(granule >= ebbi_window.granules)) {
        ebbi_retire_slow(p);
        return;
    }
    size_t bin = ebbi_window.tags[granule].bin; // as in ebbi_free
    struct ebbi_bag_top *bag = &ebbi_current()->limbo[bin];
    void **top = bag->top;
    if (EBBI_UNLIKELY(top == bag->limit)) {
        ebbi_retire_slow(p);
        return;
    }
    *top = p;
    ebbi_compiler_fence();                  // as in ebbi_free
    ebbi_store_relaxed(&bag->top, top + 1); // relaxed: others only count
}

EBBI_INLINE void *ebbi_region_malloc(struct ebb_region *region, size_t bytes)
{
    if (EBBI_UNLIKELY(!ebbi_region_is_easy(region, bytes))) {
        return ebbi_region_slow(region, 1, bytes);
    }
    return (void *)ebbi_cursor_take(&region->front.cursor, bytes);
}

#endif
