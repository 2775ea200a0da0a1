// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: cores WORKLOAD CORES simulated|free
//
// One workload on so many cores: first until it is what it will be, then as long as that again, counted. Prints one JSON object: operations, the time of a
// core in nanoseconds, and "places", a list for each core, place of the code and object:
// [pc, address of the object if it is a variable of the program or 0, writes to lines that others have, reads of
// lines that others have written, locks taken, of them waited for, claims refused, tenths of a nanosecond waited
// and held, system calls made there or under that lock].
#define EBB_RECLAIM_NO_INLINE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cores/machine.h"
#include "ebbtide.h"
#include "ebbtide/reclaim.h"
#include "ebbtide/region.h"

#define OWN_WORK 100 // tenths of a nanosecond of the program's own an operation
#define SLOTS 4000
#define LARGE_SLOTS 8
#define SHARED_SLOTS 4096
#define RING 512
#define OPERATIONS 6000    // that a core does, in each half
#define THREAD_WORK 200000 // tenths of a nanosecond: the system's for a thread

struct worker {
    unsigned core, cores;
    uint64_t random, operations, tenths;
    void *slots[SLOTS];
    struct ebb_domain *domain;
    struct ebb_hazard *hazard;
    pthread_t thread;
};

struct ring { // of a producer and its consumer
    void *slots[RING];
    size_t put, taken;
} __attribute__((aligned(128)));

static struct ring rings[MACHINE_CORES / 2];
static void *shared[SHARED_SLOTS];

static uint64_t next_random(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

static size_t between(struct worker *w, size_t least, size_t most)
{
    return least + next_random(w) % (most - least + 1);
}

static size_t small_size(struct worker *w) // half of them below 64 bytes
{
    return between(w, 1, (size_t)16 << next_random(w) % 7);
}

static void replace(struct worker *w, size_t slots, size_t bytes)
{
    void **slot = &w->slots[next_random(w) % slots];
    if (*slot != NULL) {
        ebb_free(*slot);
        *slot = NULL;
    } else {
        *slot = ebb_malloc(bytes);
    }
}

static void mixed(struct worker *w) { replace(w, SLOTS, small_size(w)); }

static void large(struct worker *w) { replace(w, LARGE_SLOTS, between(w, 200 << 10, 1 << 20)); }

static void *exchange(void **slot, void *p)
{
    return __atomic_exchange_n(slot, p, __ATOMIC_ACQ_REL);
}

// Whoever comes next frees it.
static void handoff(struct worker *w)
{
    ebb_free(exchange(&shared[next_random(w) % SHARED_SLOTS], ebb_malloc(small_size(w))));
}

static void pipe_through(struct worker *w)
{
    struct ring *ring = &rings[w->core / 2];
    bool puts = w->core % 2 == 0;
    size_t other = __atomic_load_n(puts ? &ring->taken : &ring->put, __ATOMIC_ACQUIRE);
    if (puts && ring->put - other < RING) {
        ring->slots[ring->put % RING] = ebb_malloc(between(w, 16, 512));
        __atomic_store_n(&ring->put, ring->put + 1, __ATOMIC_RELEASE);
    } else if (!puts && other != ring->taken) {
        ebb_free(ring->slots[ring->taken % RING]);
        __atomic_store_n(&ring->taken, ring->taken + 1, __ATOMIC_RELEASE);
    } else {
        w->operations--; // nothing to do
        machine_work(10 * OWN_WORK);
        (void)sched_yield();
    }
}

static void *short_thread(void *argument)
{
    struct worker *w = argument;
    machine_lend(w->core);
    void *p[20];
    for (int i = 0; i < 20; i++) {
        p[i] = ebb_malloc(small_size(w));
    }
    for (int i = 0; i < 20; i++) {
        ebb_free(p[i]);
    }
    return NULL;
}

static void threads(struct worker *w)
{
    pthread_t thread;
    machine_work(THREAD_WORK);
    if (pthread_create(&thread, NULL, short_thread, w) != 0) {
        abort();
    }
    (void)pthread_join(thread, NULL);
    machine_lend(w->core); // it is this thread again
}

// Three readers for each writer.
static void swap(struct worker *w, void (*retire)(void *p))
{
    void **slot = &shared[next_random(w) % 1024];
    ebb_pin();
    if (next_random(w) % 4 == 0) {
        retire(exchange(slot, ebb_malloc(64)));
    } else if (__atomic_load_n(slot, __ATOMIC_ACQUIRE) == NULL) {
        machine_work(OWN_WORK);
    }
    ebb_unpin();
}

static void retire(struct worker *w) { swap(w, ebb_retire); }

static void destroy(void *p, void *context)
{
    (void)context;
    ebb_free(p);
}

static void retire_by_call(void *p)
{
    if (p != NULL && ebb_retire_with(p, destroy, NULL) != 0) {
        abort();
    }
}

static void calls(struct worker *w) { swap(w, retire_by_call); }

static void hazards(struct worker *w)
{
    if (w->hazard == NULL) {
        w->hazard = ebb_hazard_open();
    }
    void **slot = &shared[next_random(w) % 1024];
    if (next_random(w) % 4 == 0) {
        ebb_retire(exchange(slot, ebb_malloc(64)));
    } else {
        (void)ebb_hazard_protect(w->hazard, slot);
        ebb_hazard_clear(w->hazard);
    }
}

static void regions(struct worker *w)
{
    struct ebb_region *region = ebb_region_open(NULL);
    for (int i = 0; i < 20; i++) {
        (void)ebb_region_alloc(region, small_size(w));
    }
    ebb_region_release(region);
}

static void domains(struct worker *w)
{
    if (w->domain == NULL) {
        w->domain = ebb_domain_open("requests");
        (void)ebb_domain_set_policy(w->domain, EBB_DOMAIN_SCOPES, 100);
    }
    struct ebb_scope before = ebb_domain_enter(w->domain);
    void *p[20];
    for (int i = 0; i < 20; i++) {
        p[i] = ebb_malloc(small_size(w));
    }
    for (int i = 0; i < 20; i++) {
        ebb_free(p[i]);
    }
    ebb_leave(before);
}

static const struct workload {
    const char *name;
    void (*operation)(struct worker *w);
    unsigned longer; // than the others, as an operation is
} workloads[] = {
    {"mixed", mixed, 1},      {"handoff", handoff, 1},   {"pipes", pipe_through, 1},
    {"large", large, 12},     {"threads", threads, 200}, {"retire", retire, 2},
    {"calls", calls, 4},      {"hazards", hazards, 2},   {"regions", regions, 20},
    {"domains", domains, 10},
};

static const struct workload *chosen;
static bool simulated;

static void half(struct worker *w, bool counted)
{
    uint64_t begin = machine_now();
    machine_count(counted);
    for (w->operations = 0; w->operations < OPERATIONS / chosen->longer; w->operations++) {
        machine_work(OWN_WORK);
        chosen->operation(w);
    }
    w->tenths = machine_now() - begin;
    machine_count(false);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    machine_enter(w->core);
    half(w, false);
    machine_meet();
    half(w, true);
    machine_leave();
    return NULL;
}

static void run(unsigned cores)
{
    struct worker *w = calloc(cores, sizeof *w);
    uint64_t operations = 0, tenths = 0;
    machine_start(cores, simulated);
    for (unsigned i = 0; i < cores; i++) {
        w[i].core = i;
        w[i].cores = cores;
        w[i].random = 0x9E3779B97F4A7C15u * (i + 1);
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0) {
            abort();
        }
    }
    for (unsigned i = 0; i < cores; i++) {
        (void)pthread_join(w[i].thread, NULL);
        operations += w[i].operations;
        tenths += w[i].tenths;
    }
    (void)printf("{\"workload\": \"%s\", \"cores\": %u, \"simulated\": %s, \"operations\": %lu, "
                 "\"ns\": %lu,\n\"places\": ",
                 chosen->name, cores, simulated ? "true" : "false", operations,
                 tenths / cores / 10);
    machine_print(stdout);
    (void)printf("}\n");
    free(w);
}

int main(int argc, char **argv)
{
    unsigned cores = argc > 3 ? (unsigned)atoi(argv[2]) : 0;
    for (size_t i = 0; argc > 3 && i < sizeof workloads / sizeof *workloads; i++) {
        chosen = strcmp(workloads[i].name, argv[1]) == 0 ? &workloads[i] : chosen;
    }
    if (chosen == NULL || cores < 2 || cores > MACHINE_CORES) {
        (void)fprintf(stderr, "usage: cores WORKLOAD CORES simulated|free\n");
        return 2;
    }
    simulated = strcmp(argv[3], "simulated") == 0;
    (void)setenv("EBB_PURGE_DELAY_MS", "3600000", 1); // the helper is there, and sleeps
    (void)ebb_helper_start();
    run(cores);
    return 0;
}
