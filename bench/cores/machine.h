// SPDX-License-Identifier: MIT OR Apache-2.0
// What the library would do on a machine with as many cores as the program has threads. The library is compiled so
// that each access to memory calls a function of hooks.c (the compiler's -fsanitize=thread, whose run time is
// not linked); this counts it, and says what it would have cost.
//
// Simulated, a thread is a core with a clock of its own. One runs at a time: the one whose clock is furthest
// behind, which gives way between operations and before each atomic read-modify-write, so that these, locks among
// them, happen in the order of the clocks. Caches are of any size and keep lines until another core writes them.
//
// M1  a line has the set of cores that have it. A read by one that has it not fetches it; a write by one that has it
//     not alone takes it from the others. Both cost a transfer, if others have it.
// M2  an atomic read-modify-write that has not its line alone waits for its turn: a line moves once at a time.
// M3  who waits for a lock goes on when it has been dropped, in order; the waiting costs nothing else.
// M4  time, the processor and the number of processors are the machine's for the library, too.
//
// Free, the threads run as they do; only locks are counted, as the library finds them.
#ifndef BENCH_CORES_MACHINE_H
#define BENCH_CORES_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MACHINE_CORES 128

// Tenths of a nanosecond.
enum machine_cost {
    COST_HIT =
        3, // with the instructions around: a malloc and free pair, measured, is 5.5 ns for some 20
    COST_ATOMIC = 60,
    COST_TRANSFER = 1000,
    COST_COLD = 800,   // nobody had it
    COST_CALL = 10000, // of the kernel, its own locks left out
    COST_NAP = 10000000,
};

// Once, alone, before any thread enters. `cores` of them will.
void machine_start(unsigned cores, bool simulated);
// The calling thread is this core from now on, and begins when all have entered.
void machine_enter(unsigned core);
void machine_lend(unsigned core); // to the calling thread, while the one that entered waits for it
void machine_count(bool counted); // what this core does from now on, for the figures
void machine_work(unsigned tenths); // of the program's own; other cores may go on
uint64_t machine_now(void);         // this core's clock, in tenths of a nanosecond
void machine_meet(void);            // goes on when all cores have come here
void machine_leave(void);
// As JSON: one list for each place of the code and object; see cores.c. When all have left.
void machine_print(FILE *out);

struct machine_figures {
    uint64_t shared_writes, fetches, taken, waits, refused;
};
struct machine_figures machine_figures(const void *object); // a variable of the program

#endif
