// SPDX-License-Identifier: MIT OR Apache-2.0
// What hooks.c tells the machine of. `pc`: the place of the code.
#ifndef BENCH_CORES_HOOKS_H
#define BENCH_CORES_HOOKS_H

#include "cores/machine.h"

bool machine_is_on(void); // the calling thread is a simulated core
void machine_touch(const volatile void *p, size_t bytes, bool writes, void *pc);
void machine_touch_atomic(const volatile void *p, size_t bytes, bool writes, void *pc);
// Whether a word that turns from one to the other is a lock that the calling core takes.
bool machine_is_claim(uint64_t from, uint64_t to);
bool machine_claim(volatile uint64_t *word, uint64_t *expected, void *pc);
void machine_drop(const volatile void *word); // which has become 0; a lock or not
void machine_call(unsigned tenths, void *pc);
void machine_lets_others(uint64_t tenths); // after so long
size_t machine_core(size_t else_this);     // the calling thread's
size_t machine_cores(void);

#endif
