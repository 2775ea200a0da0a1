// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: hazard pointers (M. Michael, "Hazard pointers: safe memory reclamation for lock-free
// objects", 2004). They are blocks of one line each in a list that only grows; closed ones are used
// again.
//
// A reclaimer looks at them after the tag of what it reclaims has passed, so behind the tag's full
// fence, which came behind the unlinking. A reader sets the hazard, full fence, and loads the link
// again. Either the reclaimer sees the hazard or the reader sees that the link is gone. The count of
// open ones is raised before a hazard can be set, so the same holds for it.
#include "ebbtide/detail/hazard.h"
#include "heap/heap.h"

static EBBI_ATOMIC(size_t) open_count;
static EBBI_ATOMIC(struct ebb_hazard *) all_hazards; // grows under the lock
static struct ebb_hazard *closed;                    // under the lock
static struct ebbi_lock hazard_lock;                 // rank: heap

static struct ebb_hazard *take_closed(void)
{
    struct ebb_hazard *hazard = closed;
    if (hazard != NULL) {
        closed = hazard->next_free;
        (void)ebbi_fetch_add_relaxed(&open_count, 1); // relaxed: see above
    }
    return hazard;
}

struct ebb_hazard *ebbi_hazard_open(const void *owner)
{
    ebbi_lock_take(&hazard_lock);
    struct ebb_hazard *hazard = take_closed();
    if (hazard != NULL) {
        hazard->owner = owner;
    }
    ebbi_lock_drop(&hazard_lock);
    if (hazard != NULL) {
        return hazard;
    }
    hazard = ebbi_alloc_own(sizeof *hazard);
    if (hazard == NULL) {
        return NULL;
    }
    *hazard = (struct ebb_hazard){0};
    ebbi_lock_take(&hazard_lock);
    hazard->owner = owner;
    hazard->next = ebbi_load_relaxed(&all_hazards); // relaxed: under the lock
    // release[hazard-add -> hazard-list]: its link and its empty place
    ebbi_store_release(&all_hazards, hazard);
    (void)ebbi_fetch_add_relaxed(&open_count, 1); // relaxed: see above
    ebbi_lock_drop(&hazard_lock);
    return hazard;
}

static void close_locked(struct ebb_hazard *hazard)
{
    ebb_hazard_clear(hazard);
    hazard->owner = NULL;
    hazard->next_free = closed;
    closed = hazard;
    // release[hazard-close -> hazard-count]: its thread's reads of the block
    (void)ebbi_fetch_sub_release(&open_count, 1);
}

void ebbi_hazard_close(struct ebb_hazard *hazard)
{
    ebbi_lock_take(&hazard_lock);
    close_locked(hazard);
    ebbi_lock_drop(&hazard_lock);
}

void ebbi_hazards_keep_only(const void *owner)
{
    struct ebb_hazard *hazard = ebbi_load_relaxed(&all_hazards); // relaxed: under the lock
    for (; hazard != NULL; hazard = hazard->next) {
        if (hazard->owner != NULL && hazard->owner != owner) {
            close_locked(hazard);
        }
    }
}

size_t ebbi_hazards_count(void)
{
    // acquire[hazard-count <- hazard-close]: the reads of those that are closed
    return ebbi_load_acquire(&open_count);
}

bool ebbi_hazard_protects(const void *p, size_t bytes)
{
    if (EBBI_LIKELY(ebbi_hazards_count() == 0)) {
        return false;
    }
    // acquire[hazard-list <- hazard-add]: the list
    const struct ebb_hazard *hazard = ebbi_load_acquire(&all_hazards);
    for (; hazard != NULL; hazard = hazard->next) {
        // acquire[hazard-scan <- hazard-set, hazard-clear]: its thread's reads of the block before
        const void *held = ebbi_load_acquire(&hazard->held);
        if (held != NULL && (uintptr_t)held - (uintptr_t)p < bytes) {
            return true;
        }
    }
    return false;
}

void ebbi_hazards_lock(void) { ebbi_lock_take(&hazard_lock); }
void ebbi_hazards_unlock(void) { ebbi_lock_drop(&hazard_lock); }
