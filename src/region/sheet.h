// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: sheets, the spans that a region's blocks lie in, one behind the other in the order in
// which they were asked for. Nothing is written into or read from a block.
//
// Three bitmaps for each granule, one bit a unit of 16 bytes, in its bitmap room:
//
//     start   a block begins here; kept when it is freed, so that a block ends where the next begins
//     gone    the block that begins here was freed by the sheet's owner
//     remote  ... by another thread (atomic)
//
// A cursor is where the next block goes: [next, limit) within one granule, free of blocks.
//
// P1  the bit of `start` at a cursor's `next` is set, so to allocate is to set the one behind the block.
// P2  a sheet that is not sealed has one cursor. A seal leaves a marker where the next block would have
//     begun, a start that is gone; the last unit of a sheet is one always.
// P3  live + shared is the number of blocks in use that were allocated before the last seal, less those
//     freed since that were allocated after. `live` is the owner's, or under the region's lock where
//     there is none; `shared` is everybody's. In an orphan all of it is in `shared`, and whoever takes
//     it to 0 gives the sheet back. Before, it is below or at 0 and is never taken to 0 from above.
//     A free sets its bit first, and lowers its count then: there are never fewer counted than in use.
// P4  the owner of a sheet is the thread whose heap *owner points to. It frees without atomic
//     operations, marked as busy meanwhile: who takes the ownership away waits for that
//     (ebbi_sheet_owner_revoke, closing.c).
// P5  `starts` is the number of bits of `start`, markers included, that lie outside of the open cursor's
//     hole and before the last unit. A hole has no bit behind its cursor.
#ifndef EBB_REGION_SHEET_H
#define EBB_REGION_SHEET_H

#include "arena/arena.h"
#include "ebbtide/detail/region.h"
#include "region/label.h"

#define EBBI_SHEET_MOST 16u                             // granules
#define EBBI_SHEET_BLOCK_MOST ((size_t)128 << 10)       // larger blocks have spans of their own
#define EBBI_HOLE_LEAST ((size_t)4096)                  // bytes; smaller ones are not looked for
#define EBBI_SHEET_PAGES 256u                           // looked at in units of 1/16 granule
#define EBBI_UNIT_WORDS (EBBI_GRANULE / EBBI_UNIT / 64) // of a bitmap of one granule

struct ebbi_sheet {
    struct ebbi_span head;
    const void **owner;        // atomic
    struct ebb_region *region; // NULL: an orphan; atomic
    struct ebbi_label *label;
    const struct ebbi_cursor *cursor;   // NULL: sealed; atomic
    struct ebbi_sheet *next, *previous; // under the region's lock; of orphans, under theirs
    uintptr_t maps; // + address / 65536 * EBBI_BITMAP_ROOM: the bitmaps of that granule
    // Line 1.
    int64_t live; // P3; atomic: read by others
    union {
        int64_t looked; // live + shared when last looked at, for a hole or for pages
        uint64_t stamp; // of a released region's, that waits for its grace period
    };
    uint64_t looked_ms; // an orphan: when
    uint32_t starts;    // P5
    uint32_t since_ms;  // when it was made
    uint32_t retired;   // blocks in use that a call will free; atomic: the sheet stays until then
    uint64_t orphan_ms; // since when it is one
    unsigned char unused[16];
    // Line 2.
    int64_t shared;                         // atomic, P3
    uint64_t purged[EBBI_SHEET_PAGES / 64]; // of an orphan: pages given back
    unsigned char rest[88];
};
_Static_assert(sizeof(struct ebbi_sheet) == EBBI_HEADER, "a sheet is a granule's header");
_Static_assert(offsetof(struct ebbi_sheet, shared) == 128, "apart from the owner's");

extern EBBI_HIDDEN const void *ebbi_sheet_owner_nobody; // NULL, for ever

// The span is one of a sheet, or of one in quarantine.
EBBI_INLINE struct ebbi_sheet *ebbi_sheet_in(struct ebbi_span *span)
{
    return (struct ebbi_sheet *)span;
}
EBBI_INLINE struct ebbi_sheet *ebbi_sheet_of(const void *p)
{
    return ebbi_sheet_in(ebbi_span_of(p));
}
EBBI_INLINE uintptr_t ebbi_sheet_start(const struct ebbi_sheet *sheet)
{
    return (uintptr_t)ebbi_span_start(&sheet->head);
}
EBBI_INLINE size_t ebbi_sheet_bytes(const struct ebbi_sheet *sheet)
{
    return (size_t)sheet->head.granules << EBBI_GRANULE_SHIFT;
}

// The bitmaps of p's granule: start, gone, remote, EBBI_UNIT_WORDS each.
EBBI_INLINE uint64_t *ebbi_sheet_room(uintptr_t p)
{
    uintptr_t chunk = p & ~(EBBI_CHUNK - 1);
    size_t index = (p & (EBBI_CHUNK - 1)) >> EBBI_GRANULE_SHIFT;
    return (uint64_t *)ebbi_span_bitmap_room(ebbi_span_at(chunk, index));
}

// A sheet of at least `granules` with a cursor over it, tagged. NULL: memory refused.
struct ebbi_sheet *ebbi_sheet_create(size_t granules, const void **owner, struct ebb_region *region,
                                     struct ebbi_label *label);
// Gives it back, whatever is in it.
void ebbi_sheet_destroy(struct ebbi_sheet *sheet);
// The two halves of that: not tagged and counted any more; given back.
void ebbi_sheet_withdraw(struct ebbi_sheet *sheet);
void ebbi_sheet_discard(struct ebbi_sheet *sheet);
// As new, with the cursor at its start. It is sealed; nothing is left in it, or nobody wants it.
void ebbi_sheet_restart(struct ebbi_sheet *sheet, struct ebbi_cursor *cursor);

// The same for the sheet that the cursor is open in: little work if nothing has been freed there.
void ebbi_cursor_rewind(struct ebbi_cursor *cursor);

// Where a block of `size` bytes, a multiple of EBBI_UNIT, goes that the cursor's granule has no room
// for: on in the next granule of the same hole. 0: the hole ends before.
uintptr_t ebbi_cursor_cross(struct ebbi_cursor *cursor, size_t size);
// Moves next up to a multiple of align; the gap is nobody's. False: no room for that and `bytes`.
bool ebbi_cursor_align(struct ebbi_cursor *cursor, size_t align, size_t bytes);
// No more blocks here for now.
void ebbi_cursor_seal(struct ebbi_cursor *cursor);
// Whether its sheet would hold no block once it is sealed.
bool ebbi_cursor_is_drained(const struct ebbi_cursor *cursor);
// The same for a sheet that will be destroyed or restarted: it is not counted any more, and stays
// until then.
void ebbi_cursor_forget(struct ebbi_cursor *cursor);
// The newest block ends at p now, which lies within the cursor's hole.
void ebbi_cursor_move(struct ebbi_cursor *cursor, uintptr_t p);
// Sets the cursor over a hole of at least `bytes` in a sealed sheet. False: none.
bool ebbi_cursor_find(struct ebbi_cursor *cursor, struct ebbi_sheet *sheet, size_t bytes);

EBBI_INLINE int64_t ebbi_sheet_live(const struct ebbi_sheet *sheet)
{
    // acquire[sheet-empty <- sheet-free]: others are done with their blocks
    int64_t live = ebbi_load_acquire(&sheet->live);
    return live + ebbi_load_acquire(&sheet->shared); // acquire[sheet-empty <- sheet-free]: as above
}

// Any thread; abort on what is no block in use. True: free spans have come up, as its sheet has ended with it.
bool ebbi_sheet_free(void *p);
size_t ebbi_sheet_usable(const void *p);
// Whether a block in use begins at p.
bool ebbi_sheet_has(const void *p);
// The block, in use or free, that p lies in.
uintptr_t ebbi_sheet_block(const struct ebbi_sheet *sheet, uintptr_t p, size_t *bytes);
// The region goes; the blocks that are left stay. The sheet is sealed and in no list.
void ebbi_sheet_orphan(struct ebbi_sheet *sheet);
void ebbi_orphan_end(struct ebbi_sheet *sheet); // by whoever took `shared` to 0

// Nobody owns it any more, and nobody is in the middle of a free that began when somebody did.
// False: nobody owns it, but the kernel has no membarrier: see closing.c.
bool ebbi_sheet_owner_revoke(const void **owner);
bool ebbi_sheet_owner_is_busy(const void *who); // in the middle of a free as an owner
extern EBBI_HIDDEN bool
    ebbi_sheet_owner_refused; // once a revoke was false: nobody is to own anything; atomic

// Gives wholly free pages of orphans back that are older than delay_ms, one caller at a time.
// *waiting: some are too young.
void ebbi_orphans_purge(uint64_t now_ms, uint64_t delay_ms, bool *waiting);
void ebbi_orphans_lock(void); // fork()
void ebbi_orphans_unlock(void);
void ebbi_orphans_keep_only(void); // in its child, which has the calling thread alone

// The blocks in use, walked bit by bit: exact when nobody allocates or frees meanwhile.
void ebbi_sheet_each(const struct ebbi_sheet *sheet,
                     void (*visit)(uintptr_t start, size_t bytes, void *context), void *context);
// Whether any block in use lies in [from, to).
bool ebbi_sheet_uses(const struct ebbi_sheet *sheet, uintptr_t from, uintptr_t to);

// Ends the process unless P1 to P3 and P5 hold, with a message that names the one, or the
// sheet has been forgotten. By who may allocate in it. O(units).
void ebbi_sheet_audit(const struct ebbi_sheet *sheet);
#define EBBI_AUDIT(sheet) (EBBI_HAVE_ASSERT ? ebbi_sheet_audit(sheet) : (void)0)

#endif
