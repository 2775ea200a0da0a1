// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: whether the program fills what it takes, by what it has done before (EBB_THP=auto).
//
// A huge page comes as a whole, and pays where all of it is touched. What the program touches of an object is seen
// where that has small pages, and, a unit at a time, where it has many huge ones. The last objects that show it are
// witnesses. They are looked at (mincore, at some spots of each) once a unit of objects has come after them, but for
// the newest, which the program may be filling; and when they are freed, or moved with their mapping.
// Huge pages are asked for while they are filled for the most part, on average. Then some go without, to be witnesses: one
// that is an EBBI_PROBE_PART of what was asked for since the last, and one while the others say nothing.
// It is a hint: another may lie there by now. What is untouched says nothing. Below a filter of system calls that was there
// before the process, as in many containers, nobody looks: that may be one which ends it for the call.
// (A slab of long blocks that is full tells of the next one of its class: heap/supply.c.)
#include <string.h>

#include "arena/internal.h"

#define WITNESSES 4
#define SPOTS 16
#define UNEVEN 7
#define ALL 127u       // parts of what there is
#define MANY (ALL / 3) // as much as an object of 128 KiB and a bit is rounded up by
#define FEW (ALL / 6)
#define MOST_PAGES 32 // at a spot
#define ONE_OF 8u

struct witness {
    const char *start; // NULL: none, or it has been heard
    size_t bytes;
    bool begun; // the first unit that begins in it is there, touched or not: it says nothing
    uint8_t of; // so many it is one of, in the average
};

static EBBI_SPARSE struct habit {
    struct witness witnesses[WITNESSES]; // the newest first
    uint8_t missing;                     // see ebbi_missing_after
    bool probes;                         // the next one that is shown stands for others
    uint8_t heard;                       // so many, 8 at most: the first ones are all that there is
    size_t until_look, since_probe;      // granules
} habits[EBBI_KINDS];                    // under the lock, as all that follow

// Of `pages` at each of SPOTS, which lie in `bytes` from `start` on. 0: none, or nobody knows.
static size_t count_there(const char *start, size_t bytes, size_t pages)
{
    unsigned char there[MOST_PAGES];
    size_t page = ebbi_os_page_size();
    size_t count = 0;
    size_t part = bytes / SPOTS, room = part - pages * page;
    for (size_t i = 0; i < SPOTS; i++) {
        size_t beside = room / SPOTS * (i * UNEVEN % SPOTS); // no rhythm that the program may have
        const char *at = start + ebbi_align_down(part * i + beside, page);
        if (!ebbi_os_resident(NULL, at, pages * page, there)) {
            return 0;
        }
        for (size_t k = 0; k < pages; k++) {
            count += there[k] & 1u;
        }
    }
    return count;
}

static unsigned see(const char *start, size_t bytes)
{
    if (!ebbi_os_may_look()) {
        return EBBI_MISSING_UNKNOWN;
    }
    size_t pages = ebbi_min(bytes / SPOTS / ebbi_os_page_size(), MOST_PAGES);
    size_t there = pages > 0 ? count_there(start, bytes, pages) : 0;
    return there > 0 ? (unsigned)(ALL - there * ALL / (pages * SPOTS)) : EBBI_MISSING_UNKNOWN;
}

unsigned ebbi_span_missing(const struct ebbi_span *span)
{
    return span->zeroed && ebbi_chunk_is_automatic()
               ? see(ebbi_span_start(span), (size_t)span->granules << EBBI_GRANULE_SHIFT)
               : EBBI_MISSING_UNKNOWN;
}

uint8_t ebbi_missing_after(uint8_t before, unsigned seen, unsigned of)
{
    if (seen == EBBI_MISSING_UNKNOWN) {
        return before;
    }
    unsigned average = ((before & ALL) * (of - 1) + seen + of / 2) / of;
    bool much = average > ((before & EBBI_MISSING_MUCH) != 0 ? FEW : MANY);
    return (uint8_t)(average | (much ? EBBI_MISSING_MUCH : 0));
}

// What it says is heard once.
static void hear(struct habit *habit, struct witness *witness)
{
    size_t units = (size_t)(2 * EBBI_UNIT_GRANULES) << EBBI_GRANULE_SHIFT;
    size_t skipped = witness->begun ? ebbi_min(units, witness->bytes) : 0;
    unsigned seen = see(witness->start + skipped, witness->bytes - skipped);
    if (seen != EBBI_MISSING_UNKNOWN) {
        unsigned of = (unsigned)ebbi_min(witness->of, habit->heard + 1u);
        habit->missing = ebbi_missing_after(habit->missing, seen, of);
        habit->heard = (uint8_t)ebbi_min(habit->heard + 1u, ONE_OF);
        witness->start = NULL;
    }
}

static void look(struct habit *habit)
{
    bool others = !habit->witnesses[0].begun && habit->since_probe > 0; // behind the newest
    for (int i = WITNESSES - 1; i >= (others ? 0 : 1); i--) {
        if (habit->witnesses[i].start != NULL) {
            hear(habit, &habit->witnesses[i]);
        }
    }
}

// Some have huge pages, and none has small ones that might tell: the one before has said nothing, or they are too short to be
// seen unit by unit.
static bool in_doubt(const struct habit *habit, size_t granules)
{
    bool some = habit->heard == 0 && granules < EBBI_LEAST_SHOWING && habit->since_probe > 0;
    for (int i = 0; i < WITNESSES; i++) {
        const struct witness *witness = &habit->witnesses[i];
        if (witness->start != NULL && !witness->begun) {
            return false;
        }
        some |= witness->start != NULL && i > 0;
    }
    return some;
}

bool ebbi_filled_likely(enum ebbi_kind kind, size_t granules)
{
    struct habit *habit = &habits[kind];
    ebbi_assert_held(&ebbi_arena_mutex);
    if (!ebbi_os_may_look()) {
        return (habit->missing & EBBI_MISSING_MUCH) == 0;
    }
    if (habit->until_look > granules) {
        habit->until_look -= granules;
    } else {
        habit->until_look = EBBI_UNIT_GRANULES;
        look(habit);
    }
    bool doubt = in_doubt(habit, granules);
    habit->since_probe += granules;
    habit->probes = doubt || habit->since_probe > EBBI_PROBE_PART * granules;
    return (habit->missing & EBBI_MISSING_MUCH) == 0 && !habit->probes;
}

// One with small pages that has said nothing stays the oldest until it does, however late it is touched.
static void push_down(struct habit *habit)
{
    const struct witness *oldest = &habit->witnesses[WITNESSES - 1];
    bool stays = oldest->start != NULL && !oldest->begun;
    size_t rest = stays ? WITNESSES - 2 : WITNESSES - 1;
    memmove(&habit->witnesses[1], &habit->witnesses[0], rest * sizeof(struct witness));
}

void ebbi_filled_show(enum ebbi_kind kind, const void *start, size_t granules, bool begun)
{
    struct habit *habit = &habits[kind];
    ebbi_assert_held(&ebbi_arena_mutex);
    push_down(habit);
    uint8_t of = (habit->probes && !begun) || kind == EBBI_KIND_HUGE ? 2 : ONE_OF;
    habit->witnesses[0] = (struct witness){start, granules << EBBI_GRANULE_SHIFT, begun, of};
    habit->since_probe = begun ? habit->since_probe : 0;
    habit->probes = false;
}

void ebbi_filled_gone(enum ebbi_kind kind, const void *start)
{
    struct habit *habit = &habits[kind];
    ebbi_assert_held(&ebbi_arena_mutex);
    for (int i = 0; i < WITNESSES; i++) {
        struct witness *witness = &habit->witnesses[i];
        if (witness->start == start) {
            hear(habit, witness);
            witness->start = NULL;
        }
    }
}
