// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the window and its tag table, four bytes for each 64 KiB granule.
//
// All chunks lie in the window, a range of addresses whose place is random (window.c). Nobody reserves
// it: only the chunks in it and its table exist. free() subtracts the base, shifts, compares with the
// number of granules and loads. The first two bytes are a tag: the bin of the slab that covers the granule,
// EBBI_TAG_LARGE at the start of an object of its own, EBBI_TAG_REGION, or 0 for all else: memory that is
// not ours, our own metadata, the inside of a large object. What lies outside of the window is a huge object
// (huge.c) or not ours. The other two say how far behind the first block of its slab the granule starts: free
// sees whether a block begins at p without a look at the slab, whose header would be one more cache line.
//
// The table is reserved readable and made writable where memory is ours, so it is not charged and
// only touched pages exist: 16 MiB for a window of 256 GiB.
//
// P1  a tag is not 0 only while its granule belongs to a live slab or starts a live object.
// Written by whoever owns the granule, before the first pointer into it is handed out; read by
// anybody who holds such a pointer, whose hand-over orders the two.
#ifndef EBB_ARENA_TAGS_H
#define EBB_ARENA_TAGS_H

#include <string.h>

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

struct ebbi_tag {
    uint16_t bin;  // or one of the above
    int16_t ahead; // of a slab's granule: from its first block to the granule's start
};
#define EBBI_AHEAD_SHIFT 5
#define EBBI_AHEAD_UNIT (1 << EBBI_AHEAD_SHIFT) // bytes

// Constant once there are granules: read by all without more ado. One cache line.
struct ebbi_window {
    uintptr_t base;       // a multiple of EBBI_CHUNK
    size_t granules;      // 0 before ebbi_window_open
    size_t fast_granules; // for free's fast path: the same, or 0 where each free is to be slow
    struct ebbi_tag *tags;
} __attribute__((aligned(32)));
extern EBBI_HIDDEN struct ebbi_window ebbi_window;
void ebbi_window_slow_frees(void); // before the first one

// Both halves of a tag, by one load.
EBBI_INLINE int64_t ebbi_tag_load(const struct ebbi_tag *tag)
{
    int32_t both;
    memcpy(&both, tag, sizeof both);
    return both;
}

EBBI_INLINE size_t ebbi_tag_bin(int64_t both) { return (uint16_t)both; }

// In bytes. The bits of the bin that are left are 0.
EBBI_INLINE int64_t ebbi_tag_ahead(int64_t both) { return both >> (16 - EBBI_AHEAD_SHIFT); }
_Static_assert(EBBI_TAG_COUNT <= 1 << (16 - EBBI_AHEAD_SHIFT), "ahead is read with them");

// Makes the tags of a range of the window writable. 0 or -ENOMEM.
int ebbi_tags_prepare(const void *start, size_t bytes);

// Below ebbi_window.granules if p is in the window, else not: any pointer value.
EBBI_INLINE size_t ebbi_granule_of(const void *p)
{
    return ((uintptr_t)p - ebbi_window.base) >> EBBI_GRANULE_SHIFT;
}

// p lies in the window.
EBBI_INLINE struct ebbi_tag *ebbi_tag_at(const void *p)
{
    EBBI_ASSERT(ebbi_granule_of(p) < ebbi_window.granules);
    return &ebbi_window.tags[ebbi_granule_of(p)];
}

EBBI_INLINE void ebbi_tags_set(const void *start, size_t granules, uint16_t tag)
{
    struct ebbi_tag *tags = ebbi_tag_at(start);
    EBBI_ASSERT(ebbi_granule_of(start) + granules <= ebbi_window.granules);
    EBBI_ASSERT(tag < EBBI_TAG_COUNT);
    for (size_t i = 0; i < granules; i++) {
        // relaxed: the granule's owner alone writes its tag
        EBBI_ASSERT(tag == EBBI_TAG_NONE || ebbi_load_relaxed(&tags[i].bin) == EBBI_TAG_NONE);
        ebbi_store_relaxed(&tags[i].bin, tag); // relaxed: P1, the hand-over of a pointer orders it
    }
}

// Of a slab's granules, before they have their tag. They begin at `start`, its blocks `first` bytes behind that.
EBBI_INLINE void ebbi_tags_place(const void *start, size_t granules, size_t first)
{
    struct ebbi_tag *tags = ebbi_tag_at(start);
    EBBI_ASSERT(first % EBBI_AHEAD_UNIT == 0 && first < INT16_MAX * (size_t)EBBI_AHEAD_UNIT);
    EBBI_ASSERT(granules << EBBI_GRANULE_SHIFT <
                INT16_MAX * (size_t)EBBI_AHEAD_UNIT + EBBI_GRANULE);
    for (size_t i = 0; i < granules; i++) {
        ptrdiff_t ahead = (ptrdiff_t)(i << EBBI_GRANULE_SHIFT) - (ptrdiff_t)first;
        // relaxed: as in ebbi_tags_set
        ebbi_store_relaxed(&tags[i].ahead, (int16_t)(ahead / EBBI_AHEAD_UNIT));
    }
}

// The granule's tag was this one and is none now: of two threads that try, one is told so.
EBBI_INLINE bool ebbi_tag_take(const void *p, uint16_t tag)
{
    // relaxed: P1
    return ebbi_cas_relaxed(&ebbi_tag_at(p)->bin, &tag, (uint16_t)EBBI_TAG_NONE);
}

// Any pointer value.
EBBI_INLINE uint16_t ebbi_tag_of(const void *p)
{
    size_t granule = ebbi_granule_of(p);
    // relaxed: P1
    return granule < ebbi_window.granules ? ebbi_load_relaxed(&ebbi_window.tags[granule].bin)
                                          : EBBI_TAG_NONE;
}

#endif
