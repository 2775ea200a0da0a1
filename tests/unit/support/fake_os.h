// SPDX-License-Identifier: MIT OR Apache-2.0
// The fake operating system of the unit tests: the real one, counted, that refuses on demand.
//
// Everything starts real: no refusal, the true clock, no limit. Threads may call at any time; the
// set-up calls belong to the test's own thread, before the calls that they are about.
#ifndef EBB_TESTS_UNIT_FAKE_OS_H
#define EBB_TESTS_UNIT_FAKE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fake_call {
    FAKE_RESERVE,
    FAKE_RESERVE_READABLE,
    FAKE_MAP,
    FAKE_COMMIT, // and make_writable
    FAKE_PURGE,
    FAKE_ADVISE_HUGE, // refused: nobody hears of it
    FAKE_GUARD,
    FAKE_RELEASE, // counted, never refused
    FAKE_RESIZE,
    FAKE_MOVE,
    FAKE_START_THREAD,
    FAKE_MEMBARRIER_REGISTER,
    FAKE_MEMBARRIER,
    FAKE_RESIDENT, // refused: unknown
    FAKE_PAGES,    // refused: no map of pages
    FAKE_YIELD,    // counted, never refused
    FAKE_CALLS
};

void fake_os_reset(void); // all settings and counts; memory that is out stays out

size_t fake_os_count(enum fake_call call);   // calls since the reset, refused ones included
size_t fake_os_refused(enum fake_call call); // of them, refused
const char *fake_os_name(enum fake_call call);
// The n-th call of this kind from now (1: the next) is refused; every one from it on if `onward`.
void fake_os_refuse(enum fake_call call, size_t n, bool onward);
void fake_os_allow(void); // no refusals any more

void fake_os_clock(uint64_t now_ms); // stands still at now_ms
void fake_os_clock_advance(uint64_t by_ms);
void fake_os_clock_step(uint64_t step_ms); // each look moves it on by step_ms
void fake_os_thread_waits(bool waits);     // meanwhile no thread runs

void fake_os_limit(size_t bytes); // of address space held, as `ulimit -v`; SIZE_MAX: none
size_t fake_os_held_bytes(void);  // address space held now

void fake_os_threaded(bool threaded);   // what the process pretends to be
void fake_os_pretend_threads(void);     // start_thread only counts, and says yes
#define FAKE_THREAD ((uint32_t)1 << 30) // numbers from here on are of threads that live
void fake_os_thread_ends(uint32_t number);
void fake_os_page_size(size_t bytes); // a multiple of the real one
void fake_os_memory(size_t bytes);    // of the machine
void fake_os_secure(bool secure);
void fake_os_cpu(size_t cpu);         // all threads from now on; else the real one
void fake_os_filtered(bool filtered); // from before the start; else not
void fake_os_huge_pages(bool by_default);
void fake_os_huge_on_request(bool on_request); // else not

struct fake_purge {
    uintptr_t start;
    size_t bytes;
};
// The latest purges, oldest first, at most `room`. Returns how many.
size_t fake_os_purges(struct fake_purge *out, size_t room);
// Called with each range before it is purged; NULL: nobody.
void fake_os_watch_purge(void (*watch)(uintptr_t start, size_t bytes));

// Called before a range is made inaccessible; NULL: nobody.
void fake_os_watch_close(void (*watch)(void));

struct fake_advice {
    uintptr_t start;
    size_t bytes;
    bool always; // else never
};
// The latest advice about huge pages that said something, oldest first, at most `room`. Returns how many.
size_t fake_os_advices(struct fake_advice *out, size_t room);

// What went to standard error since the call before; until fake_os_reset nothing is really written.
void fake_os_capture(void);
const char *fake_os_captured(void);

#endif
