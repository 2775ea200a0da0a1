// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: reports on stderr, one at a time. For signal handlers: no lock, no libc but write, and little stack.
#ifndef EBB_DEBUG_REPORT_H
#define EBB_DEBUG_REPORT_H

#include "debug/text.h"

// Behind the head of all messages. What has no room in 8 KiB is cut off. Waits for another thread's.
struct ebbi_text ebbi_report_begin(void);
void ebbi_report_end(const struct ebbi_text *text); // writes it
void ebbi_report_forget(void);                      // in the child of a fork: nobody else is at it

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

// "what by thread N at:", and a line a call.
void ebbi_text_event(struct ebbi_text *text, const char *what, const struct ebbi_event *event);
void ebbi_text_block(struct ebbi_text *text, uintptr_t block, size_t bytes); // " a block of ..."
// "address lies ... a block of ...", and the line's end.
void ebbi_text_place(struct ebbi_text *text, uintptr_t address, uintptr_t block, size_t bytes);

#endif
