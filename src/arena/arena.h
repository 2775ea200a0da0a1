// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: where memory comes from and goes back to. Chunks of address space, spans of
// granules within them, huge objects outside.
//
// A chunk is up to 1 GiB of reserved address space at a 1 GiB boundary of the window (tags.h), so the
// header of any granule is found from an address by masking: no search. The first is small, each
// further one as large as all before it: no more than about twice of what is in use is reserved.
//
//     chunk: | headers, 256 bytes a granule | bitmap room, 1.5 KiB a granule | gap | granules ... |
//            ^ 1 GiB boundary; the first headers' place holds struct ebbi_chunk
//
// No write that runs over the end of the program's memory, or before its start, reaches the metadata: the gap, at least a
// granule, is never accessible, and a chunk ends before the next one's boundary. Nor does it reach heaps, labels and
// regions' handles: they are in own granules (own.c), which lie between two that are not accessible.
//
// Memory is committed from the low end in steps, purged (MADV_DONTNEED) after a delay, and stays
// committed. A span is a run of granules with one purpose; its header is that of its first
// granule. Free spans are kept in bins by size (best fit) and coalesced at once.
//
// P1  every granule of the usable part is in exactly one span; two free spans never touch.
// P2  bit g of `free_map` is set iff granule g is the first or the last of a free span.
// P3  bit g of `dirty_map` is clear only if granule g reads as zero.
// P4  a free span is on the dirty list iff its `dirty`, the number of its granules that are, is not
//     0; the list is in order of the time of freeing.
// P5  a free span is in the bin of its length, which its last header has too, once that can be written;
//     bit b of ebbi_bins_used is set iff bin b holds something.
// P6  the counts of granules in use, dirty (of free spans) and committed are those of the chunks, and no
//     more is in use than at the peak.
// P7  no free granule of a unit that has its bit in `dense_map` is clean.
// P8  bit g of `fresh_map` is set only if g is free and dirty, and reads as zero: it came with its unit.
// P9  ebbi_grown_granules is the sum of all spans in use that are `grown`.
// P10 dense.c knows of what is left of the last unit whether a free span begins with it.
// All of it is guarded by one lock (rank: arena), which is dropped during madvise.
#ifndef EBB_ARENA_ARENA_H
#define EBB_ARENA_ARENA_H

#include "arena/tags.h"
#include "base/bits.h"
#include "os/lock.h"
#include "os/os.h"

#define EBBI_CHUNK_SHIFT 30
#define EBBI_CHUNK ((size_t)1 << EBBI_CHUNK_SHIFT)
#define EBBI_CHUNK_GRANULES (EBBI_CHUNK >> EBBI_GRANULE_SHIFT)
#define EBBI_HEADER 256u
#define EBBI_BITMAP_ROOM 1536u
#define EBBI_UNIT_GRANULES ((size_t)32) // 2 MiB: of one huge page (dense.c)
#define EBBI_HUGE_MIN ((size_t)32 << 20)
#define EBBI_MOVED_MIN ((size_t)2 << 20) // of what has grown, and then moves by its pages

enum ebbi_span_state {
    EBBI_SPAN_NONE, // never used
    EBBI_SPAN_FREE,
    EBBI_SPAN_SLAB,
    EBBI_SPAN_INSIDE, // not the first granule of a slab: `back` leads to it
    EBBI_SPAN_LARGE,
    EBBI_SPAN_SPARE,      // was one; a heap keeps it
    EBBI_SPAN_OWN,        // granules for records of the allocator (own.c)
    EBBI_SPAN_SHEET,      // blocks of a region
    EBBI_SPAN_QUARANTINE, // was a sheet, a large object of a region, a guarded one; no access
};

struct ebb_region;
struct ebbi_label;

// What the layers above note of a large or huge object.
struct ebbi_note {
    void *next;                // object; of those that wait for a grace period
    uint64_t stamp;            // 0: not retired; atomic
    struct ebbi_label *label;  // whose it is; NULL: nobody's
    struct ebb_region *region; // that it is in; atomic
    void *before, *after;      // objects of that region, under its lock
    size_t bytes;              // that the label counts
    // See profile/profile.h: set before the block is handed out, and no more.
    uint32_t sample;      // 0: none; atomic
    uint32_t sample_live; // its place among those in use; 0: it has none
    size_t sampled_bytes;
    double sampled_objects;
    uint64_t sampled_ns; // when
};

// What the header of every span begins with. The rest of a used span's belongs to the layer above, which
// puts this first in a struct of its own.
struct ebbi_span {
    uint8_t state;
    bool zeroed;       // in use: read as zero when it was handed out
    bool grown;        // in use: of a class that grows (EBBI_FILL_GROWS, EBBI_FILL_MUCH)
    uint8_t back;      // EBBI_SPAN_INSIDE: granules back to the first
    uint32_t granules; // free spans: also in the last granule's header
};
_Static_assert(sizeof(struct ebbi_span) == 8, "what a slab and a sheet leave of their first line");

struct ebbi_large {
    struct ebbi_span head;
    size_t bytes;            // that were asked for
    struct ebbi_large *next; // of those that a heap keeps, or frees
    uint32_t shift;          // bytes from the span's start to the object
    uint32_t guard;          // 0, or its record (debug/guard.h)
    bool sampled;            // by a profile: a block of a class otherwise
    unsigned char unused[23];
    struct ebbi_note note;
};
_Static_assert(sizeof(struct ebbi_large) <= EBBI_HEADER, "a header holds a large object's");

struct ebbi_chunk {
    uint32_t first;          // granule: below it the chunk's own metadata, and what is left out
    uint32_t granules;       // end of the reservation
    uint32_t committed;      // end of the granules from `first` that can be touched
    uint32_t number;         // in order of creation
    struct ebbi_chunk *next; // see ebbi_chunk_next
    // Behind this, as long as the chunk needs: one of 4 MiB has all in its first page.
    uint64_t *free_map, *dirty_map, *fresh_map;
    uint64_t *dense_map; // by unit: asked for as huge, not split since; atomic
};

struct ebbi_arena_totals {
    size_t reserved_bytes;
    size_t committed_bytes;
    size_t used_bytes;  // spans in use
    size_t dirty_bytes; // free spans that are not purged, and kept mappings
    size_t huge_bytes;
    size_t huge_count;
    size_t dense_bytes; // asked for as huge pages, not split since
    size_t purges;      // madvise calls for spans, since the start
};

// Once, alone. 0 or -ENOMEM, after which it may be called again.
int ebbi_arena_init(enum ebbi_os_huge advice);

// A granule for the allocator's own records, which reads as zero; NULL: refused. O(granules in use / 16).
void *ebbi_own_take(void);
void ebbi_own_give(void *granule);
void ebbi_own_lock(void); // fork()
void ebbi_own_unlock(void);

// A span of `granules`, its start aligned to align_granules (a power of two). NULL when the OS
// refuses memory. Its memory reads as zero if span->zeroed. O(1) but for a bounded scan of one bin.
struct ebbi_span *ebbi_span_alloc(size_t granules, size_t align_granules, uint8_t state);
// How much of a span the program will touch, as far as is known: what decides about huge pages (dense.c).
enum ebbi_fill {
    EBBI_FILL_UNKNOWN, // small pages
    EBBI_FILL_FEW,     // little of it, perhaps: the same, where few pages are there already
    EBBI_FILL_LIKELY,  // what has come with a huge page, if there is some
    EBBI_FILL_GROWS, // all of it: those before it are full. A huge page is asked for when there are many such
    EBBI_FILL_MUCH,   // the same, beside so much that one more is little
    EBBI_FILL_OBJECT, // all of it, by one object: the same, for the units that it covers
};
// The same as ebbi_span_alloc, not aligned.
struct ebbi_span *ebbi_span_alloc_dense(size_t granules, uint8_t state, enum ebbi_fill fill);
// The same of at most 64 granules; those without a bit in *dirty read as zero.
struct ebbi_span *ebbi_span_alloc_part(size_t granules, uint8_t state, enum ebbi_fill fill,
                                       uint64_t *dirty);
// filled.c. Of 127 parts of a span that began without any page so many are not there; a hint, by some system calls and
// no lock.
unsigned ebbi_span_missing(const struct ebbi_span *span);
#define EBBI_MISSING_UNKNOWN 128u
// What is missing on average, after one more was seen, which counts as one of so many; 0: of none. The bit: so much (more than
// a third, until it is less than a sixth) that huge pages do not pay.
uint8_t ebbi_missing_after(uint8_t before, unsigned seen, unsigned of);
#define EBBI_MISSING_MUCH 128u
#define EBBI_PROBE_PART 64 // of what is taken to be filled, one has small pages, to see
void ebbi_span_free(struct ebbi_span *span);
// The same of what ebbi_span_alloc_part may have given: `dirty` as there.
void ebbi_span_free_part(struct ebbi_span *span, uint64_t dirty);
void ebbi_larges_free(struct ebbi_large *first); // a chain of them
// Grows or shrinks in place to `granules`. False when the neighbour is in use or memory is refused.
bool ebbi_span_resize(struct ebbi_span *span, size_t granules);

// Returns free spans and kept mappings that have been free for delay_ms to the OS, oldest first. True when younger ones are left;
// memory that the OS refuses to take (locked) is not waited for, and passed by, up to 16 spans of it, or with a limit none.
// limit_bytes: stop after that much.
bool ebbi_arena_purge(uint64_t now_ms, uint64_t delay_ms, size_t limit_bytes);
bool ebbi_arena_was_refused(void); // the last one met such: a hint
// Pages of objects, blocks and regions that have gone back since the start, in bytes; whoever returns some counts them.
size_t ebbi_arena_purged_bytes(void);
void ebbi_arena_count_purged(size_t bytes);
// Hints, without the lock.
size_t ebbi_arena_dirty_bytes(void); // of free spans and kept mappings
size_t ebbi_arena_used_bytes(void);  // of spans and huge objects in use
size_t ebbi_arena_peak_bytes(void);  // most of these lately
void ebbi_arena_turn_peak(void);     // a window of time has ended
size_t ebbi_arena_clean_bytes(void); // handed out, of spans, that nobody had touched; grows
size_t ebbi_arena_given_bytes(void); // handed out, touched or not; grows

// Memory of chunks: whether some of it was asked for as huge pages. The next comes before each purge of it; no
// lock that comes after the arena's is held.
bool ebbi_dense_is(const void *start, size_t bytes);
bool ebbi_dense_everywhere(void); // the kernel gives huge pages wherever a chunk is touched
void ebbi_dense_split(const void *start, size_t bytes);

// Huge objects: mappings of their own, anywhere. `align` is a power of two. They read as zero; `zero`: as that is
// wanted, no huge pages are asked for.
void *ebbi_huge_alloc(size_t bytes, size_t align, bool zero);
bool ebbi_huge_free(void *p); // its mapping ends; false: no such object
bool ebbi_huge_keep(void *p); // its mapping is kept for the next; false: as above
// The same as ebbi_huge_alloc of a mapping that was kept; NULL: none fits. Reads as zero if `zero`.
void *ebbi_huge_take(size_t bytes, size_t align, bool zero);
bool ebbi_huge_is(const void *p);          // one starts at p
size_t ebbi_huge_bytes(const void *p);     // 0: no such object
struct ebbi_note *ebbi_huge_note(void *p); // NULL: no such object
// May move; NULL: refused, p unchanged. keeps_rest: what is cut off below EBBI_HUGE_MIN is kept as what is freed, in granules.
void *ebbi_huge_resize(void *p, size_t bytes, bool keeps_rest);

struct ebbi_huge_place {
    uintptr_t start;
    size_t bytes;
    bool freed; // lately: its record has not been used again
};
// The one that p lies in, for reports. O(objects).
bool ebbi_huge_around(const void *p, struct ebbi_huge_place *place);

struct ebbi_note *ebbi_large_note(void *p); // NULL when p is neither such an object nor a huge one

// Calls visit for each huge object under the lock.
void ebbi_huge_each(void (*visit)(uintptr_t start, size_t bytes, const struct ebbi_note *note,
                                  void *context),
                    void *context);
// The sum of measure(pages, start, bytes) over all huge objects.
typedef size_t (*ebbi_measure)(struct ebbi_os_pages *pages, uintptr_t start, size_t bytes);
size_t ebbi_huge_resident(ebbi_measure measure, struct ebbi_os_pages *pages);
size_t ebbi_kept_resident(ebbi_measure measure, struct ebbi_os_pages *pages); // of kept mappings

size_t ebbi_chunk_metadata_bytes(const struct ebbi_chunk *chunk); // from its start on
void ebbi_arena_totals(struct ebbi_arena_totals *totals);
// Calls visit for each chunk under the lock.
void ebbi_arena_each_chunk(void (*visit)(struct ebbi_chunk *chunk, void *context), void *context);
// fork(): taken before, dropped after, in parent and child.
void ebbi_arena_lock(void);
void ebbi_arena_unlock(void);
bool ebbi_arena_is_mine(void); // this thread holds the lock
void ebbi_arena_forked(
    void); // in the child, under the lock: what other threads were purging is free

extern EBBI_HIDDEN uint8_t ebbi_chunk_known[]; // by address >> EBBI_CHUNK_SHIFT

// NULL when p is in no chunk.
EBBI_INLINE struct ebbi_chunk *ebbi_chunk_of(const void *p)
{
    uintptr_t address = (uintptr_t)p;
    uintptr_t number = address >> EBBI_CHUNK_SHIFT;
    if (number >= (uintptr_t)1 << (EBBI_ADDRESS_BITS - EBBI_CHUNK_SHIFT) ||
        !ebbi_load_relaxed(&ebbi_chunk_known[number])) { // relaxed: a pointer of ours orders it
        return NULL;
    }
    return (struct ebbi_chunk *)(number << EBBI_CHUNK_SHIFT);
}

EBBI_INLINE struct ebbi_span *ebbi_span_at(uintptr_t chunk, size_t granule)
{
    return (struct ebbi_span *)(chunk + granule * EBBI_HEADER);
}

// The header of p's granule; p is in a chunk.
EBBI_INLINE struct ebbi_span *ebbi_span_around(const void *p)
{
    uintptr_t chunk = (uintptr_t)p & ~(EBBI_CHUNK - 1);
    uintptr_t index = ((uintptr_t)p & (EBBI_CHUNK - 1)) >> EBBI_GRANULE_SHIFT;
    return ebbi_span_at(chunk, index);
}

// The same; for the inside of a slab, the slab's header.
EBBI_INLINE struct ebbi_span *ebbi_span_of(const void *p)
{
    struct ebbi_span *span = ebbi_span_around(p);
    if (span->state == EBBI_SPAN_INSIDE) {
        span = (struct ebbi_span *)((uintptr_t)span - (size_t)span->back * EBBI_HEADER);
    }
    return span;
}

// The span is one of a large object.
EBBI_INLINE struct ebbi_large *ebbi_large_in(struct ebbi_span *span)
{
    return (struct ebbi_large *)span;
}

EBBI_INLINE struct ebbi_large *ebbi_large_of(const void *p) // that starts at p; NULL when none does
{
    if (ebbi_tag_of(p) != EBBI_TAG_LARGE) {
        return NULL;
    }
    struct ebbi_large *large = ebbi_large_in(ebbi_span_of(p));
    return ((uintptr_t)p - large->shift) % EBBI_GRANULE == 0 ? large : NULL;
}

EBBI_INLINE bool ebbi_large_is_guarded(const void *p)
{
    const struct ebbi_large *large = ebbi_large_of(p);
    return large != NULL && large->guard != 0;
}

// Bytes that the program may use: whole pages, but of a guarded one.
EBBI_INLINE size_t ebbi_large_room(const struct ebbi_large *large)
{
    return large->guard != 0 ? large->bytes : ebbi_align_up(large->bytes, ebbi_os_page_size());
}

EBBI_INLINE size_t ebbi_span_index(const struct ebbi_span *span)
{
    return ((uintptr_t)span & (EBBI_CHUNK - 1)) / EBBI_HEADER;
}

EBBI_INLINE void *ebbi_span_start(const struct ebbi_span *span)
{
    uintptr_t chunk = (uintptr_t)span & ~(EBBI_CHUNK - 1);
    return (void *)(chunk + (ebbi_span_index(span) << EBBI_GRANULE_SHIFT));
}

// EBBI_BITMAP_ROOM bytes for the layer above, one such room a granule.
EBBI_INLINE void *ebbi_span_bitmap_room(const struct ebbi_span *span)
{
    uintptr_t chunk = (uintptr_t)span & ~(EBBI_CHUNK - 1);
    size_t granules = ((const struct ebbi_chunk *)chunk)->granules;
    return (void *)(chunk + granules * EBBI_HEADER + ebbi_span_index(span) * EBBI_BITMAP_ROOM);
}

#endif
