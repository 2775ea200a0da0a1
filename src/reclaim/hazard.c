// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: hazard pointers (M. Michael, "Hazard pointers: safe memory reclamation for lock-free
// objects", 2004). One line each, many to a row, which a look goes through one after the other; rows
// stay for good, and one whose hazard pointers are all closed costs a look at its count. The lowest
// free place is opened, so that the open ones keep together.
//
// A reclaimer looks at them after the stamp of what it reclaims has passed, so behind the stamp's full
// fence, which came behind the unlinking. A reader sets the hazard, full fence, and loads the link
// again. Either the reclaimer sees the hazard or the reader sees that the link is gone. The counts of
// open and of used ones are raised before a hazard can be set, so the same holds for them.
#include "ebbtide/detail/hazard.h"
#include "reclaim/hazards.h"

#include "heap/blocks.h"

#ifndef EBBI_HAZARDS_A_ROW
#define EBBI_HAZARDS_A_ROW 63 // a block of 4 KiB
#endif

struct ebbi_hazards {
    EBBI_ATOMIC(struct ebbi_hazards *) next; // a younger one
    EBBI_ATOMIC(size_t) open;
    EBBI_ATOMIC(size_t) used;  // those from here on never were
    struct ebb_hazard *closed; // under the lock
    struct ebb_hazard all[EBBI_HAZARDS_A_ROW];
};

static EBBI_ATOMIC(size_t) open_count;
static EBBI_ATOMIC(struct ebbi_hazards *) hazard_rows; // oldest first; grows under the lock
static struct ebbi_lock hazard_lock = EBBI_LOCK(OWNER);

static struct ebb_hazard *take_unused(struct ebbi_hazards *row)
{
    size_t used = ebbi_load_relaxed(&row->used); // relaxed: under the lock
    if (used == EBBI_HAZARDS_A_ROW) {
        return NULL;
    }
    struct ebb_hazard *hazard = &row->all[used];
    ebbi_store_relaxed(&hazard->held, (void *)0); // relaxed: released with the count
    hazard->row = row;
    // release[hazard-add -> hazard-list]: its empty place
    ebbi_store_release(&row->used, used + 1);
    return hazard;
}

static struct ebb_hazard *take_of(struct ebbi_hazards *row)
{
    struct ebb_hazard *hazard = row->closed;
    if (hazard == NULL) {
        return take_unused(row);
    }
    row->closed = hazard->next_free;
    return hazard;
}

// Under the lock.
static struct ebb_hazard *take(const void *owner)
{
    struct ebb_hazard *hazard = NULL;
    struct ebbi_hazards *row = ebbi_load_relaxed(&hazard_rows); // relaxed: under the lock
    for (; row != NULL; row = ebbi_load_relaxed(&row->next)) {  // relaxed: under the lock
        hazard = take_of(row);
        if (hazard != NULL) {
            hazard->owner = owner;
            hazard->user = NULL;
            (void)ebbi_fetch_add_relaxed(&row->open, 1);  // relaxed: see above
            (void)ebbi_fetch_add_relaxed(&open_count, 1); // relaxed: see above
            break;
        }
    }
    return hazard;
}

static struct ebbi_hazards *row_create(void)
{
    struct ebbi_hazards *row = ebbi_own_alloc(sizeof *row);
    if (row != NULL) {
        row->closed = NULL;
        ebbi_store_relaxed(&row->next, (struct ebbi_hazards *)0); // relaxed: nobody sees it yet
        ebbi_store_relaxed(&row->open, (size_t)0);                // relaxed: as above
        ebbi_store_relaxed(&row->used, (size_t)0);                // relaxed: as above
    }
    return row;
}

// Under the lock.
static void append(struct ebbi_hazards *fresh)
{
    EBBI_ATOMIC(struct ebbi_hazards *) *link = &hazard_rows;
    for (struct ebbi_hazards *row; (row = ebbi_load_relaxed(link)) != NULL;) { // relaxed: as above
        link = &row->next;
    }
    // release[hazard-row-add -> hazard-row-list]: its counts, 0
    ebbi_store_release(link, fresh);
}

struct ebb_hazard *ebbi_hazard_open(const void *owner)
{
    ebbi_lock_take(&hazard_lock);
    struct ebb_hazard *hazard = take(owner);
    ebbi_lock_drop(&hazard_lock);
    while (hazard == NULL) {
        struct ebbi_hazards *fresh = row_create();
        if (fresh == NULL) {
            return NULL;
        }
        ebbi_lock_take(&hazard_lock);
        append(fresh);
        hazard = take(owner); // not if others were faster
        ebbi_lock_drop(&hazard_lock);
    }
    return hazard;
}

static void close_locked(struct ebb_hazard *hazard)
{
    struct ebbi_hazards *row = hazard->row;
    ebb_hazard_clear(hazard);
    hazard->owner = NULL;
    hazard->next_free = row->closed;
    row->closed = hazard;
    // release[hazard-close -> hazard-count]: its thread's reads of the block
    (void)ebbi_fetch_sub_release(&row->open, 1);
    // release[hazard-close -> hazard-count]: as above
    (void)ebbi_fetch_sub_release(&open_count, 1);
}

void ebbi_hazard_close(struct ebb_hazard *hazard)
{
    ebbi_lock_take(&hazard_lock);
    bool is_open = hazard->owner != NULL;
    if (is_open) {
        close_locked(hazard);
    }
    ebbi_lock_drop(&hazard_lock);
    if (!is_open) {
        ebbi_fatal("hazard pointer %p closed twice", (void *)hazard);
    }
}

// Another thread's protection ends. It stays open: who holds it in the child may use it, or close it.
static void let_hazard_go(struct ebb_hazard *hazard, const void *mine)
{
    const void *user = hazard->user != NULL ? hazard->user : hazard->owner;
    if (hazard->owner != NULL && user != mine) {
        ebb_hazard_clear(hazard);
        hazard->owner = &hazard_lock; // no thread's
        hazard->user = NULL;
    }
}

static void keep_only_of(struct ebbi_hazards *row, const void *owner)
{
    size_t used = ebbi_load_relaxed(&row->used); // relaxed: under the lock
    for (size_t i = 0; i < used; i++) {
        let_hazard_go(&row->all[i], owner);
    }
}

void ebbi_hazards_keep_only(const void *owner)
{
    struct ebbi_hazards *row = ebbi_load_relaxed(&hazard_rows); // relaxed: under the lock
    for (; row != NULL; row = ebbi_load_relaxed(&row->next)) {  // relaxed: under the lock
        keep_only_of(row, owner);
    }
}

size_t ebbi_hazards_count(void)
{
    // acquire[hazard-count <- hazard-close]: the reads of those that are closed
    return ebbi_load_acquire(&open_count);
}

static size_t open_in(const struct ebbi_hazards *row)
{
    // acquire[hazard-count <- hazard-close]: as above
    return ebbi_load_acquire(&row->open);
}

static bool find_in(const struct ebbi_hazards *row, uintptr_t start, size_t bytes,
                    bool (*found)(const void *held, void *context), void *context)
{
    // acquire[hazard-list <- hazard-add]: empty places
    size_t used = ebbi_load_acquire(&row->used);
    for (size_t i = 0; i < used; i++) {
        // acquire[hazard-scan <- hazard-set, hazard-clear]: its thread's reads of the block before
        const void *held = ebbi_load_acquire(&row->all[i].held);
        if (EBBI_UNLIKELY((uintptr_t)held - start < bytes) && held != NULL &&
            found(held, context)) {
            return true;
        }
    }
    return false;
}

bool ebbi_hazards_find(uintptr_t start, size_t bytes,
                       bool (*found)(const void *held, void *context), void *context)
{
    if (EBBI_LIKELY(ebbi_hazards_count() == 0)) {
        return false;
    }
    // acquire[hazard-row-list <- hazard-row-add]: the counts of the rows
    const struct ebbi_hazards *row = ebbi_load_acquire(&hazard_rows);
    while (row != NULL) {
        if (open_in(row) != 0 && find_in(row, start, bytes, found, context)) {
            return true;
        }
        // acquire[hazard-row-list <- hazard-row-add]: as above
        row = ebbi_load_acquire(&row->next);
    }
    return false;
}

static bool is_enough(const void *held, void *context)
{
    (void)held;
    (void)context;
    return true;
}

bool ebbi_hazard_protects(const void *p, size_t bytes)
{
    return ebbi_hazards_find((uintptr_t)p, bytes, is_enough, NULL);
}

void ebbi_hazards_lock(void) { ebbi_lock_take(&hazard_lock); }
void ebbi_hazards_unlock(void) { ebbi_lock_drop(&hazard_lock); }
