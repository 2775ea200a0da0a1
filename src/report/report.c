// SPDX-License-Identifier: MIT OR Apache-2.0
#include "report/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mix.h"
#include "base/probe.h"
#include "ebbtide/detail/atomic.h"
#include "os/options.h"
#include "unwind/unwind.h"

#define REPORT_ROOM 8192
#define LINE_ROOM 32768
#define SAID_ROOM 384

static uint32_t report_busy; // the thread that writes, or 0; atomic
// Of that thread.
static EBBI_SPARSE char report_text[REPORT_ROOM];
static EBBI_SPARSE char report_line[LINE_ROOM];
static EBBI_SPARSE char written_to[EBBI_PATH_ROOM];

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

bool ebbi_trace_module(const struct ebbi_trace *trace, uint32_t call, struct ebbi_os_module *out)
{
    if (trace->module == NULL) {
        return ebbi_os_module_find(trace->calls[call], out);
    }
    const struct ebbi_os_module *module = trace->module(trace, call);
    if (module != NULL) {
        *out = *module;
    }
    return module != NULL;
}

// ---- as text -------------------------------------------------------------------------------------------

static void put_extent(struct ebbi_text *text, const struct ebbi_extent *block)
{
    ebbi_text_put(text, " a block of ");
    ebbi_text_number(text, block->bytes, 10);
    ebbi_text_put(text, " bytes at ");
    ebbi_text_number(text, block->start, 16);
}

static void put_region(struct ebbi_text *text, const struct ebbi_report *r)
{
    ebbi_text_put(text, r->is_gap ? " free memory of " : " a block of ");
    ebbi_text_number(text, r->block.bytes, 10);
    ebbi_text_put(text, " bytes of region \"");
    ebbi_text_put(text, r->label);
    ebbi_text_put(text, "\" (number ");
    ebbi_text_number(text, r->region, 10);
    ebbi_text_put(text, r->is_gap ? "), freed or unused before the release" : ")");
}

static void put_place(struct ebbi_text *text, const struct ebbi_report *r)
{
    uintptr_t block = r->block.start, end = block + r->block.bytes;
    ebbi_text_number(text, r->address, 16);
    ebbi_text_put(text, " lies ");
    if (r->address < block) {
        ebbi_text_number(text, block - r->address, 10);
        ebbi_text_put(text, " bytes before");
    } else {
        ebbi_text_number(text, r->address - (r->address < end ? block : end), 10);
        ebbi_text_put(text, r->address < end ? " bytes into" : " bytes behind");
    }
    r->label != NULL ? put_region(text, r) : put_extent(text, &r->block);
}

// Without the line's end.
static void put_first_line(struct ebbi_text *text, const struct ebbi_report *r)
{
    ebbi_text_put(text, r->kind[0]);
    ebbi_text_put(text, r->kind[1] != NULL ? r->kind[1] : "");
    ebbi_text_put(text, ": ");
    ebbi_text_put(text, r->more != NULL ? r->more : "");
    ebbi_text_put(text, r->more != NULL ? ": " : "");
    if (r->said != NULL) {
        ebbi_text_put(text, r->said);
    } else {
        put_place(text, r);
    }
}

static void put_call(struct ebbi_text *text, const struct ebbi_trace *trace, uint32_t call)
{
    struct ebbi_os_module module = {0};
    bool known = ebbi_trace_module(trace, call, &module);
    ebbi_text_put(text, "    ");
    ebbi_text_put(text, module.name);
    ebbi_text_put(text, known ? "+" : "");
    ebbi_text_number(text, trace->calls[call] - module.base, 16);
    ebbi_text_put(text, "\n");
}

static void put_trace(struct ebbi_text *text, const struct ebbi_trace *trace, bool is_fault)
{
    ebbi_text_put(text, is_fault ? "used" : trace->did);
    if (trace->thread != 0) {
        ebbi_text_put(text, " by thread ");
        ebbi_text_number(text, trace->thread, 10);
    }
    ebbi_text_put(text, trace->depth > 0     ? " at:\n"
                        : trace->thread == 0 ? " at:\n    (no stack was kept)\n"
                                             : "\n");
    for (uint32_t i = 0; i < trace->depth; i++) {
        put_call(text, trace, i);
    }
}

static void put_traces(struct ebbi_text *text, const struct ebbi_report *r)
{
    for (uint32_t i = 0; i < EBBI_REPORT_TRACES && r->traces[i].did != NULL; i++) {
        put_trace(text, &r->traces[i], r->is_fault && i == 0);
        if (r->before.start != 0 && i == 0) {
            ebbi_text_put(text, "before it lies");
            put_extent(text, &r->before);
            ebbi_text_put(text, "\n");
        }
    }
}

// ---- both ----------------------------------------------------------------------------------------------

static void append_line(const struct ebbi_report *r, const struct ebbi_text *message)
{
    struct ebbi_text line = {report_line, report_line + LINE_ROOM};
    bool fits = ebbi_option_file(EBBI_OPTION_CHECK_REPORT, written_to, sizeof written_to);
    ebbi_report_json(&line, r, message);
    int error = fits ? ebbi_os_append(written_to, report_line, (size_t)(line.at - report_line))
                     : -ENAMETOOLONG;
    if (error != 0) {
        ebbi_message_file("no report in the file of EBB_CHECK_REPORT", error, written_to);
    }
}

static void write_both(const struct ebbi_report *r)
{
    struct ebbi_text text = {report_text, report_text + REPORT_ROOM};
    text.at += ebbi_message_head(report_text);
    struct ebbi_text message = {text.at, text.at};
    put_first_line(&text, r);
    message.end = text.at;
    ebbi_text_put(&text, "\n");
    put_traces(&text, r);
    size_t bytes = (size_t)(text.at - report_text);
    ebbi_os_write(2, report_text, bytes);
    EBBI_PROBE2(message, report_text, bytes);
    if (ebbi_option(EBBI_OPTION_CHECK_REPORT) != 0) {
        append_line(r, &message);
    }
}

static void write_short(const struct ebbi_report *r)
{
    char out[EBBI_HEAD_ROOM + SAID_ROOM];
    struct ebbi_text text = {out + ebbi_message_head(out), out + sizeof out - 1};
    put_first_line(&text, r);
    *text.at++ = '\n';
    ebbi_os_write(2, out, (size_t)(text.at - out));
}

void ebbi_report(const struct ebbi_report *report)
{
    uint32_t me = ebbi_os_thread_number(), writes = 0;
    // acquire[report-take <- report-drop]: the texts are this thread's
    while (!ebbi_cas_acquire(&report_busy, &writes, me)) {
        if (writes == me) {
            write_short(report);
            return;
        }
        writes = 0;
        ebbi_os_yield();
    }
    write_both(report);
    // release[report-drop -> report-take]: the texts have been written
    ebbi_store_release(&report_busy, 0u);
}

static EBBI_NORETURN void report_end(const struct ebbi_report *report)
{
    ebbi_report(report);
    ebbi_end();
}

// ---- going on ------------------------------------------------------------------------------------------

#define REPORT_PLACES 512u
#define MOST_OF_A_PLACE 3u

bool ebbi_report_goes_on;

static EBBI_SPARSE struct {
    uint64_t key;   // of a kind and the place of the call; 0: free; atomic
    uint32_t count; // atomic
} report_places[REPORT_PLACES];
static uint64_t reports_left_out; // atomic

static uint64_t report_key(const struct ebbi_report *r)
{
    const struct ebbi_trace *found = &r->traces[0];
    uint64_t key = found->did != NULL && found->depth > 0 ? found->calls[0] : 0;
    for (size_t i = 0; i < 2; i++) {
        for (const char *c = r->kind[i]; c != NULL && *c != '\0'; c++) {
            key = ebbi_mix(key, (unsigned char)*c);
        }
    }
    return key | 1;
}

// Those that find no room in the table are left out, too.
static bool may_be_written(const struct ebbi_report *r)
{
    uint64_t key = report_key(r);
    for (size_t i = 0; i < REPORT_PLACES; i++) {
        size_t at = (key + i) % REPORT_PLACES;
        uint64_t seen = 0;
        // relaxed: numbers, here and below
        if (ebbi_cas_relaxed(&report_places[at].key, &seen, key) || seen == key) {
            // relaxed: as above
            return ebbi_fetch_add_relaxed(&report_places[at].count, 1u) < MOST_OF_A_PLACE;
        }
    }
    return false;
}

void ebbi_misuse(const struct ebbi_report *report)
{
    if (!ebbi_report_goes_on) {
        report_end(report);
    }
    if (may_be_written(report)) {
        ebbi_report(report);
    } else {
        (void)ebbi_fetch_add_relaxed(&reports_left_out, (uint64_t)1); // relaxed: a number
    }
}

void ebbi_report_left_out(void)
{
    uint64_t count = ebbi_load_relaxed(&reports_left_out); // relaxed: as above
    if (count > 0) {
        ebbi_message("EBB_CHECK=log: %llu more were left out", (unsigned long long)count);
    }
}

void ebbi_report_forget(void)
{
    ebbi_store_relaxed(&report_busy, 0u);               // relaxed: there is no other thread
    ebbi_store_relaxed(&reports_left_out, (uint64_t)0); // relaxed: as above
}

// ---- with a sentence -----------------------------------------------------------------------------------

struct sentence {
    char text[SAID_ROOM];
    struct ebbi_event now;
};

static void say(struct ebbi_report *report, struct sentence *said, const char *format, va_list args)
{
    (void)vsnprintf(said->text, sizeof said->text, format, args);
    report->said = said->text;
    if (ebbi_option(EBBI_OPTION_CHECK_REPORT) != 0 || ebbi_report_goes_on) {
        said->now = (struct ebbi_event){.thread = ebbi_os_thread_number()};
        // Another thread may have the loader's lock, and want what this one holds.
        if (!ebbi_os_module_locks()) {
            ebbi_event_note(&said->now);
        }
        report->traces[0] = ebbi_trace_of("found", &said->now);
    }
}

void ebbi_misuse_said(struct ebbi_report report, const char *format, ...)
{
    struct sentence said;
    va_list args;
    va_start(args, format);
    say(&report, &said, format, args);
    va_end(args);
    ebbi_misuse(&report);
}

void ebbi_report_said(struct ebbi_report report, const char *format, ...)
{
    struct sentence said;
    va_list args;
    va_start(args, format);
    say(&report, &said, format, args);
    va_end(args);
    report_end(&report);
}
