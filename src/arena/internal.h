// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena, for its own files only.
#ifndef EBB_ARENA_INTERNAL_H
#define EBB_ARENA_INTERNAL_H

#include "arena/arena.h"
#include "base/peak.h"

struct ebbi_free_span {
    struct ebbi_span head;
    uint64_t freed_ms;
    struct ebbi_free_span *next, *previous;             // its bin
    struct ebbi_free_span *dirty_next, *dirty_previous; // the dirty list
    size_t dirty;                                       // granules that are
};
_Static_assert(sizeof(struct ebbi_free_span) == offsetof(struct ebbi_large, note),
               "a note lies behind it: who frees a large object twice at once reads the note late");

extern EBBI_HIDDEN struct ebbi_lock ebbi_arena_mutex;
extern EBBI_HIDDEN enum ebbi_os_huge ebbi_arena_advice;

// window.c. Under the lock, but for the first, which is called once, alone: 0 or -ENOMEM, after which
// it may be called again.
int ebbi_window_open(void);
// Reserves address space at an EBBI_CHUNK boundary of the window; NULL when refused.
void *ebbi_place(size_t bytes);
void *ebbi_place_first(size_t least_bytes, size_t *bytes); // what start-up has reserved, if enough
size_t ebbi_place_grown(void); // bytes that the next chunk should have: as all before it together
void ebbi_unplace(void *start, size_t bytes);
extern EBBI_HIDDEN size_t ebbi_reserved_bytes;

// chunk.c
// A new chunk with room for a span of `granules`; its usable part is one free span that the caller
// must insert. NULL when refused. Under the lock.
struct ebbi_chunk *ebbi_chunk_create(size_t granules);
// Ends a chunk whose usable part is one free span, which is in no list any more. Under the lock.
void ebbi_chunk_destroy(struct ebbi_chunk *chunk);
struct ebbi_chunk *ebbi_chunk_next(struct ebbi_chunk *chunk); // NULL: the first. Under the lock
size_t ebbi_chunk_units(size_t granules); // in a chunk of so many, the last in part
// Makes granules below `end` usable. False when refused. Under the lock.
bool ebbi_chunk_commit(struct ebbi_chunk *chunk, size_t end);
bool ebbi_chunk_is_automatic(void);        // units are asked for as they get dense
enum ebbi_os_huge ebbi_chunk_advice(void); // for a chunk as a whole
struct ebbi_span *ebbi_chunk_header(struct ebbi_chunk *chunk, size_t granule);
// The same of a span that is free, or about to be.
EBBI_INLINE struct ebbi_free_span *ebbi_free_span_at(struct ebbi_chunk *chunk, size_t granule)
{
    return (struct ebbi_free_span *)ebbi_chunk_header(chunk, granule);
}
extern EBBI_HIDDEN size_t ebbi_committed_granules;

// state.c
extern EBBI_HIDDEN struct ebbi_free_span *ebbi_dirty_first, *ebbi_dirty_last;
// Written under the lock. Given: ever handed out; clean: of these, not touched by then.
extern EBBI_HIDDEN size_t ebbi_dirty_granules, ebbi_used_granules, ebbi_given_granules,
    ebbi_clean_granules;
extern EBBI_HIDDEN struct ebbi_peak ebbi_arena_peak; // of bytes in use
// Free spans by size: 64 bins of one size each, then four per doubling. Under the lock.
#define EBBI_EXACT_BINS 64
#define EBBI_BINS 100
extern EBBI_HIDDEN struct ebbi_free_span *ebbi_bins[EBBI_BINS];
extern EBBI_HIDDEN uint64_t ebbi_bins_used[2]; // bit b: ebbi_bins[b] holds something

EBBI_INLINE unsigned ebbi_bin_of(size_t granules)
{
    EBBI_ASSERT(granules > 0 && granules < EBBI_CHUNK_GRANULES * 2);
    if (granules <= EBBI_EXACT_BINS) {
        return (unsigned)granules - 1;
    }
    unsigned high = ebbi_highest_bit(granules);
    return EBBI_EXACT_BINS + (high - 6) * 4 + (unsigned)(granules >> (high - 2) & 3);
}

// span.c
void ebbi_span_remove(struct ebbi_free_span *span);
// Free chunks and kept mappings end. True: address space is free that was not. Under the lock.
bool ebbi_release_free(void);
void ebbi_span_restore(struct ebbi_free_span *span,
                       uint64_t freed_ms); // as insert, coalesces first

// Where in a free span something is cut out.
struct ebbi_spot {
    struct ebbi_free_span *span; // NULL: there is no room
    size_t index;
};

// dense.c. Under the lock.
extern EBBI_HIDDEN size_t ebbi_grown_granules;
// What will be filled goes to the unit that was opened last, or opens one. True: ebbi_dense_fill is to ask.
bool ebbi_dense_choose(struct ebbi_spot *spot, size_t granules, enum ebbi_fill fill);
// Before [index, index + granules) is cut out of the free span: asks for the units that lie in the span and begin there.
// Where the first touch brings a unit of its own, which ebbi_dense_touch then makes, without the lock; NULL: nowhere.
void *ebbi_dense_fill(struct ebbi_free_span *span, size_t index, size_t granules);
// Of what begins there. Where it comes slowly the units behind it, up to `end`, have small pages.
void ebbi_dense_touch(void *start, const void *end);
// Asks for a new mapping as a whole, without the lock, and touches its first byte. False: small pages it is, as nobody
// asks, or they come slowly.
bool ebbi_dense_ask(void *start, size_t bytes);
// Such a mapping has grown by `more` pages that nobody has touched, at its end. False: it has small pages there, and is
// asked for no more.
bool ebbi_dense_goes_on(void *start, size_t bytes, size_t more);
size_t ebbi_dense_bytes(void);
size_t ebbi_huge_dense_bytes(void); // of huge objects and kept mappings

// filled.c. Under the lock.
#define EBBI_LEAST_SHOWING (4 * EBBI_UNIT_GRANULES) // of an object in huge pages, unit by unit
enum ebbi_kind { EBBI_KIND_LARGE, EBBI_KIND_HUGE, EBBI_KINDS };
// An object is about to be asked for in huge pages: false where those before it are not filled, or it is to show
// whether they are. O(1), with a few dozen system calls at most once a unit.
bool ebbi_filled_likely(enum ebbi_kind kind, size_t granules);
// No page of it is there, or if `begun` of the first unit in it alone: more comes as the program touches it.
void ebbi_filled_show(enum ebbi_kind kind, const void *start, size_t granules, bool begun);
// It is about to be freed, and lies there as it did.
void ebbi_filled_gone(enum ebbi_kind kind, const void *start);

// rest.c. Under the lock.
void ebbi_rest_open(struct ebbi_chunk *chunk, size_t next, size_t end);
// A span is in the lists of free ones from now, or no more.
void ebbi_rest_see(const struct ebbi_free_span *span, bool is_free);
size_t ebbi_rest_of(const struct ebbi_free_span *span); // granules at its beginning
bool ebbi_rest_is_there(void);
// A span that begins with so many, or, where they may go beyond the unit, has room for them there; they are cut out next.
// NULL: none.
struct ebbi_free_span *ebbi_rest_take(size_t granules, bool beyond);
bool ebbi_rest_forget(void); // it is for all. False: there is none

EBBI_INLINE struct ebbi_spot ebbi_spot_in(struct ebbi_free_span *span, size_t align_granules)
{
    size_t first = ebbi_span_index(&span->head) + ebbi_rest_of(span);
    return (struct ebbi_spot){span, ebbi_align_up(first, align_granules)};
}

EBBI_INLINE void *ebbi_granule_start(const struct ebbi_chunk *chunk, size_t granule)
{
    return (void *)((uintptr_t)chunk + (granule << EBBI_GRANULE_SHIFT));
}

// fit.c. Under the lock.
bool ebbi_spot_commit(const struct ebbi_spot *spot, size_t granules); // so many can then be cut out
struct ebbi_free_span *ebbi_best_fit(size_t granules);                // NULL: none has room
struct ebbi_spot ebbi_dirty_fit(size_t granules);                     // on pages that are there
struct ebbi_spot ebbi_clean_fit(size_t granules);                     // where few are
// Any that can be taken from without more memory from the OS.
struct ebbi_spot ebbi_committed_fit(size_t granules, size_t align_granules);

// purge.c

// Ends the process unless P1 to P10 hold, with a message that names the one; P3 by looks at the memory
// if `contents`, which touches it. Under the lock. O(spans). Sometimes: as often as it is worth.
void ebbi_arena_audit(bool contents);
void ebbi_arena_audit_sometimes(void);
#define EBBI_ARENA_AUDIT() (EBBI_HAVE_ASSERT ? ebbi_arena_audit_sometimes() : (void)0)

// huge_records.c
extern EBBI_HIDDEN size_t ebbi_huge_total_bytes, ebbi_huge_total_count; // under the lock

// kept.c
extern EBBI_HIDDEN size_t ebbi_kept_bytes; // under the lock
// Ends the oldest mapping kept that was freed by then; drops the lock meanwhile. Bytes; 0: none.
size_t ebbi_kept_release_oldest(uint64_t freed_by_ms);
bool ebbi_kept_release_all(void); // under the lock; true: there were any

// So many are about to be touched for the first time.
EBBI_INLINE void ebbi_count_clean(size_t granules)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    // relaxed: written under the lock, read as a hint
    ebbi_store_relaxed(&ebbi_clean_granules, ebbi_clean_granules + granules);
}

// In use, of either kind; a hint without the lock.
EBBI_INLINE size_t ebbi_used_total(void)
{
    // relaxed: a hint
    size_t of_spans = ebbi_load_relaxed(&ebbi_used_granules) << EBBI_GRANULE_SHIFT;
    return of_spans + ebbi_load_relaxed(&ebbi_huge_total_bytes); // relaxed: as above
}

EBBI_INLINE struct ebbi_chunk *ebbi_span_chunk(const struct ebbi_span *span)
{
    return (struct ebbi_chunk *)((uintptr_t)span & ~(EBBI_CHUNK - 1));
}

#endif
