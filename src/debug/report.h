// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: reports on stderr, one at a time. For signal handlers: no lock, no libc but write, and little stack.
#ifndef EBB_DEBUG_REPORT_H
#define EBB_DEBUG_REPORT_H

#include "debug/text.h"

// Behind the head of all messages. What has no room in 8 KiB is cut off. Waits for another thread's.
struct ebbi_text ebbi_report_begin(void);
void ebbi_report_end(const struct ebbi_text *text); // writes it
void ebbi_report_forget(void);                      // in the child of a fork: nobody else is at it

#endif
