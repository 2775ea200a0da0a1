// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: sheets of regions that were released while threads use pins or hazard pointers, or with
// retired blocks in them.
//
// They wait for the grace period, each by its own stamp. (Large objects wait as retired ones
// do.) Stamps are read under the lock, so the queue is in their order, and behind a head that has to wait all
// wait: a release looks no further. What has passed, but holds a block that a hazard pointer protects or that
// is retired, is `held`: only passes look at these.
#include "debug/quarantine.h"
#include "reclaim/reclaim.h"

#define REMAINS_AT_ONCE 64  // looked at under the lock
#define REMAINS_PATIENT 128 // that wait before a release gives way
#define REMAINS_NAPS 1024   // before it naps for a millisecond

struct queue {
    struct ebbi_sheet *first, *last;
    size_t count;
};

static struct {
    struct ebbi_lock lock; // rank: owner
    struct queue waiting, held;
} remains = {.lock = EBBI_LOCK(OWNER)};

static void queue_put(struct queue *queue, struct ebbi_sheet *sheet)
{
    ebbi_assert_held(&remains.lock);
    EBBI_ASSERT((queue->first == NULL) == (queue->count == 0));
    sheet->next = NULL;
    *(queue->first != NULL ? &queue->last->next : &queue->first) = sheet;
    queue->last = sheet;
    // relaxed: written under the lock; others look at it for how much there is to do
    ebbi_store_relaxed(&queue->count, queue->count + 1);
}

static struct ebbi_sheet *queue_take(struct queue *queue)
{
    ebbi_assert_held(&remains.lock);
    EBBI_ASSERT(queue->first != NULL && queue->count > 0);
    struct ebbi_sheet *sheet = queue->first;
    queue->first = sheet->next;
    ebbi_store_relaxed(&queue->count, queue->count - 1); // relaxed: as in queue_put
    return sheet;
}

static bool is_held(uintptr_t start, size_t bytes)
{
    ebbi_assert_held(&remains.lock);
    const void *p = (const void *)start;
    // relaxed: under the lock
    bool retired =
        ebbi_tag_of(p) == EBBI_TAG_REGION && ebbi_load_relaxed(&ebbi_sheet_of(p)->retired) != 0;
    return retired || ebbi_hazard_protects(p, bytes);
}

static bool remains_may_go(uintptr_t start, size_t bytes, uint64_t stamp)
{
    return ebbi_clock_passed(&ebbi_clock, stamp) && !is_held(start, bytes);
}

// Under the lock: among the `gone`, which may go, or the held ones.
static void sort_out(struct ebbi_sheet *sheet, struct ebbi_sheet **gone)
{
    ebbi_assert_held(&remains.lock);
    if (is_held(ebbi_sheet_start(sheet), ebbi_sheet_bytes(sheet))) {
        queue_put(&remains.held, sheet);
    } else {
        sheet->next = *gone;
        *gone = sheet;
    }
}

size_t ebbi_remains_destroy(struct ebbi_sheet *sheet)
{
    size_t bytes = 0;
    for (struct ebbi_sheet *next; sheet != NULL; sheet = next) {
        next = sheet->next;
        bytes += ebbi_sheet_bytes(sheet);
        ebbi_sheet_destroy(sheet);
    }
    return bytes;
}

// At most `most` from the head of the queue, as far as it has passed. *more: that was not all.
static size_t free_passed(size_t most, bool *more)
{
    struct ebbi_sheet *gone = NULL;
    ebbi_lock_take(&remains.lock);
    struct queue *queue = &remains.waiting;
    while (queue->first != NULL && most > 0 &&
           ebbi_clock_passed(&ebbi_clock, queue->first->stamp)) {
        sort_out(queue_take(queue), &gone);
        most--;
    }
    *more = most == 0;
    ebbi_lock_drop(&remains.lock);
    return ebbi_remains_destroy(gone);
}

// Looks at `count` of the held ones, which are no more than there were, so at none twice.
static size_t free_held(size_t count)
{
    struct ebbi_sheet *gone = NULL;
    ebbi_lock_take(&remains.lock);
    while (remains.held.first != NULL && count-- > 0) {
        sort_out(queue_take(&remains.held), &gone);
    }
    ebbi_lock_drop(&remains.lock);
    return ebbi_remains_destroy(gone);
}

void ebbi_remains_put(struct ebbi_sheet *sheets)
{
    size_t count = 0;
    bool more;
    ebbi_lock_take(&remains.lock);
    uint64_t stamp = ebbi_clock_stamp(&ebbi_clock);
    for (struct ebbi_sheet *next; sheets != NULL; sheets = next) {
        next = sheets->next;
        sheets->stamp = stamp;
        queue_put(&remains.waiting, sheets);
        count++;
    }
    ebbi_lock_drop(&remains.lock);
    // Where nobody else pins, and nobody will come later, at once.
    int advances = ebbi_os_is_threaded() ? 1 : EBBI_ADVANCES;
    while (advances > 0 && ebbi_clock_advance(&ebbi_clock, true)) {
        advances--;
    }
    (void)free_passed(2 * count + 2, &more); // more than came: so the queues end
    // relaxed: a hint
    (void)free_held(ebbi_min(2 * count + 2, ebbi_load_relaxed(&remains.held.count)));
    size_t waiting = ebbi_load_relaxed(&remains.waiting.count); // relaxed: as above
    if (waiting > REMAINS_PATIENT) {
        ebbi_give_way(waiting > REMAINS_NAPS);
    }
}

size_t ebbi_remains_purge(bool *some_wait)
{
    size_t bytes = 0;
    bool more;
    do {
        bytes += free_passed(REMAINS_AT_ONCE, &more);
    } while (more);
    // relaxed: what is held later waits for the next pass
    for (size_t left = ebbi_load_relaxed(&remains.held.count); left > 0;) {
        size_t count = ebbi_min(left, REMAINS_AT_ONCE);
        bytes += free_held(count);
        left -= count;
    }
    ebbi_lock_take(&remains.lock);
    *some_wait |= remains.waiting.first != NULL || remains.held.first != NULL;
    if (ebbi_quarantine_is_on()) {
        ebbi_quarantine_settle(remains_may_go, some_wait);
    }
    ebbi_lock_drop(&remains.lock);
    return bytes;
}

void ebbi_remains_lock(void) { ebbi_lock_take(&remains.lock); }
void ebbi_remains_unlock(void) { ebbi_lock_drop(&remains.lock); }
