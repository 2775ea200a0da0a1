// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: what lies in a checked block (debug/check.h) before and behind what the program has, and whether it still does.
#ifndef EBB_DEBUG_CHECKED_H
#define EBB_DEBUG_CHECKED_H

#include "base/mix.h"
#include "debug/canary.h"
#include "slab/slab.h"

#define EBBI_FRONT_LEAST 8u   // of the canary in front
#define EBBI_CANARY_LEAST 16u // behind
#define EBBI_CANARY_MOST 128u // behind
#define EBBI_FILL_BYTE 0xDBu  // of what is freed: as an address it is none
#define EBBI_FILL (EBBI_FILL_BYTE * 0x0101010101010101u)

enum ebbi_checked_state {
    EBBI_CHECKED_USED = 0x5E1F5E1F,
    EBBI_CHECKED_RETIRED = 0x2E712E71,
    EBBI_CHECKED_FREED = 0x0FEEDF0E,
    EBBI_CHECKED_LOST = 0x10571057,
};

// At the beginning of the block.
struct ebbi_checked {
    uint32_t state; // atomic
    uint32_t sum;   // of all that follows, and of where it lies
    // What was asked for; of the canary behind it, which ends at a multiple of 8; from the header to it.
    uint32_t bytes : 24, tail : 8;
    uint32_t offset : 24, align_log2 : 5, family : 3;
    uintptr_t made, freed; // called from here
    uint32_t made_by, freed_by;
};
#define EBBI_CHECKED_HEADER sizeof(struct ebbi_checked)
#define EBBI_CHECKED_OFFSET (EBBI_CHECKED_HEADER + EBBI_FRONT_LEAST) // at least
_Static_assert(EBBI_CHECKED_OFFSET % 16 == 0, "blocks are aligned to 16");

extern EBBI_HIDDEN uint64_t ebbi_checked_secret; // constant since the start

// What follows the sum, by the words in which it is read and written: a processor that reads what it has just written in other
// pieces waits.
struct ebbi_checked_words {
    uint64_t shape, made, freed, threads;
};
_Static_assert(EBBI_CHECKED_HEADER == 2 * sizeof(uint32_t) + sizeof(struct ebbi_checked_words),
               "all of it");

EBBI_INLINE uint64_t ebbi_checked_shape(size_t bytes, size_t tail, size_t offset,
                                        unsigned align_log2, unsigned family)
{
    return (uint64_t)bytes | (uint64_t)tail << 24 | (uint64_t)offset << 32 |
           (uint64_t)align_log2 << 56 | (uint64_t)family << 61;
}

EBBI_INLINE struct ebbi_checked_words ebbi_checked_words(const struct ebbi_checked *h)
{
    struct ebbi_checked_words parts = {.made = h->made, .freed = h->freed};
    memcpy(&parts.shape, &h->sum + 1, sizeof parts.shape);
    memcpy(&parts.threads, &h->made_by, sizeof parts.threads);
    return parts;
}

EBBI_INLINE uint32_t ebbi_checked_sum_of(const struct ebbi_checked *h,
                                         struct ebbi_checked_words parts)
{
    uint64_t secret = ebbi_checked_secret;
    uint64_t made = ebbi_fold(parts.shape ^ secret, parts.made - secret);
    uint64_t freed = ebbi_fold(parts.freed ^ ~secret, parts.threads + secret + (uintptr_t)h);
    uint64_t sum = made ^ (freed << 32 | freed >> 32);
    return (uint32_t)(sum ^ sum >> 32);
}

EBBI_INLINE uint32_t ebbi_checked_sum(const struct ebbi_checked *h)
{
    return ebbi_checked_sum_of(h, ebbi_checked_words(h));
}

EBBI_INLINE void ebbi_checked_write(struct ebbi_checked *h, struct ebbi_checked_words parts)
{
    h->sum = ebbi_checked_sum_of(h, parts);
    memcpy(&h->sum + 1, &parts.shape, sizeof parts.shape);
    h->made = parts.made;
    h->freed = parts.freed;
    memcpy(&h->made_by, &parts.threads, sizeof parts.threads);
}

EBBI_INLINE char *ebbi_checked_block(const struct ebbi_checked *h) { return (char *)h + h->offset; }

EBBI_INLINE struct ebbi_range ebbi_checked_content(const struct ebbi_checked *h)
{
    char *block = ebbi_checked_block(h);
    return (struct ebbi_range){block, block + h->bytes};
}

// Of a block: no two have the same. No byte is below 128: what is written beside a block is mostly 0 or text.
EBBI_INLINE uint64_t ebbi_checked_canary(const struct ebbi_checked *h)
{
    return ebbi_mix(~ebbi_checked_secret, (uintptr_t)h) | 0x8080808080808080u;
}

// From the header on: the canary starts at a multiple of 8.
EBBI_INLINE struct ebbi_range ebbi_checked_before(const struct ebbi_checked *h)
{
    return (struct ebbi_range){(char *)h + EBBI_CHECKED_HEADER, ebbi_checked_block(h)};
}

EBBI_INLINE struct ebbi_range ebbi_checked_behind(const struct ebbi_checked *h)
{
    char *from = ebbi_checked_block(h) + h->bytes;
    return (struct ebbi_range){from, from + h->tail};
}

// Of a class's block that begins there. (By the tag: the slab's record is seldom in the cache.)
EBBI_INLINE size_t ebbi_checked_room(const void *block)
{
    return ebbi_classes[ebbi_tag_class(ebbi_tag_of(block))].size;
}

// Nobody has written beside it.
EBBI_INLINE bool ebbi_checked_has_canaries(const struct ebbi_checked *h)
{
    uint64_t canary = ebbi_checked_canary(h);
    struct ebbi_range before = ebbi_checked_before(h);
    bool is_one_word = h->offset == EBBI_CHECKED_OFFSET; // mostly
    return (is_one_word ? ebbi_canary_is_word(before.from, canary)
                        : ebbi_canary_holds(before, canary)) &&
           ebbi_canary_holds_to_word(ebbi_checked_behind(h), canary);
}

// What a free fills: the block, and what was canary before and behind it.
EBBI_INLINE struct ebbi_range ebbi_checked_filled(const struct ebbi_checked *h)
{
    return (struct ebbi_range){ebbi_checked_before(h).from, ebbi_checked_behind(h).to};
}

// Freed, and nobody has written there or beside it.
EBBI_INLINE bool ebbi_checked_is_as_left(const struct ebbi_checked *h)
{
    return ebbi_canary_holds_words(ebbi_checked_filled(h), EBBI_FILL);
}

// `what` is of a call: "free", "retire". Where the process goes on (ebbi_misuse), so do these.
void ebbi_checked_report(const struct ebbi_checked *h, const void *at, const char *kind,
                         const char *more_kind, const char *more);
// Of memory whose header says nothing that can be trusted.
void ebbi_checked_report_none(const struct ebbi_checked *h, const void *p, const char *what);
void ebbi_checked_report_state(const struct ebbi_checked *h, const void *p, uint32_t state,
                               const char *what);
void ebbi_checked_report_touched(const struct ebbi_checked *h); // since it was freed
// Whether something beside it was written, which it reports.
bool ebbi_checked_is_marred(const struct ebbi_checked *h);

#endif
