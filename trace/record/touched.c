// SPDX-License-Identifier: MIT OR Apache-2.0
// How much of a large block the program has touched: the pages that the kernel holds of it when it ends. Recorded
// processes take each large block from the kernel (start.c), so no page is left from an earlier one.
#include <sys/mman.h>
#include <unistd.h>

#include "trace/record/record.h"

// In front of the header of a large block that is recorded.
struct large {
    struct large *next, *previous;
};

_Static_assert(sizeof(struct large) + sizeof(struct header) <= 64, "both fit in front of a block");

static struct large all = {&all, &all};
static struct lock lock = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void lock_large(void) { take(&lock); }
void unlock_large(void) { give(&lock); }
void forget_large_lock(void) { lock = (struct lock){.mutex = PTHREAD_MUTEX_INITIALIZER}; }

static struct large *large_of(struct header *header) { return (struct large *)header - 1; }

void large_made(struct header *header)
{
    struct large *large = large_of(header);
    lock_large();
    *large = (struct large){.next = all.next, .previous = &all};
    all.next->previous = large;
    all.next = large;
    unlock_large();
}

static uint64_t count_resident(uintptr_t start, uintptr_t end, uintptr_t page)
{
    unsigned char resident[4096];
    uint64_t pages = 0;
    while (start < end) {
        size_t count = (end - start) / page;
        count = count > sizeof resident ? sizeof resident : count;
        if (mincore((void *)start, count * page, resident) != 0) {
            return pages + (end - start) / page; // not known: all
        }
        for (size_t i = 0; i < count; i++) {
            pages += resident[i] & 1U;
        }
        start += count * page;
    }
    return pages;
}

static uint64_t pages_touched(const struct header *header)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)(header + 1);
    uintptr_t end = (start + header->size + page - 1) & ~(page - 1);
    return count_resident(start & ~(page - 1), end, page);
}

uint64_t large_ends(struct header *header)
{
    struct large *large = large_of(header);
    lock_large();
    large->next->previous = large->previous;
    large->previous->next = large->next;
    unlock_large();
    return pages_touched(header);
}

void note_large_at_exit(struct stream *stream)
{
    lock_large();
    for (struct large *large = all.next; large != &all && has_room(stream); large = large->next) {
        const struct header *header = (const struct header *)(large + 1);
        note_touched(stream, header, pages_touched(header));
    }
    unlock_large();
}
