// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: stacks, of the debug mode alone. Each distinct one is kept once and has a number; each
// block's number lies beside the address space, 4 bytes for each unit of 16.
//
// P1  what is kept stays as it is for ever: a signal handler may read all of it at any moment.
// P2  a place is claimed by its key without a lock, filled by who claimed it, then marked as ready.
// Every thread may call everything; nothing allocates from the heap.
#ifndef EBB_DEBUG_CALLSTACK_H
#define EBB_DEBUG_CALLSTACK_H

#include "report/report.h"

// Once, before any other call here, alone. False: memory refused. May allocate.
bool ebbi_stacks_begin(void);
// The calling thread's stack; where libc cannot tell it, `caller` alone, which may be NULL. 0: none, or
// there was no room to keep it. O(its depth).
uint32_t ebbi_stack_take(const void *caller);

// p is a block, or where one begins in a sheet.
void ebbi_stack_note(const void *p, uint32_t stack);
uint32_t ebbi_stack_noted(uintptr_t p); // 0: not known
// The memory behind the notes of [start, start + bytes) goes back.
void ebbi_stack_forget(uintptr_t start, size_t bytes);

// For a report: did as in struct ebbi_trace. In a signal handler too.
struct ebbi_trace ebbi_stack_trace(const char *did, uint32_t stack);

#endif
