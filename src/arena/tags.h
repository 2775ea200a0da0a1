// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the window and its tag table, two bytes for each 64 KiB granule.
//
// All chunks lie in the window, a range of addresses whose place is random (window.c). Nobody reserves
// it: only the chunks in it and its table exist. free() subtracts the base, shifts, compares with the
// number of granules and loads. A tag is the bin of the slab that covers the granule, EBBI_TAG_LARGE
// at the start of an object of its own, EBBI_TAG_REGION, or 0 for all else: memory that is not ours,
// our own metadata, the inside of a large object. What lies outside of the window is a huge object
// (huge.c) or not ours.
//
// The table is reserved readable and made writable where memory is ours, so it is not charged and
// only touched pages exist: 8 MiB for a window of 256 GiB.
//
// P1  a tag is not 0 only while its granule belongs to a live slab or starts a live object.
// Written by whoever owns the granule, before the first pointer into it is handed out; read by
// anybody who holds such a pointer, whose hand-over orders the two.
#ifndef EBB_ARENA_TAGS_H
#define EBB_ARENA_TAGS_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"

#define EBBI_GRANULE_SHIFT 16
#define EBBI_GRANULE ((size_t)1 << EBBI_GRANULE_SHIFT)
#if defined(__x86_64__)
#define EBBI_ADDRESS_BITS 47
#elif defined(__aarch64__)
#define EBBI_ADDRESS_BITS 48
#else
#error "Ebbtide knows x86-64 and aarch64"
#endif

// Bins of ordinary slabs are below 253, those of domains' slabs EBBI_TAG_DOMAIN above them.
enum {
    EBBI_TAG_NONE = 0,
    EBBI_TAG_REGION = 253,
    EBBI_TAG_LARGE = 255,
    EBBI_TAG_DOMAIN = 256,
    EBBI_TAG_COUNT = 512,
};

// Constant once there are granules: read by all without more ado. One cache line.
struct ebbi_window {
    uintptr_t base;  // a multiple of EBBI_CHUNK
    size_t granules; // 0 before ebbi_window_open
    uint16_t *tags;
} __attribute__((aligned(32)));
extern EBBI_HIDDEN struct ebbi_window ebbi_window;

// Makes the tags of a range of the window writable. 0 or -ENOMEM.
int ebbi_tags_prepare(const void *start, size_t bytes);

// Below ebbi_window.granules if p is in the window, else not: any pointer value.
EBBI_INLINE size_t ebbi_granule_of(const void *p)
{
    return ((uintptr_t)p - ebbi_window.base) >> EBBI_GRANULE_SHIFT;
}

EBBI_INLINE void ebbi_tags_set(const void *start, size_t granules, uint16_t tag)
{
    uint16_t *tags = ebbi_window.tags + ebbi_granule_of(start);
    EBBI_ASSERT(ebbi_granule_of(start) + granules <= ebbi_window.granules);
    EBBI_ASSERT(tag < EBBI_TAG_COUNT);
    for (size_t i = 0; i < granules; i++) {
        // relaxed: the granule's owner alone writes its tag
        EBBI_ASSERT(tag == EBBI_TAG_NONE || ebbi_load_relaxed(&tags[i]) == EBBI_TAG_NONE);
        ebbi_store_relaxed(&tags[i], tag); // relaxed: P1, the hand-over of a pointer orders it
    }
}

// The granule's tag was this one and is none now: of two threads that try, one is told so.
EBBI_INLINE bool ebbi_tag_take(const void *p, uint16_t tag)
{
    // relaxed: P1
    return ebbi_cas_relaxed(&ebbi_window.tags[ebbi_granule_of(p)], &tag, (uint16_t)EBBI_TAG_NONE);
}

// Any pointer value.
EBBI_INLINE uint16_t ebbi_tag_of(const void *p)
{
    size_t granule = ebbi_granule_of(p);
    // relaxed: P1
    return granule < ebbi_window.granules ? ebbi_load_relaxed(&ebbi_window.tags[granule])
                                          : EBBI_TAG_NONE;
}

#endif
