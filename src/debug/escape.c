// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: reports of what escaped from a released region. For signal handlers.
#include "debug/quarantine.h"

static void report_escape(uintptr_t address, const char *what, const struct ebbi_escape *escape,
                          const struct ebbi_event *now, bool is_fault)
{
    struct ebbi_report report = {
        .kind = {what, " after release"},
        .address = address,
        .block = {escape->block, escape->bytes},
        .label = escape->label,
        .region = escape->number,
        .is_gap = escape->freed,
        .is_fault = is_fault,
        .traces = {ebbi_trace_of("found", now), ebbi_stack_trace("released", escape->released_by)},
    };
    if (!escape->freed) {
        report.traces[2] = ebbi_stack_trace("allocated", ebbi_stack_noted(escape->block));
    }
    is_fault ? ebbi_report(&report) : ebbi_misuse(&report);
}

bool ebbi_escape_report(uintptr_t address, const char *what)
{
    struct ebbi_escape escape;
    struct ebbi_event now;
    if (!ebbi_quarantine_find(address, &escape)) {
        return false;
    }
    ebbi_event_note(&now);
    report_escape(address, what, &escape, &now, false);
    return true;
}

void ebbi_escape_look(uintptr_t address, uintptr_t pc)
{
    struct ebbi_escape escape;
    struct ebbi_event now;
    if (ebbi_quarantine_find(address, &escape)) {
        ebbi_event_note_fault(&now, pc);
        report_escape(address, "use", &escape, &now, true);
    }
}
