// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: with EBB_CHECK, what nobody has in a slab (C4 of debug/check.h). It is looked at under the owner's lock, where
// nothing may be reported: that is left to who comes by without one.
#include <stdio.h>
#include <string.h>

#include "debug/canary.h"
#include "debug/check.h"
#include "heap/slabs.h"
#include "report/report.h"

#define MOST_NOTED 16

// What was written to, is nobody's and was not reported yet; 0: none. Atomic.
static uintptr_t noted_blocks[MOST_NOTED], noted_beside[MOST_NOTED];

// Of more than that at a time the others are left out.
static void note_written(uintptr_t *places, uintptr_t at)
{
    for (int i = 0; i < MOST_NOTED; i++) {
        uintptr_t none = 0;
        // release[vacant-noted -> vacant-told]: what lies there
        if (ebbi_cas_release(&places[i], &none, at)) {
            return;
        }
    }
}

// Where all is 0, as it is again afterwards.
static void look_beside(char *from, char *to)
{
    const char *written = ebbi_canary_changed((struct ebbi_range){from, to}, 0);
    if (written != NULL) {
        note_written(noted_beside, (uintptr_t)written);
        memset(from, 0, (size_t)(to - from));
    }
}

void ebbi_vacant_look_in(struct ebbi_owner *owner, struct ebbi_slab *slab)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    char *start = ebbi_span_start(&slab->head);
    char *first = (char *)slab->first_block;
    ebbi_assert_held(&owner->lock);
    look_beside(start, first);
    look_beside(first + (size_t)c->blocks * c->size,
                start + ((size_t)c->granules << EBBI_GRANULE_SHIFT));
    for (unsigned w = 0; w < slab->words; w++) {
        for (uint64_t bits = slab->local[w]; bits != 0; bits &= bits - 1) {
            unsigned number = w * 64 + ebbi_lowest_bit(bits);
            char *block = first + (size_t)number * c->size;
            if (!ebbi_check_is_vacant(block)) {
                ebbi_shelf_take_one(owner, slab, number);
                note_written(noted_blocks, (uintptr_t)block);
            }
        }
    }
}

static void report_beside(uintptr_t written)
{
    char said[128];
    struct ebbi_event now;
    (void)snprintf(said, sizeof said, "%p lies beside the allocator's blocks, where none begins",
                   (void *)written);
    ebbi_event_note(&now);
    struct ebbi_report report = {
        .kind = {"invalid write", NULL},
        .said = said,
        .address = written,
        .traces = {ebbi_trace_of("found", &now)},
    };
    ebbi_misuse(&report);
}

void ebbi_vacant_tell(void)
{
    for (int i = 0; i < MOST_NOTED; i++) {
        // acquire[vacant-told <- vacant-noted]: what lies there
        uintptr_t block = ebbi_exchange_acquire(&noted_blocks[i], (uintptr_t)0);
        // acquire[vacant-told <- vacant-noted]: the same
        uintptr_t beside = ebbi_exchange_acquire(&noted_beside[i], (uintptr_t)0);
        if (block != 0) {
            ebbi_check_lose((void *)block);
        }
        if (beside != 0) {
            report_beside(beside);
        }
    }
}
