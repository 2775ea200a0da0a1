// SPDX-License-Identifier: MIT OR Apache-2.0
// fork() at any point while three threads use everything that Ebbtide has. The child uses all of it
// again, alone and in a thread of its own, perhaps in a child of its own, and ends.
#include "hostile.h"
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

static struct ebb_domain *domain;
static struct ebb_region *shared;
static struct ebb_collector *collector;
static _Atomic(void *) published;
static atomic_int destroyed;

static void destroy(void *p, void *context)
{
    (void)context;
    atomic_fetch_add(&destroyed, 1);
    free(p);
}

static void must_have(const void *p, const char *what) { MUST(p != NULL, "%s: no memory", what); }

static void use_regions(unsigned *seed)
{
    struct ebb_region_options closes = {.label = "closes", .closes = 1};
    struct ebb_region *regions[2] = {ebb_region_open(NULL), ebb_region_open(&closes)};
    void *survivors[30] = {NULL};
    for (int i = 0; i < 2; i++) {
        must_have(regions[i], "ebb_region_open");
        for (int k = 0; k < 30; k++) {
            void *p = ebb_region_alloc(regions[i], 1 + chance(seed) % 2000);
            must_have(p, "ebb_region_alloc");
            if (k % 3 == 0)
                ebb_free(p);
            else if (i == 1)
                survivors[k] = p;
        }
    }
    void *p = ebb_region_alloc(shared, 1 + chance(seed) % 300);
    must_have(p, "the shared region");
    ebb_free(p);
    ebb_region_release(regions[0]);
    ebb_region_close(regions[1]);
    for (int k = 0; k < 30; k++)
        ebb_free(survivors[k]);
}

static void use_domain(unsigned *seed)
{
    struct ebb_scope before = ebb_domain_enter(domain);
    void *blocks[40];
    for (int i = 0; i < 40; i++)
        blocks[i] = malloc(1 + chance(seed) % 1000);
    for (int i = 0; i < 40; i++)
        free(blocks[i]);
    ebb_leave(before);
    if (chance(seed) % 8 == 0)
        ebb_domain_advance(domain);
}

static void use_reclamation(unsigned *seed)
{
    struct ebb_hazard *hazard = ebb_hazard_open();
    must_have(hazard, "ebb_hazard_open");
    for (int i = 0; i < 40; i++) {
        ebb_pin();
        char *fresh = malloc(64);
        must_have(fresh, "malloc");
        fresh[0] = 1;
        char *old = atomic_exchange(&published, fresh);
        if (old != NULL)
            MUST(old[0] == 1, "a retired block was used again");
        if (i % 10 == 0)
            MUST(ebb_retire_with(old, destroy, NULL) == 0, "ebb_retire_with");
        else
            ebb_retire(old);
        ebb_unpin();
        char *seen = ebb_hazard_protect(hazard, (void *const *)(void *)&published);
        if (seen != NULL)
            MUST(seen[0] == 1, "a protected block was freed");
        ebb_hazard_clear(hazard);
    }
    ebb_hazard_close(hazard);
    struct ebb_participant *me = ebb_collector_attach(collector);
    must_have(me, "ebb_collector_attach");
    ebb_participant_pin(me);
    MUST(ebb_participant_retire(me, malloc(100)) == 0, "ebb_participant_retire");
    ebb_participant_unpin(me);
    if (chance(seed) % 8 == 0)
        ebb_reclaim();
    if (chance(seed) % 16 == 0)
        ebb_synchronize();
    if (chance(seed) % 16 == 0)
        ebb_barrier();
}

static void use_everything(unsigned *seed)
{
    churn(seed, 300);
    use_regions(seed);
    use_domain(seed);
    use_reclamation(seed);
    if (chance(seed) % 32 == 0)
        ebb_trim();
}

static void *uses_once(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    use_everything(&seed);
    return NULL;
}

static _Noreturn void *uses_always(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (;;)
        use_everything(&seed); // until the process ends
}

// Ends the process. Each generation forks the next while a thread of its own is busy.
static _Noreturn void child(unsigned seed, int generations)
{
    for (;; generations--, seed += 2) {
        for (int i = 0; i < 3; i++)
            use_everything(&seed);
        pthread_t thread = start(uses_once, (void *)(uintptr_t)seed);
        use_everything(&seed);
        pthread_join(thread, NULL);
        ebb_synchronize();
        ebb_barrier();
        if (generations == 0)
            exit(0);
        thread = start(uses_once, (void *)(uintptr_t)(seed + 1));
        pid_t next = fork();
        MUST(next >= 0, "fork: %s", strerror(errno));
        if (next == 0)
            continue;
        int status = await_child(next, 15);
        MUST(status == 0, "generation %d: %s", generations, status_text(status));
        pthread_join(thread, NULL);
        exit(0);
    }
}

int main(int argc, char **argv)
{
    long count = scaled(argc > 1 ? atol(argv[1]) : 500);
    int generations = argc > 2 ? atoi(argv[2]) : 0;
    domain = ebb_domain_open("hostile");
    shared = ebb_region_open(NULL);
    collector = ebb_collector_create(0);
    MUST(domain != NULL && shared != NULL && collector != NULL, "cannot set up");
    MUST(ebb_domain_set_policy(domain, EBB_DOMAIN_SCOPES, 3) == 0, "ebb_domain_set_policy");
    for (long i = 0; i < 3; i++)
        start(uses_always, (void *)(i + 1));
    unsigned seed = 99;
    int hung = 0, failed = 0, last = 0;
    double end = now() + 50 * (double)scaled(1);
    long done = 0;
    for (; done < count && now() < end && hung < 2; done++) {
        use_everything(&seed);
        int pinned = done % 5 == 0; // the pin goes on in the child
        if (pinned)
            ebb_pin();
        pid_t process = fork();
        MUST(process >= 0, "fork: %s", strerror(errno));
        if (pinned && process != 0)
            ebb_unpin();
        if (process == 0 && pinned) {
            MUST(ebb_is_pinned(), "the pin did not go on in the child");
            free(malloc(100));
            ebb_retire(malloc(100));
            ebb_unpin();
        }
        if (process == 0)
            child((unsigned)done, generations);
        int status = await_child(process, 20);
        if (status == HUNG)
            hung++;
        else if (status != 0)
            failed++;
        if (status != 0)
            last = status;
    }
    MUST(hung == 0 && failed == 0, "of %ld children %d hung and %d failed, the last with %s", done,
         hung, failed, status_text(last));
    MUST(done == count, "only %ld of %ld forks in the time", done, count);
    pass("%ld children", done);
    _exit(0);
}
