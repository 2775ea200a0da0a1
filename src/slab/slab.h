// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: a run of granules that holds blocks of one class, and the two bitmaps that say which
// are free. Nothing is ever written into or read from a block.
//
// local:  free, known to the owner. Guarded by the owner's lock.
// remote: freed by other threads, not yet taken in. Set by anybody (fetch_or), taken by the owner.
//
// P1  a bit is set in at most one of local and remote; block b is in use, or in some magazine, tray or
//     outbox, iff its bit is in neither.
// P2  free_count is the number of bits set in local.
// P3  bit w of `summary` says that remote word w holds bits. Whoever makes a word non-zero sets its
//     summary bit next, and whoever makes the summary non-zero puts the slab on the owner's pending
//     list next. The owner takes only words that the summary names, of slabs on that list.
//     So whoever still has a step to do has a block in the slab that the owner has not seen come
//     back, and the slab cannot die under it; whoever has no step left touches nothing more.
// P4  a page wholly covered by free blocks and without its bit in ebbi_slab_dirty_pages holds nothing (purged or never
//     touched).
// P5  no local bit lies in a word below `first_word`.
// P6  dirty_blocks <= free_count, and pinned_bytes are no more than the others of these have; nor are early_blocks.
// P7  the tags of its granules are one bin of its class, and say where its first block is; the headers behind
//     the first lead to it.
#ifndef EBB_SLAB_SLAB_H
#define EBB_SLAB_SLAB_H

#include "arena/arena.h"
#include "slab/classes.h"

#define EBBI_INLINE_WORDS 8
#define EBBI_ROOM_WORDS (EBBI_BITMAP_ROOM / sizeof(uint64_t) / 3) // of each of three bitmaps
#define EBBI_BUCKETS 4 // of part-full slabs, by share of free blocks
#define EBBI_NO_BUCKET EBBI_BUCKETS

struct ebbi_owner;

struct ebbi_slab {
    // Line 0: what a thread reads that frees a block of another's slab; seldom written.
    struct ebbi_span head;
    struct ebbi_owner *owner; // this and the next four: fixed while the slab lives
    uintptr_t first_block;
    uint64_t *local; // remote follows it, at ebbi_slab_remote
    uint8_t class_number;
    uint8_t words;                     // of each bitmap
    uint8_t bucket;                    // under the owner's lock: its list that this is in
    bool purge_queued;                 // under the owner's lock
    struct ebbi_slab *next, *previous; // under the owner's lock: in the bucket
    struct ebbi_slab *pending_next;    // by whoever made the summary non-zero
    // Lines 1 and 2.
    uint64_t local_words[EBBI_INLINE_WORDS];  // under the owner's lock
    uint64_t remote_words[EBBI_INLINE_WORDS]; // atomic, any thread
    // Line 3: the owner's, under its lock, but for the summary.
    uint64_t summary; // atomic, P3
    struct ebbi_slab *purge_next, *purge_previous;
    uint64_t dirty_word; // one bit a page, for a slab of one granule
    uint32_t touched;    // when blocks last came or went, ms
    uint16_t free_count;
    uint16_t first_word;
    uint16_t
        dirty_blocks; // free blocks that may hold pages: neither clean when it began nor purged since
    uint16_t moves_at;     // with this many free blocks it belongs elsewhere (heap/shelf.c)
    bool has_stranded;     // see ebbi_slab_strand
    bool purging;          // in no bucket: its pages are being returned (heap/purge_queue.c)
    uint32_t since_ms;     // when it was made
    uint32_t pinned_bytes; // at most: of free blocks, on pages that the last purge had to leave
    uint32_t early_ms;     // when it was last purged before its time,
    uint16_t early_blocks; // and how many blocks of then are still free and clean
    uint8_t
        streak; // slabs of the class made before it, all of them full by then; begins again in the end
    uint8_t missing; // of the slabs before it, of long blocks, on average: see ebbi_missing_after
};
_Static_assert(sizeof(struct ebbi_slab) == EBBI_HEADER, "a slab is exactly a granule's header");
_Static_assert(offsetof(struct ebbi_slab, local_words) == 64, "each bitmap has its own line");

// The dirty pages' bits. A larger slab keeps them in the header of its second granule, which has no
// other use.
EBBI_INLINE uint64_t *ebbi_slab_dirty_pages(struct ebbi_slab *slab)
{
    return ebbi_classes[slab->class_number].granules == 1 ? &slab->dirty_word : slab[1].local_words;
}

EBBI_INLINE uint64_t *ebbi_slab_remote(const struct ebbi_slab *slab)
{
    return slab->local + (slab->words > EBBI_INLINE_WORDS ? EBBI_ROOM_WORDS : EBBI_INLINE_WORDS);
}

EBBI_INLINE const struct ebbi_class *ebbi_slab_class(const struct ebbi_slab *slab)
{
    return &ebbi_classes[slab->class_number];
}

// False: whatever still leads to it is of a block that was free when the slab ended.
EBBI_INLINE bool ebbi_slab_lives(const struct ebbi_slab *slab)
{
    return slab->head.state == EBBI_SPAN_SLAB;
}

// The span is one of a slab, or was.
EBBI_INLINE struct ebbi_slab *ebbi_slab_in(struct ebbi_span *span)
{
    return (struct ebbi_slab *)span;
}

// Its lines come in, most of them to be written, while something else is done. A hint: any header.
EBBI_INLINE void ebbi_slab_fetch(const struct ebbi_slab *slab)
{
    const char *lines = (const char *)slab;
    __builtin_prefetch(lines);
    for (size_t at = EBBI_CACHE_LINE; at < EBBI_HEADER; at += EBBI_CACHE_LINE) {
        __builtin_prefetch(lines + at, 1);
    }
}

// p lies in a granule whose tag is a bin.
EBBI_INLINE struct ebbi_slab *ebbi_slab_of(const void *p) { return ebbi_slab_in(ebbi_span_of(p)); }

// Less than 2^EBBI_PLACE_BITS if a block starts at p, which lies in a granule with this tag (ebbi_tag_load) of a class
// with this ebbi_place_factor.
EBBI_INLINE uint64_t ebbi_slab_place(const void *p, int64_t tag, uint64_t factor)
{
    int64_t offset = (int64_t)((uintptr_t)p % EBBI_GRANULE) + ebbi_tag_ahead(tag);
    return (uint64_t)offset * factor;
}

EBBI_INLINE bool ebbi_slab_has_place(const void *p, int64_t tag)
{
    uint64_t factor = ebbi_place_factor[ebbi_tag_bin(tag)];
    return ebbi_slab_place(p, tag, factor) >> EBBI_PLACE_BITS == 0;
}

// The number of the block that starts at p; aborts when none does ("interior pointer"), or when the slab
// is gone: then each of its blocks was free.
EBBI_INLINE unsigned ebbi_slab_block(const struct ebbi_slab *slab, const void *p);

// A slab of the class for `owner`, every block free, tagged with `bin`. NULL: memory refused.
struct ebbi_slab *ebbi_slab_create(unsigned class_number, unsigned bin, struct ebbi_owner *owner,
                                   enum ebbi_fill fill);
// Every block is free and the slab is not pending.
void ebbi_slab_destroy(struct ebbi_slab *slab);

// Takes up to `wanted` free blocks, lowest address first, into slots[wanted - 1] downward, so that
// the lowest address is the last. Returns how many.
size_t ebbi_slab_take(struct ebbi_slab *slab, void **slots, size_t wanted);
void ebbi_slab_take_one(struct ebbi_slab *slab, unsigned block); // this one, which is free

// Frees the blocks of `mask` in remote word `word` from any thread. True when the caller must put
// the slab on its owner's pending list; otherwise the slab must not be touched any more.
bool ebbi_slab_give_remote(struct ebbi_slab *slab, unsigned word, uint64_t mask);
// Moves remote bits to local; aborts on a block that was free already. Returns how many. The slab
// is off the pending list and its pending_next has been read.
size_t ebbi_slab_collect(struct ebbi_slab *slab);

// A block that is to wait for a grace period and has no other place: a bit in a third bitmap. The
// caller has one lock for both calls. `send` is called with the words of bits of a slab; the blocks
// are not stranded any more.
void ebbi_slab_strand(struct ebbi_slab *slab, void *p);
void ebbi_slab_take_stranded(struct ebbi_slab *slab,
                             void (*send)(struct ebbi_slab *slab, unsigned word, uint64_t mask));

// Wholly free, dirty pages, to be returned to the OS. `stride` is the least that is given back at
// once (a power of two, at least the page size). A slab is planned and, when that has been carried
// out, told so under the lock; in between no block of it may be handed out.
#define EBBI_SLAB_RUNS (EBBI_INLINE_WORDS * 64 / 2)
struct ebbi_slab_run {
    uint16_t from, to; // pages of the slab
    bool dirty, done;
};
struct ebbi_slab_plan {
    uintptr_t start;
    unsigned count;
    bool whole; // clean pages are given back with the dirty ones
    struct ebbi_slab_run runs[EBBI_SLAB_RUNS];
};
void ebbi_slab_plan(struct ebbi_slab *slab, size_t stride, struct ebbi_slab_plan *plan);
size_t ebbi_slab_carry_out(struct ebbi_slab_plan *plan); // bytes; no lock needed
// False: the OS has refused to take some of it.
bool ebbi_slab_carried_out(struct ebbi_slab *slab, const struct ebbi_slab_plan *plan);
// Bytes of free memory that a block in use keeps from going back: on each page that it lies on, its share by bytes of
// all that lie there. Under the owner's lock; what is in a magazine is in use.
size_t ebbi_slab_kept_by(const struct ebbi_slab *slab, const void *block);
// Behind a purge: bytes of free blocks that are not dirty, on pages that blocks in use lie on, too.
size_t ebbi_slab_pinned(struct ebbi_slab *slab);

// Ends the process unless P1 to P7 hold, with a message that names the one. Under the owner's lock. Nobody
// gives blocks back meanwhile, and all pages are looked at, if `whole`; else P4, and of P1 and P3 what
// needs that, are left out. O(words + granules).
void ebbi_slab_audit(const struct ebbi_slab *slab, bool whole);
void ebbi_slab_audit_sometimes(const struct ebbi_slab *slab);
#define EBBI_SLAB_AUDIT(slab) (EBBI_HAVE_ASSERT ? ebbi_slab_audit_sometimes(slab) : (void)0)
// What its free blocks are.
struct ebbi_slab_free {
    size_t dirty, early; // blocks
    size_t pinned;       // bytes
};
EBBI_INLINE struct ebbi_slab_free ebbi_slab_free_now(const struct ebbi_slab *slab)
{
    return (struct ebbi_slab_free){slab->dirty_blocks, slab->early_blocks, slab->pinned_bytes};
}
// Whether every block that lies in [from, to), or partly, is free and known to the owner.
bool ebbi_slab_covers_free(const struct ebbi_slab *slab, uintptr_t from, uintptr_t to);

EBBI_NORETURN void ebbi_slab_report_double_free(const void *p);
// The first of the blocks that these bits of a word stand for.
EBBI_NORETURN void ebbi_slab_report_free_bits(const struct ebbi_slab *slab, unsigned word,
                                              uint64_t twice);
EBBI_NORETURN void ebbi_slab_report_double_retire(const void *p);
// Returns where the process goes on, as ebbi_misuse does; the next one, of a free, never.
void ebbi_slab_misuse_no_block(const struct ebbi_slab *slab, const void *p, const char *what);
EBBI_NORETURN void ebbi_slab_report_no_block(const struct ebbi_slab *slab, const void *p);
// The same as the first: of a block whose slab or pages have ended, and made way for something else.
void ebbi_slab_misuse_gone(const void *p);
// What the owner's pending list says of this slab can only come from a block that was freed twice.
EBBI_NORETURN void ebbi_slab_report_late_free(const struct ebbi_slab *slab);

// How a class divides its slabs.
struct ebbi_division {
    uint64_t magic; // as in ebbi_classes
    uint64_t size, blocks;
    uint64_t near; // bits that are the same in addresses within 16 to 32 blocks of each other
    unsigned class_number;
};
EBBI_INLINE struct ebbi_division ebbi_division_of(unsigned class_number)
{
    const struct ebbi_class *c = &ebbi_classes[class_number];
    // As a slab ends under a block that two threads free, its class is none, of size 0.
    uint64_t near = ~(uint64_t)0 << (EBBI_HIGHEST_BIT((uint64_t)c->size | 1) + 5);
    return (struct ebbi_division){c->magic, c->size, c->blocks, near, class_number};
}

// The number of the block that lies so far behind the first, in a granule of the slab; below it, or in no block: one
// that the class has not.
EBBI_INLINE uint64_t ebbi_division_at(const struct ebbi_division *by, uint64_t offset)
{
    return (offset & 0xFFFFFFFFu) * by->magic >> 40; // huge when below
}

EBBI_INLINE uint64_t ebbi_slab_block_around(const struct ebbi_slab *slab, const void *p)
{
    struct ebbi_division by = ebbi_division_of(slab->class_number);
    return ebbi_division_at(&by, (uintptr_t)p - slab->first_block);
}

// As ebbi_slab_block, of a slab that lives.
EBBI_INLINE unsigned ebbi_slab_block_by(const struct ebbi_slab *slab,
                                        const struct ebbi_division *by, const void *p)
{
    uint64_t offset = (uintptr_t)p - slab->first_block;
    uint64_t block = ebbi_division_at(by, offset);
    if (EBBI_UNLIKELY(block >= by->blocks || block * by->size != offset)) {
        ebbi_slab_report_no_block(slab, p);
    }
    return (unsigned)block;
}

EBBI_INLINE unsigned ebbi_slab_block(const struct ebbi_slab *slab, const void *p)
{
    struct ebbi_division by = ebbi_division_of(slab->class_number);
    if (EBBI_UNLIKELY(!ebbi_slab_lives(slab))) {
        ebbi_slab_report_no_block(slab, p);
    }
    return ebbi_slab_block_by(slab, &by, p);
}

// As ebbi_slab_of; aborts where the slab is gone.
EBBI_INLINE struct ebbi_slab *ebbi_slab_alive_of(const void *p)
{
    struct ebbi_span *span = ebbi_span_around(p);
    if (span->state != EBBI_SPAN_SLAB) {
        span = ebbi_span_of(p);
        if (EBBI_UNLIKELY(!ebbi_slab_lives(ebbi_slab_in(span)))) {
            ebbi_slab_report_no_block(ebbi_slab_in(span), p);
        }
    }
    return ebbi_slab_in(span);
}

// Whether the owner knows it as free. Under the owner's lock.
EBBI_INLINE bool ebbi_slab_is_free(const struct ebbi_slab *slab, unsigned block)
{
    return (slab->local[block / 64] >> (block % 64) & 1) != 0;
}

// Blocks of a slab whose bits lie in one word.
struct ebbi_word_run {
    uint64_t mask;
    unsigned word;
    unsigned count;
};

// Whether somebody has given it, and the owner has not seen it yet. A block in use never is. Any thread.
EBBI_INLINE bool ebbi_slab_is_given(const struct ebbi_slab *slab, unsigned block)
{
    // relaxed: whoever has the block has it from behind the exchange that took the bit
    return (ebbi_load_relaxed(&ebbi_slab_remote(slab)[block / 64]) >> (block % 64) & 1) != 0;
}

// Whether two blocks lie so near to each other that they may well be of one word.
EBBI_INLINE bool ebbi_slab_is_near(const struct ebbi_division *by, const void *p, const void *other)
{
    return (((uintptr_t)p ^ (uintptr_t)other) & by->near) == 0;
}

// The first of `count` (at least 2) blocks, which is the slab's, and those behind it that go with it. A run ends
// at what cannot be, too: as the first of the next one it is reported.
struct ebbi_word_run ebbi_slab_word_run(const struct ebbi_slab *slab, void *const *blocks,
                                        size_t count);
EBBI_INLINE struct ebbi_word_run ebbi_slab_single_run(const struct ebbi_slab *slab,
                                                      const struct ebbi_division *by, const void *p)
{
    unsigned block = ebbi_slab_block_by(slab, by, p);
    return (struct ebbi_word_run){(uint64_t)1 << (block % 64), block / 64, 1};
}

// Gives blocks back to their own slab, under the owner's lock: the bits of each run, and then the counts of all of them.
EBBI_INLINE void ebbi_slab_give_bits(struct ebbi_slab *slab, struct ebbi_word_run run)
{
    uint64_t before = slab->local[run.word];
    if (EBBI_UNLIKELY((before & run.mask) != 0)) {
        ebbi_slab_report_free_bits(slab, run.word, before & run.mask);
    }
    slab->local[run.word] = before | run.mask;
}

// first_word: the lowest of theirs.
EBBI_INLINE void ebbi_slab_count_given(struct ebbi_slab *slab, unsigned count, unsigned first_word)
{
    EBBI_ASSERT(slab->free_count + count <= ebbi_slab_class(slab)->blocks);
    slab->free_count = (uint16_t)(slab->free_count + count);
    slab->dirty_blocks = (uint16_t)(slab->dirty_blocks + count);
    if (first_word < slab->first_word) {
        slab->first_word = (uint16_t)first_word;
    }
}

#endif
