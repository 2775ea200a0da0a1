// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: every block checked (EBB_CHECK=1). What the program gets lies inside a block of a class:
//
//     | header | canary | what was asked for | canary |
//              ^ 8 bytes, or up to align      ^ 16 bytes, or what the class has, up to 128 or so
//
// While the mode is on no free takes the fast path (ebbi_window_slow_frees), no bag is ever made for a retire, and the size
// tables of all heaps lead every malloc to the slow one. Without it no path is longer, but the slow ones by a look at a flag.
//
//     in use --retire--> retired --grace period--> freed
//     in use --free--> freed: filled, held back --oldest, too much is held--> free block, the header stays
//     any --written to, as is reported--> lost: nobody's from then on
//
// C1  a header names what was asked for, where in the block it lies, by whom and from where it was allocated and freed; it has
//     a sum, over its own address and a secret, too. The state alone is not in it, and changes by compare-and-swap:
//     of two threads that free, one is told so.
// C2  what is freed is filled to its end. Held and changed since, it is reported when it leaves or is looked at: by frees, as long as
//     none leaves, by passes, at the exit.
// C3  the held are held.h's.
// C4  of a block that nobody has each byte behind the header is 0, the fill or its canary, and the header is of what was freed, or 0;
//     what a free filled is the fill, but for pages that were returned. It is looked at when it is handed out for the first time, by passes in its slab, and at
//     the exit.
// Blocks of regions are not checked here (debug/quarantine.h); those that are large or have no bytes are guard.h's.
#ifndef EBB_DEBUG_CHECK_H
#define EBB_DEBUG_CHECK_H

#include "debug/site.h"
#include "ebbtide/detail/atomic.h"

// At the process's start, before there is a heap. most_held: bytes; families: are compared. No memory for its array: off, with
// a message.
void ebbi_check_begin(size_t most_held, bool families);

extern EBBI_HIDDEN bool ebbi_check_mode; // constant from the start of the process on
EBBI_INLINE bool ebbi_check_is_on(void) { return EBBI_UNLIKELY(ebbi_check_mode); }

// Whether one of so many bytes is to be guarded (guard.h), as long as there is room for that: empty ones, those that are too
// long for a class, and of those between that and EBBI_CHECKED_MOST some 2,000 a second.
#define EBBI_CHECKED_MOST ((size_t)16384)
bool ebbi_check_guards(size_t align, size_t bytes);

// What a block must hold for one of these bytes inside. align: a power of two. No overflow below PTRDIFF_MAX / 2 each.
size_t ebbi_check_room(size_t align, size_t bytes);
// block: of a class, aligned to `align`, or NULL, which it then gives. Returns what the program gets.
void *ebbi_check_make(void *block, size_t align, size_t bytes, ebbi_site site);

// Of a block that nobody else has or can take, that of a class: C4.
bool ebbi_check_is_vacant(const void *block);
// Of any block, while no other thread uses the heap: C4, or nobody has written beside it.
bool ebbi_check_is_sound(const void *block);
void ebbi_check_report_unsound(const void *block); // that it is none of the two
void ebbi_check_lose(void *block); // the same of what nobody else has, and will have
// For ebbi_check_make. False: it was written to, as is reported, and is nobody's from then on.
bool ebbi_check_claim(void *block);

// Of a block, and of what is said of one. NULL: they agree.
struct ebbi_shape {
    size_t bytes;
    size_t align;
    enum ebbi_family family;
};
void ebbi_shapes_begin(bool families);
const char *ebbi_check_differs(const struct ebbi_shape *made, const struct ebbi_shape *said);

// The following take any pointer into a granule of a class, and report where it is no checked block in use. Where the process goes
// on then (ebbi_misuse) they change nothing and return false, NULL or EBBI_NO_BLOCK. what: the call that it was given to.
#define EBBI_NO_BLOCK SIZE_MAX
size_t ebbi_check_bytes(const void *p, const char *what);
void ebbi_check_shrink(void *p, size_t bytes, ebbi_site site); // by realloc, where it lies
bool ebbi_check_retire(void *p);
void ebbi_check_keep(void *p); // it could not be retired: it is in use
// What the call that frees it says of it: its size or EBBI_UNSAID, its alignment or 0, its family.
// False: there is no header, as is reported.
bool ebbi_check_match(const void *p, size_t bytes, size_t align, ebbi_site site);
// site 0: a retired one, its grace period over. Returns what ebbi_check_release does. One that was written beside is nobody's
// afterwards.
void *ebbi_check_free(void *p, ebbi_site site);

// A block of a class that is held no longer and is to be given back, if more is held than may be; else NULL. To be called until
// it is NULL.
void *ebbi_check_release(void);
// Memory was refused: the same, whatever may be held.
void *ebbi_check_rest(void);
// Looks at all that is held. O(bytes held), the lock taken for some at a time.
void ebbi_check_look(void);

// Below `limit`, of 1 to 2^32 - 1. Not what is predicted from what the program sees of its blocks.
size_t ebbi_check_random(size_t limit);

void ebbi_check_draw_anew(void); // in the child of a fork
void ebbi_check_lock(void);      // fork()
void ebbi_check_unlock(void);

#endif
