// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the tag table, two bytes for each 64 KiB granule of the user address space.
//
// free() indexes it by p >> 16 without a range check. A tag is the bin of the slab that covers the
// granule, EBBI_TAG_LARGE or EBBI_TAG_HUGE at the start of an object of its own, EBBI_TAG_REGION, or 0
// for all else: NULL, memory that is not ours, our own metadata, the inside of a large object.
//
// The table is reserved readable and made writable where memory is ours, so it is not charged and
// only touched pages exist (4 GiB of reservation on x86-64, 8 GiB on aarch64). When the process has
// a limit on its address space (ulimit -v) or the reservation is refused, the table covers only
// the addresses below EBBI_WINDOW_END and everything of ours is placed there ("narrow"); freeing a
// foreign pointer then faults on the table instead of being named.
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
#define EBBI_TAG_MASK (((size_t)1 << (EBBI_ADDRESS_BITS - EBBI_GRANULE_SHIFT)) - 1)
#define EBBI_WINDOW_END ((uintptr_t)64 << 30)

// Bins of ordinary slabs are below 253, those of domains' slabs EBBI_TAG_DOMAIN above them.
enum {
    EBBI_TAG_NONE = 0,
    EBBI_TAG_REGION = 253,
    EBBI_TAG_HUGE = 254,
    EBBI_TAG_LARGE = 255,
    EBBI_TAG_DOMAIN = 256,
    EBBI_TAG_COUNT = 512,
};

extern EBBI_HIDDEN uint16_t
    *ebbi_tags; // never NULL; before ebbi_tags_init it knows only the granule of NULL
extern EBBI_HIDDEN size_t ebbi_tag_count; // granules covered

// Once, before any other call here, alone. 0 or -ENOMEM.
int ebbi_tags_init(void);
// Makes the tags of a range writable. 0 or -ENOMEM.
int ebbi_tags_prepare(const void *start, size_t bytes);

EBBI_INLINE bool ebbi_tags_narrow(void)
{
    return ebbi_tag_count < (size_t)1 << (EBBI_ADDRESS_BITS - EBBI_GRANULE_SHIFT);
}

EBBI_INLINE size_t ebbi_granule_of(const void *p) { return (uintptr_t)p >> EBBI_GRANULE_SHIFT; }

EBBI_INLINE void ebbi_tags_set(const void *start, size_t granules, uint16_t tag)
{
    uint16_t *tags = ebbi_tags + ebbi_granule_of(start);
    for (size_t i = 0; i < granules; i++) {
        ebbi_store_relaxed(&tags[i], tag); // relaxed: P1, the hand-over of a pointer orders it
    }
}

// Any pointer value.
EBBI_INLINE uint16_t ebbi_tag_of(const void *p)
{
    size_t granule = ebbi_granule_of(p);
    // relaxed: P1
    return granule < ebbi_tag_count ? ebbi_load_relaxed(&ebbi_tags[granule]) : EBBI_TAG_NONE;
}

#endif
