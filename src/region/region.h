// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: groups of blocks that leave together. A region is a handle with a list of sheets; its
// owner bumps in one of them without a lock, everybody else in another one under the region's lock.
//
//     free --open--> open --release--> free          (its first sheet may stay with the handle)
//                      \--close--> closed --last thread leaves--> free, sheets become orphans
//
// P1  a handle's memory stays a handle for ever, so a stale one can be told while it is not open again.
// P2  `owner`: set by open, enter and detach from NULL or to NULL, by the thread itself; taken away from
//     another thread by close alone (ebbi_sheet_owner_revoke).
// P3  a child is a user of its parent. Children are in their parent's list, under the parent's lock, from their opening to their end.
//     A lock of one region is never taken under that of another, but by fork().
// P4  a region that is closed and has no users has ended for the program. It still is one, in the list of
//     closing.c, while nobody can tell whether its former owner is in the middle of a free.
#ifndef EBB_REGION_REGION_H
#define EBB_REGION_REGION_H

#include "region/sheet.h"

enum ebbi_region_state { EBBI_REGION_FREE, EBBI_REGION_OPEN, EBBI_REGION_CLOSED };

struct ebbi_cleanup { // a block of the region
    struct ebbi_cleanup *next;
    void (*call)(void *argument);
    void *argument;
};

struct ebb_region {
    struct ebbi_region_front front; // P2
    struct ebbi_lock lock
        __attribute__((aligned(EBBI_CACHE_LINE))); // rank: region; guards what follows
    uint8_t state;                                 // atomic
    uint32_t
        users; // enters of it that have not been left, children, and a bit once it is closed; atomic
    struct ebbi_cursor common;
    struct ebbi_sheet *sheets; // youngest first
    struct ebbi_sheet *look;   // where the next search for holes begins
    void *larges;              // through struct ebbi_note
    struct ebbi_cleanup *cleanups;
    struct ebbi_label *label;
    struct ebb_region *parent, *children, *next, *previous; // P3
    uint64_t id;
    uint64_t opened_ms; // P4: when it lost its owner
    size_t held_bytes, peak_bytes;
    union {
        size_t soft_limit;
        struct ebb_region *closing_next; // P4
    };
    union {
        size_t hard_limit;
        const void *former_owner; // P4
    };
    size_t sheet_count, large_count;
    size_t late, refused, pressed;
    bool closes;     // and is never released
    uint8_t home;    // the shelf that the handle belongs to; written once
    void *gives_way; // to this domain: blocks come from its slabs; NULL: it does not
    struct ebb_region *pool_next, *pool_previous; // under the shelf's lock, see pool.c
};

// What a release leaves to be given back.
struct ebbi_remains {
    struct ebbi_sheet *sheets; // through `next`
    void *larges;              // through struct ebbi_note
    bool gave;                 // a sheet has been given back already
};

// NULL: memory refused. The calling thread is the owner. The parent is open.
struct ebb_region *ebbi_region_open(struct ebb_region *parent, const char *label, size_t soft_limit,
                                    size_t hard_limit);
// Aborts unless the handle is of a region that has not ended.
void ebbi_region_check(const struct ebb_region *region, const char *what);
EBBI_INLINE bool ebbi_region_is_open(const struct ebb_region *region)
{
    // relaxed: whoever closes it beside a use of it decides nothing by it
    return ebbi_load_relaxed(&region->state) == EBBI_REGION_OPEN;
}
// Of those that are not closed; `open_only` false: of all.
struct ebb_region *ebbi_region_youngest_child(struct ebb_region *region, bool open_only);

// The end, when no child is left and the cleanups have run. `keep`: memory of it may be used again at
// once. For reset, the region stays open.
// Before it, in debug mode: every block that lies in its sheets has its bits.
void ebbi_region_seal(struct ebb_region *region);
struct ebbi_remains ebbi_region_empty(struct ebb_region *region, bool keep, bool stays_open);
// Closed; over now if it is current nowhere.
void ebbi_region_close(struct ebb_region *region);

// Current in one thread more, or less. Enter makes the calling thread the owner where there is none;
// the last to leave a closed region ends it.
void ebbi_region_enter(struct ebb_region *region);
// `stays`: it is current in the thread still, by an enter before.
void ebbi_region_leave(struct ebb_region *region, bool stays);
void ebbi_region_detach(struct ebb_region *region);

// ---- allocating ----------------------------------------------------------------------------------
enum ebbi_region_refusal { EBBI_REGION_GIVEN, EBBI_REGION_NO_MEMORY, EBBI_REGION_IS_CLOSED };
// Up to EBBI_SHEET_BLOCK_MOST bytes, align a power of two up to a granule. NULL: *refusal says why.
void *ebbi_region_take(struct ebb_region *region, size_t bytes, size_t align,
                       enum ebbi_region_refusal *refusal);
// The newest block, of the calling thread's cursor, in place. False: it must move.
bool ebbi_region_extend(struct ebb_region *region, void *p, size_t bytes);
// A large object joins the region, which must be open and have room within its limit.
enum ebbi_region_refusal ebbi_region_adopt(struct ebb_region *region, void *p, size_t bytes,
                                           struct ebbi_note *note);
// A large object that is being freed leaves its region.
void ebbi_region_forget(struct ebbi_note *note);

EBBI_INLINE bool ebbi_region_is_easy(const struct ebb_region *region, size_t bytes)
{
    return ebbi_front_is_easy(&region->front, bytes);
}

// ---- all of them ---------------------------------------------------------------------------------
// Drained sheets of open regions, and sheets of handles that nobody has opened for delay_ms.
void ebbi_regions_purge(uint64_t now_ms, uint64_t delay_ms, bool *waiting);
// The thread whose heap this is ends.
void ebbi_regions_disown(const void *owner);
void ebbi_regions_lock(void); // fork()
void ebbi_regions_unlock(void);
// In the child of a fork: of all threads, the one whose heap this is goes on, which has entered these.
void ebbi_regions_keep_only(const void *owner, struct ebb_region **entered, size_t count);
void ebbi_region_recount(struct ebb_region *region);       // its users: children alone
bool ebbi_region_is_over(const struct ebb_region *region); // P4
void ebbi_region_finish(
    struct ebb_region *region); // it is over, and nobody is in the middle of a free

// closing.c: regions that are over. Under the region's lock: it joins them.
void ebbi_closing_put(struct ebb_region *region, const void *former_owner);
// Ends the one that waits longest, if that may be. O(1).
bool ebbi_closing_finish(uint64_t now_ms);
bool ebbi_closings_any(void); // a hint
// Until this one, which was over, has ended.
void ebbi_closing_wait(const struct ebb_region *region);
void ebbi_closings_forget(void); // in the child of a fork: nobody else frees, so they can end

// Under the region's lock: drained sheets in which no cursor is go back.
void ebbi_region_shed(struct ebb_region *region);

// pool.c: handles
struct ebb_region *ebbi_handle_take(void); // free, perhaps with a sheet; NULL: memory refused
bool ebbi_handle_give(struct ebb_region *region); // true: its sheet found no room on the shelf
void ebbi_handle_cool(struct ebb_region *region); // gives back the sheet that it has

// ---- the debug mode, of debug/quarantine.h -----------------------------------------------------------

enum ebbi_quarantine_mode {
    EBBI_QUARANTINE_UNKNOWN, // before the first region
    EBBI_QUARANTINE_BEGINS,  // as off; regions that are opened beside it have an owner
    EBBI_QUARANTINE_OFF,
    EBBI_QUARANTINE_ON,
};

extern EBBI_HIDDEN uint8_t ebbi_quarantine_mode; // atomic

EBBI_INLINE bool ebbi_quarantine_is_on(void)
{
    // acquire[debug-read <- debug-on]: what begin has set up
    return ebbi_load_acquire(&ebbi_quarantine_mode) == EBBI_QUARANTINE_ON;
}

#endif
