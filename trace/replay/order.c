// SPDX-License-Identifier: MIT OR Apache-2.0
// Turns. A thread that waits for a turn spins a little, then sleeps on a word that it shares with the turns that are
// equal to its own modulo WORDS; who passes the turn on wakes that word, if it is set.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trace/replay/replay.h"

enum { WORDS = 1024, SPINS = 100 };

static _Atomic uint64_t turn;
static _Atomic uint32_t *asleep;

void order_open(void) { asleep = map_shared(WORDS * sizeof *asleep); }

static void sleep_for(uint64_t wanted)
{
    _Atomic uint32_t *word = &asleep[wanted % WORDS];
    while (atomic_load(&turn) != wanted) {
        atomic_store(word, 1); // seq_cst, as all here: either the passer sees it or we see the turn
        if (atomic_load(&turn) != wanted) {
            (void)syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0);
        }
    }
}

void pass_turn(uint64_t next)
{
    _Atomic uint32_t *word = &asleep[next % WORDS];
    atomic_store(&turn, next);
    if (atomic_load(word) != 0) {
        atomic_store(word, 0);
        (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

// In serial order the turn stays until the chunk has ended.
void wait_for_turn(uint64_t wanted)
{
    for (int i = 0; i < SPINS && atomic_load_explicit(&turn, memory_order_acquire) != wanted; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    sleep_for(wanted);
    if (!replay.is_serial) {
        pass_turn(wanted + 1);
    }
}
