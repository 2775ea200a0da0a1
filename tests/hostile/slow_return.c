// SPDX-License-Identifier: MIT OR Apache-2.0
// Giving memory back is a system call that may take long (another thread faults, the machine is busy).
// Nobody waits for it but who makes it: each madvise that gives memory back is held up here until
// another thread has allocated, freed, opened and closed regions, retired and reclaimed, begun and ended
// threads, and forked.
//   slow_return helper|trim|exit|free|lifetimes
#include "hostile.h"
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>
#include <malloc.h>
#include <sys/syscall.h>

enum { BLOCKS = 3000, LARGE = 40, ENOUGH = 40 };

static _Thread_local int other; // a thread that must not wait
static atomic_int armed, held_up, rounds;
static const char *_Atomic doing = "nothing";

// In place of libc's.
int madvise(void *start, size_t bytes, int advice)
{
    int gives_back = advice == MADV_DONTNEED || advice == MADV_FREE;
    if (gives_back && !other && atomic_load(&armed) && atomic_load(&held_up) < ENOUGH) {
        int before = atomic_load(&rounds);
        atomic_fetch_add(&held_up, 1);
        double end = now() + 10;
        while (atomic_load(&rounds) < before + 2) { // one that began after this call
            if (now() > end)
                fail("%s waits for another thread's madvise", atomic_load(&doing));
            syscall(SYS_sched_yield);
        }
    }
    return (int)syscall(SYS_madvise, start, bytes, advice);
}

static void fill(void **blocks, unsigned seed)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = 16 + chance(&seed) % (i % 8 == 0 ? 30000 : 2000);
        blocks[i] = malloc(size);
        MUST(blocks[i] != NULL, "malloc(%zu)", size);
        memset(blocks[i], 1, size);
    }
    for (int i = 0; i < LARGE; i++) {
        blocks[BLOCKS + i] = malloc((size_t)(i + 1) * 50000);
        MUST(blocks[BLOCKS + i] != NULL, "malloc");
        memset(blocks[BLOCKS + i], 1, (size_t)(i + 1) * 50000);
    }
}

static void empty(void **blocks)
{
    for (int i = 0; i < BLOCKS + LARGE; i++)
        free(blocks[i]);
}

// A region that is closed with survivors, one that is released, and retired blocks.
static void live_and_die(void)
{
    enum { COUNT = 300 };
    void *blocks[COUNT];
    struct ebb_region *closed = ebb_region_open(NULL), *released = ebb_region_open(NULL);
    MUST(closed != NULL && released != NULL, "ebb_region_open");
    unsigned seed = 11;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = ebb_region_alloc(closed, 1 + chance(&seed) % (i % 8 == 0 ? 60000 : 3000));
        MUST(blocks[i] != NULL && ebb_region_alloc(released, 2000) != NULL, "ebb_region_alloc");
    }
    ebb_region_close(closed);
    ebb_region_release(released);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    ebb_pin();
    for (int i = 0; i < COUNT; i++)
        ebb_retire(ebb_malloc(1 + chance(&seed) % 60000));
    ebb_unpin();
    ebb_reclaim();
}

static void *short_life(void *unused)
{
    other = 1;
    unsigned seed = 7;
    churn(&seed, 300);
    return unused;
}

static void one_round(void **blocks)
{
    atomic_store(&doing, "malloc");
    fill(blocks, (unsigned)atomic_load(&rounds));
    atomic_store(&doing, "free");
    empty(blocks);
    atomic_store(&doing, "a region, or reclaiming,");
    live_and_die();
    atomic_store(&doing, "a thread that begins and ends");
    pthread_join(start(short_life, NULL), NULL);
    atomic_store(&doing, "fork");
    pid_t child = fork();
    MUST(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        unsigned seed = 9;
        churn(&seed, 300);
        _exit(0);
    }
    MUST(await_child(child, 8) == 0, "a child of fork");
    atomic_fetch_add(&rounds, 1);
}

static void *goes_on(void *unused)
{
    static void *blocks[BLOCKS + LARGE];
    other = 1;
    while (atomic_load(&armed))
        one_round(blocks);
    return unused;
}

static void work(void)
{
    static _Thread_local void *blocks[BLOCKS + LARGE];
    fill(blocks, 1);
    empty(blocks);
}

static void *works_and_ends(void *unused)
{
    work();
    return unused;
}

static void with_another(void (*body)(void))
{
    atomic_store(&armed, 1);
    pthread_t thread = start(goes_on, NULL);
    double end = now() + 60;
    while (atomic_load(&held_up) < ENOUGH && now() < end)
        body();
    MUST(atomic_load(&held_up) > 3, "%d calls only", atomic_load(&held_up));
    atomic_store(&armed, 0);
    pthread_join(thread, NULL);
    say(2, "%d calls were held up, for %d rounds", atomic_load(&held_up), atomic_load(&rounds));
}

static void sleeps(void)
{
    work();
    nap_ms(300);
}
static void trims(void)
{
    work();
    malloc_trim(0);
}
static void ends(void) { pthread_join(start(works_and_ends, NULL), NULL); }

static void by_helper(long unused) { (void)unused, with_another(sleeps); }
static void by_trim(long unused) { (void)unused, with_another(trims); }
static void by_exit(long unused) { (void)unused, with_another(ends); }
static void by_free(long unused) { (void)unused, with_another(work); }
static void by_lifetimes(long unused) { (void)unused, with_another(live_and_die); }

int main(int argc, char **argv)
{
    static const struct topic topics[] = {{"helper", by_helper},       {"trim", by_trim},
                                          {"exit", by_exit},           {"free", by_free},
                                          {"lifetimes", by_lifetimes}, {0}};
    run_topic(topics, argc, argv);
    return pass("nobody waited");
}
