// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: looks at all blocks with EBB_CHECK: what is held, what nobody has (C4 of debug/check.h), and where no other thread
// can be at work, what is in use.
#include <stdio.h>

#include "debug/canary.h"
#include "debug/check.h"
#include "heap/blocks.h"
#include "heap/registry.h"
#include "report/report.h"

#define MOST_FOUND 8u     // of a look
#define MOST_TOLD 64u     // of a process that goes on
#define REST_OF_LOOKS 50u // from one look to the next, in times of what it took

struct found {
    struct {
        void *at;
        bool beside; // the blocks; else it is one
    } written[MOST_FOUND];
    unsigned count;
};

static struct {
    uintptr_t at[MOST_TOLD]; // atomic
    uint32_t count;          // atomic; may be more
} reported;

static bool is_told(void *at)
{
    uint32_t count = ebbi_load_relaxed(&reported.count); // relaxed: at worst it is told twice
    bool known = count >= MOST_TOLD;
    for (uint32_t i = 0; i < count && !known; i++) {
        known = ebbi_load_relaxed(&reported.at[i]) == (uintptr_t)at; // relaxed: as above
    }
    return known;
}

static void note_written(struct found *found, void *at, bool beside)
{
    if (found->count < MOST_FOUND && !is_told(at)) {
        found->written[found->count].at = at;
        found->written[found->count++].beside = beside;
    }
}

static void report_beside(const void *written)
{
    char said[128];
    struct ebbi_event now;
    (void)snprintf(said, sizeof said, "%p lies beside the allocator's blocks, where none begins",
                   written);
    ebbi_event_note(&now);
    struct ebbi_report report = {
        .kind = {"invalid write", NULL},
        .said = said,
        .address = (uintptr_t)written,
        .traces = {ebbi_trace_of("found", &now)},
    };
    ebbi_misuse(&report);
}

static void tell_of(void *at, bool beside)
{
    uint32_t number = ebbi_fetch_add_relaxed(&reported.count, 1u); // relaxed: a number
    if (number >= MOST_TOLD) {
        return;
    }
    ebbi_store_relaxed(&reported.at[number], (uintptr_t)at); // relaxed: see is_told
    if (beside) {
        report_beside(at);
    } else {
        ebbi_check_report_unsound(at);
    }
}

// Where all is 0.
static void look_beside(char *from, char *to, struct found *found)
{
    const char *written = ebbi_canary_changed((struct ebbi_range){from, to}, 0);
    if (written != NULL) {
        note_written(found, from + (written - from), true);
    }
}

static void look_in_slab(const struct ebbi_slab *slab, struct found *found)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    char *start = ebbi_span_start(&slab->head);
    char *first = (char *)slab->first_block;
    look_beside(start, first, found);
    look_beside(first + (size_t)c->blocks * c->size,
                start + ((size_t)c->granules << EBBI_GRANULE_SHIFT), found);
    for (unsigned w = 0; w < slab->words; w++) {
        for (uint64_t bits = slab->local[w]; bits != 0; bits &= bits - 1) {
            char *block = first + (w * (size_t)64 + ebbi_lowest_bit(bits)) * c->size;
            if (!ebbi_check_is_vacant(block)) {
                note_written(found, block, false);
            }
        }
    }
}

// Every slab with a free block is one of its shelf, or purging.
static void look_at_owner(struct ebbi_owner *owner, void *context)
{
    ebbi_assert_held(&owner->lock);
    for (unsigned c = 1; c < EBBI_CLASS_EMPTY; c++) {
        const struct ebbi_shelf *shelf = &owner->shelves[c];
        if (shelf->current != NULL) {
            look_in_slab(shelf->current, context);
        }
        for (unsigned b = 0; b < EBBI_BUCKETS; b++) {
            for (const struct ebbi_slab *s = shelf->bucket[b]; s != NULL; s = s->next) {
                look_in_slab(s, context);
            }
        }
    }
}

static void look_at_heap(struct ebbi_heap *heap, void *context)
{
    look_at_owner(&heap->own, context);
}

static void tell_all(const struct found *found)
{
    for (unsigned i = 0; i < found->count; i++) {
        tell_of(found->written[i].at, found->written[i].beside);
    }
}

void ebbi_look(void)
{
    struct found found = {.count = 0};
    ebbi_check_look();
    ebbi_heaps_each(look_at_heap, &found);
    ebbi_depots_each(look_at_owner, &found);
    tell_all(&found);
}

static void look_at_chunk(struct ebbi_chunk *chunk, void *context)
{
    for (size_t g = chunk->first; g < chunk->committed;) {
        struct ebbi_span *span = ebbi_span_at((uintptr_t)chunk, g);
        g += ebbi_max(span->granules, 1);
        const struct ebbi_slab *slab = ebbi_slab_in(span);
        if (!ebbi_slab_lives(slab) || slab->class_number == EBBI_CLASS_EMPTY) {
            continue;
        }
        const struct ebbi_class *c = ebbi_slab_class(slab);
        for (size_t number = 0; number < c->blocks; number++) {
            void *block = (void *)(slab->first_block + number * c->size);
            if (!ebbi_check_is_sound(block)) {
                note_written(context, block, false);
            }
        }
    }
}

void ebbi_look_alone(void)
{
    struct found found = {.count = 0};
    ebbi_look();
    ebbi_arena_each_chunk(look_at_chunk, &found);
    tell_all(&found);
}

bool ebbi_look_again(void)
{
    static uint64_t due_ns; // atomic
    uint64_t begin = ebbi_os_now_ns();
    if (begin < ebbi_load_relaxed(&due_ns)) { // relaxed: a time, here and below
        return false;
    }
    ebbi_look();
    uint64_t end = ebbi_os_now_ns();
    ebbi_store_relaxed(&due_ns, end + REST_OF_LOOKS * (end - begin)); // relaxed: as above
    return true;
}
