// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/checked.h"

#include <stdio.h>

#include "report/report.h"

uint64_t ebbi_checked_secret;

static struct ebbi_event event_of(uint32_t thread, uintptr_t caller)
{
    return (struct ebbi_event){.thread = thread, .depth = caller != 0, .calls = {caller - 1}};
}

static struct ebbi_extent extent_of(const struct ebbi_checked *h)
{
    return (struct ebbi_extent){(uintptr_t)ebbi_checked_block(h), h->bytes};
}

void ebbi_checked_report(const struct ebbi_checked *h, const void *at, const char *kind,
                         const char *more_kind, const char *more)
{
    struct ebbi_event now, made = event_of(h->made_by, h->made),
                           freed = event_of(h->freed_by, h->freed);
    ebbi_event_note(&now);
    struct ebbi_report report = {
        .kind = {kind, more_kind},
        .more = more,
        .address = (uintptr_t)at,
        .block = extent_of(h),
        .traces = {ebbi_trace_of("found", &now), ebbi_trace_of("allocated", &made)},
    };
    if (h->freed_by != 0) {
        report.traces[2] = ebbi_trace_of("freed", &freed);
    }
    ebbi_misuse(&report);
}

void ebbi_checked_report_none(const struct ebbi_checked *h, const void *p, const char *what)
{
    const struct ebbi_slab *slab = ebbi_slab_of(p);
    size_t size = ebbi_slab_class(slab)->size;
    const struct ebbi_checked *left = (const struct ebbi_checked *)((uintptr_t)h - size);
    char said[192];
    struct ebbi_event now, made;
    (void)snprintf(said, sizeof said,
                   "%p lies in a block of the allocator's, of %zu bytes at %p, that was not handed "
                   "out, or what lies before it was overwritten",
                   p, size, (const void *)h);
    ebbi_event_note(&now);
    struct ebbi_report report = {
        .kind = {"invalid ", what},
        .said = said,
        .address = (uintptr_t)p,
        .traces = {ebbi_trace_of("found", &now)},
    };
    if ((uintptr_t)left >= slab->first_block && (uintptr_t)left < (uintptr_t)h &&
        left->sum == ebbi_checked_sum(left)) {
        made = event_of(left->made_by, left->made);
        report.before = extent_of(left);
        report.traces[1] = ebbi_trace_of("allocated", &made);
    }
    ebbi_misuse(&report);
}

void ebbi_checked_report_state(const struct ebbi_checked *h, const void *p, uint32_t state,
                               const char *what)
{
    bool is_free = strcmp(what, "free") == 0;
    if (state == EBBI_CHECKED_FREED || state == EBBI_CHECKED_LOST) {
        ebbi_checked_report(h, p, is_free ? "double free" : "use after free", NULL, NULL);
    } else if (state == EBBI_CHECKED_RETIRED) {
        ebbi_checked_report(h, p, is_free ? "free of what was retired" : "double retire", NULL,
                            NULL);
    } else {
        ebbi_checked_report_none(h, p, what);
    }
}

// Where nothing but a word is to be. False: there is nothing else.
static bool report_around(const struct ebbi_checked *h, uint64_t word)
{
    const char *before = ebbi_canary_changed(ebbi_checked_before(h), word);
    const char *behind = ebbi_canary_changed(ebbi_checked_behind(h), word);
    if (before != NULL) {
        ebbi_checked_report(h, before, "underflow", NULL, "written before the block");
    } else if (behind != NULL) {
        ebbi_checked_report(h, behind, "overflow", NULL, "written behind the block");
    }
    return before != NULL || behind != NULL;
}

void ebbi_checked_report_touched(const struct ebbi_checked *h)
{
    const char *changed = ebbi_canary_changed(ebbi_checked_content(h), EBBI_FILL);
    if (changed != NULL) {
        ebbi_checked_report(h, changed, "use after free", NULL, "written since it was freed");
    } else {
        (void)report_around(h, EBBI_FILL);
    }
}

bool ebbi_checked_is_marred(const struct ebbi_checked *h)
{
    return EBBI_UNLIKELY(!ebbi_checked_has_canaries(h)) && report_around(h, ebbi_checked_canary(h));
}
