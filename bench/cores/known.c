// SPDX-License-Identifier: MIT OR Apache-2.0
// A program whose figures are known: the machine has to find them.
#include <pthread.h>
#include <stdlib.h>

#include "cores/machine.h"
#include "os/lock.h"

#define TIMES 1000

static struct {
    struct ebbi_lock lock __attribute__((aligned(64)));
} own[2], turns, contended, untouched __attribute__((aligned(64)));
static struct {
    uint64_t number __attribute__((aligned(64)));
} sum, mine;

static int failures;

static void expect(const char *what, uint64_t found, uint64_t least, uint64_t most)
{
    if (found < least || found > most) {
        (void)printf("%s: %lu, not %lu to %lu\n", what, found, least, most);
        failures++;
    }
}

static void lock_for(struct ebbi_lock *lock, unsigned held, unsigned between)
{
    for (int i = 0; i < TIMES; i++) {
        ebbi_lock_take(lock);
        machine_work(held);
        ebbi_lock_drop(lock);
        machine_work(between);
    }
}

static void *work(void *argument)
{
    unsigned core = *(unsigned *)argument;
    machine_enter(core);
    machine_count(true);
    lock_for(&own[core].lock, 10, 10);
    machine_meet();
    machine_work(core * 50000); // each while the other does something else
    lock_for(&turns.lock, 1000, 99000);
    lock_for(&contended.lock, 100000, 0); // the second core waits for the first, and so on
    machine_meet();
    machine_work(core * 2500);
    for (int i = 0; i < TIMES; i++) {
        ebbi_fetch_add_relaxed(&sum.number, (uint64_t)1);
        machine_work(5000);
        if (core == 0) {
            ebbi_store_relaxed(&mine.number, (uint64_t)i);
        }
    }
    machine_leave();
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    unsigned numbers[2] = {0, 1};
    machine_start(2, true);
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) {
            abort();
        }
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        struct machine_figures f = machine_figures(&own[i]);
        expect("own taken", f.taken, TIMES, TIMES);
        expect("own waits", f.waits, 0, 0);
        expect("own shared writes", f.shared_writes, 0, 0);
    }
    struct machine_figures f = machine_figures(&turns);
    expect("turns taken", f.taken, 2 * TIMES, 2 * TIMES);
    expect("turns waits", f.waits, 0, 0);
    expect("turns shared writes", f.shared_writes, 2 * TIMES - 1, 2 * TIMES - 1);
    f = machine_figures(&contended);
    expect("contended taken", f.taken, 2 * TIMES, 2 * TIMES);
    expect("contended waits", f.waits, 2 * TIMES - 3, 2 * TIMES);
    f = machine_figures(&untouched);
    expect("untouched taken", f.taken, 0, 0);
    f = machine_figures(&sum);
    expect("sum shared writes", f.shared_writes, 2 * TIMES - 3, 2 * TIMES - 1);
    f = machine_figures(&mine);
    expect("mine shared writes", f.shared_writes, 0, 0);
    return failures != 0;
}
