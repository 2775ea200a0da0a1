// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: guarded allocations. A few of all (EBB_GUARD, EBB_CHECK=sample: so many a second, a sixteenth of them at
// once), or with EBB_CHECK=1 those that are large or empty, get pages of their own between two that let no access through, and when they are freed,
// theirs do not either, until newer ones need the room. An access there, a second free, or bytes that were written beside
// the block end in a report with the stacks of allocation, free and use. (K. Serebryany et al., "GWP-ASan: Sampling-Based Detection of Memory-Safety Bugs
// in Production", 2024, has the idea.)
//
//     | no access | canary | block | canary | no access |     a span of granules, a large object for all other layers
//                                           ^ a page's end: the canary behind the block is shorter than its alignment
//
//     free record --make--> in use --free--> held, no access --oldest of MOST_HELD--> free record, free span
//
// G1  records change under a lock; a signal handler reads those whose state is not free. What it finds there is of a block that
//     the access was wrong for, or of one that took its place in this very moment.
// G2  held: no page of the span is accessible, its tag is none.
// G3  at most `most_used` are in use and MOST_HELD held, of MOST_HELD_BYTES. Each may split mappings, of which Linux allows
//     65,530 a process.
// G4  of samples 512 are in use at most, and once half of them are, eight of those that were made by the same calls: what
//     lives for long leaves room for what does not.
#ifndef EBB_DEBUG_GUARD_H
#define EBB_DEBUG_GUARD_H

#include "arena/arena.h"
#include "debug/site.h"

// rate: most allocations a second, besides those of `checks`, of every block (which is for the process's start). Also later,
// one thread at a time: another rate, or 0: no further ones. False: no memory for the records, so there are none, as a
// message says.
bool ebbi_guard_begin(size_t rate, bool checks);

extern EBBI_HIDDEN uint32_t ebbi_guard_rate; // 0: none is to be made by time; atomic
EBBI_INLINE bool ebbi_guard_is_on(void)
{
    // relaxed: a hint; the records are looked for behind it
    return EBBI_UNLIKELY(ebbi_load_relaxed(&ebbi_guard_rate) != 0);
}
extern EBBI_HIDDEN uint32_t ebbi_guard_rests; // that need not ask, as it was too early; atomic
EBBI_INLINE bool ebbi_guard_may_be_due(void)
{
    uint32_t rests = ebbi_load_relaxed(&ebbi_guard_rests); // relaxed: a race is one more or less
    if (rests != 0) {
        ebbi_store_relaxed(&ebbi_guard_rests, rests - 1); // relaxed: as above
    }
    return rests == 0;
}
// Whether it is time for one. A true answer is for the caller alone. Any thread.
bool ebbi_guard_is_due(void);

// NULL: too large, too many (of samples fewer may be in use), or refused. Of the size that was asked for, to the byte. No lock held; waits for the loader where
// the unwinder does. Two or three system calls.
void *ebbi_guard_make(size_t bytes, size_t align, bool zero, ebbi_site site, bool sample);
// With EBB_CHECK: whether what frees it says how it was allocated, or else there is a report. Of any large block.
void ebbi_guard_match(const void *p, size_t bytes, size_t align, ebbi_site site);
// By realloc, where it lies: no access from the page behind its new end on. Reports as the next does.
void ebbi_guard_shrink(struct ebbi_large *large, size_t bytes, ebbi_site site);
// Its tag has been taken. Reports a write beside it (ebbi_misuse).
void ebbi_guard_free(struct ebbi_large *large);
// The same of all in use, while no other thread uses the heap.
void ebbi_guards_look(void);
// Memory was refused: what is held is free. True: there is some more now.
bool ebbi_guard_rest(void);

// A misuse (ebbi_misuse) if the address lies in the span of such a block; false otherwise. what: of a pointer that was
// handed to the library: "free" or the like; more: as in a report.
bool ebbi_guard_report(uintptr_t address, const char *what, const char *more);

#endif
