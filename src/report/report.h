// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer report: what is told of a misuse of the heap. A report is a struct of facts; text on stderr and, where EBB_CHECK_REPORT names
// a file, a line of JSON there are written from it, one report at a time. For signal handlers: nothing is allocated, no
// lock is taken but the loader's where there is no other way to it (ebbi_os_module_locks), no libc, and little stack.
#ifndef EBB_REPORT_REPORT_H
#define EBB_REPORT_REPORT_H

#include "os/os.h"
#include "os/text.h"

// What a thread did, and where.
#define EBBI_EVENT_CALLS 16u
struct ebbi_event {
    uint32_t thread; // as the kernel numbers it
    uint32_t depth;
    uintptr_t calls[EBBI_EVENT_CALLS]; // innermost first, without the library's own
};
void ebbi_event_note(struct ebbi_event *event); // this thread, now
// The same in a signal handler, from the access at pc on.
void ebbi_event_note_fault(struct ebbi_event *event, uintptr_t pc);

// The same as a report has it.
struct ebbi_trace {
    const char *did; // "found", "allocated", "freed", "released"; NULL: there is none
    uint32_t thread; // 0: not known
    uint32_t depth;
    const uintptr_t *calls;
    // NULL: the loader is asked whose code a call is. Else by this, call by call; what it returns may be NULL.
    const struct ebbi_os_module *(*module)(const struct ebbi_trace *trace, uint32_t call);
    uint32_t stack; // for `module`
};
EBBI_INLINE struct ebbi_trace ebbi_trace_of(const char *did, const struct ebbi_event *event)
{
    return (struct ebbi_trace){
        .did = did, .thread = event->thread, .depth = event->depth, .calls = event->calls};
}

struct ebbi_extent {
    uintptr_t start; // 0: none
    size_t bytes;
};

#define EBBI_REPORT_TRACES 3u
struct ebbi_report {
    const char *kind[2];       // together: {"double free"}, {"invalid ", "retire"}
    const char *more;          // of the kind: "made by new[]"; NULL: nothing
    const char *said;          // a sentence; NULL: where the address lies
    uintptr_t address;         // what the program used or handed over; 0: not known
    struct ebbi_extent block;  // that it is about
    struct ebbi_extent before; // a block before it, of which the traces are then
    const char *label;         // of the block's region; NULL: it is of none, or not said
    uint64_t region;           // its number
    bool is_gap;               // the region had nothing there any more at its release
    bool is_fault;             // an access that the kernel refused: in its signal's handler
    struct ebbi_trace traces[EBBI_REPORT_TRACES];
};
// Waits for another thread's. In a signal handler that interrupts this one's: the first line on stderr alone.
void ebbi_report(const struct ebbi_report *report);
// With EBB_CHECK=log: whether the process goes on where that is harmless. Constant from the start of the process on.
extern EBBI_HIDDEN bool ebbi_report_goes_on;
// A report, and the end of the process; or, where it goes on, a return, and of each kind and place of the call a few reports.
void ebbi_misuse(const struct ebbi_report *report);
void ebbi_misuse_said(struct ebbi_report report, const char *format, ...) EBBI_PRINTF(2, 3);
void ebbi_report_left_out(void); // says how many have not been written since the start or the fork
// Of what is found by default, with a sentence of its own. Locks of a heap may be held, the arena's may not. Ends the process.
EBBI_NORETURN void ebbi_report_said(struct ebbi_report report, const char *format, ...)
    EBBI_PRINTF(2, 3);
void ebbi_report_forget(void); // in the child of a fork: nobody else is at it

// ---- inside ----------------------------------------------------------------------------------------
bool ebbi_trace_module(const struct ebbi_trace *trace, uint32_t call, struct ebbi_os_module *out);
// json.c: one line, whole whatever the room: calls that do not fit are left out. message: the text's first line.
void ebbi_report_json(struct ebbi_text *out, const struct ebbi_report *report,
                      const struct ebbi_text *message);

#endif
