// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/report.h"

#include <string.h>

#include "ebbtide/detail/atomic.h"
#include "os/os.h"
#include "unwind/unwind.h"

#define REPORT_ROOM 8192

static uint32_t report_busy; // atomic
static EBBI_SPARSE char report_text[REPORT_ROOM];

struct ebbi_text ebbi_report_begin(void)
{
    char head[EBBI_HEAD_ROOM];
    // acquire[report-take <- report-drop]: the text is this thread's
    while (ebbi_exchange_acquire(&report_busy, 1u) != 0) {
        ebbi_os_yield();
    }
    struct ebbi_text text = {report_text, report_text + REPORT_ROOM};
    (void)ebbi_message_head(head);
    ebbi_text_put(&text, head);
    return text;
}

void ebbi_report_end(const struct ebbi_text *text)
{
    ebbi_os_write(2, report_text, (size_t)(text->at - report_text));
    // release[report-drop -> report-take]: the text has been written
    ebbi_store_release(&report_busy, 0u);
}

void ebbi_report_forget(void)
{
    ebbi_store_relaxed(&report_busy, 0u); // relaxed: there is no other thread
}

// ---- events --------------------------------------------------------------------------------------------

#define MORE_CALLS 8u // of the library's own

EBBI_NOINLINE void ebbi_event_note(struct ebbi_event *event)
{
    uintptr_t calls[EBBI_EVENT_CALLS + MORE_CALLS];
    size_t depth = ebbi_unwind(calls, sizeof calls / sizeof calls[0]);
    size_t own = ebbi_unwind_own(calls, depth);
    event->thread = ebbi_os_thread_number();
    event->depth = (uint32_t)ebbi_min(depth - own, EBBI_EVENT_CALLS);
    memcpy(event->calls, calls + own, event->depth * sizeof *calls);
}

EBBI_NOINLINE void ebbi_event_note_fault(struct ebbi_event *event, uintptr_t pc)
{
    uintptr_t calls[EBBI_EVENT_CALLS + MORE_CALLS];
    size_t depth = ebbi_unwind(calls, sizeof calls / sizeof calls[0]);
    size_t own = 0; // up to the handler
    while (own < depth && calls[own] != pc) {
        own++;
    }
    event->thread = ebbi_os_thread_number();
    event->depth = (uint32_t)ebbi_min(depth - own, EBBI_EVENT_CALLS);
    memcpy(event->calls, calls + own, event->depth * sizeof *calls);
}

static void put_event_call(struct ebbi_text *text, uintptr_t call)
{
    struct ebbi_os_module module = {0};
    bool known = ebbi_os_module_find(call, &module);
    ebbi_text_put(text, "    ");
    ebbi_text_put(text, module.name);
    ebbi_text_put(text, known ? "+" : "");
    ebbi_text_number(text, call - module.base, 16);
    ebbi_text_put(text, "\n");
}

void ebbi_text_event(struct ebbi_text *text, const char *what, const struct ebbi_event *event)
{
    ebbi_text_put(text, what);
    ebbi_text_put(text, " by thread ");
    ebbi_text_number(text, event->thread, 10);
    ebbi_text_put(text, event->depth > 0 ? " at:\n" : "\n");
    for (uint32_t i = 0; i < event->depth; i++) {
        put_event_call(text, event->calls[i]);
    }
}

void ebbi_text_block(struct ebbi_text *text, uintptr_t block, size_t bytes)
{
    ebbi_text_put(text, " a block of ");
    ebbi_text_number(text, bytes, 10);
    ebbi_text_put(text, " bytes at ");
    ebbi_text_number(text, block, 16);
}

void ebbi_text_place(struct ebbi_text *text, uintptr_t address, uintptr_t block, size_t bytes)
{
    uintptr_t end = block + bytes;
    ebbi_text_number(text, address, 16);
    ebbi_text_put(text, " lies ");
    if (address < block) {
        ebbi_text_number(text, block - address, 10);
        ebbi_text_put(text, " bytes before");
    } else {
        ebbi_text_number(text, address - (address < end ? block : end), 10);
        ebbi_text_put(text, address < end ? " bytes into" : " bytes behind");
    }
    ebbi_text_block(text, block, bytes);
    ebbi_text_put(text, "\n");
}
