// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb_retire never fails and is no cancellation point: with a cancellation pending, and a pin that
// holds back so much that it gives up its time slice and sleeps, the thread goes on. The same for the
// functions that wait, and for regions and domains.
#include "hostile.h"
#include <ebbtide/reclaim.h>
#include <ebbtide/region.h>

static atomic_int step, stop;
static const char *const steps[] = {
    "nothing", "ebb_retire", "ebb_retire_with and ebb_retire_hooked",
    "regions", "domains",    "ebb_synchronize and ebb_barrier",
    "all"};

static void nothing(void *p, void *context) { (void)context, free(p); }

static void hooked(void *p, struct ebb_hook *hook) { (void)hook, free(p); }

static void *reader(void *unused)
{
    while (!atomic_load(&stop)) {
        ebb_pin();
        nap_ms(30);
        ebb_unpin();
    }
    return unused;
}

static void *retires(void *unused)
{
    pthread_cancel(pthread_self());
    for (int i = 0; i < 60000; i++)
        ebb_retire(malloc(64));
    atomic_store(&step, 1);
    for (int i = 0; i < 5000; i++)
        MUST(ebb_retire_with(malloc(64), nothing, NULL) == 0, "no memory");
    for (int i = 0; i < 5000; i++) {
        struct ebb_hook *hook = calloc(1, 64);
        MUST(hook != NULL, "no memory");
        ebb_retire_hooked(hook, hook, hooked);
    }
    atomic_store(&step, 2);
    for (int i = 0; i < 500; i++) {
        struct ebb_region *region = ebb_region_open(NULL);
        for (int k = 0; k < 100; k++)
            (void)ebb_region_alloc(region, 2000);
        ebb_region_release(region);
    }
    atomic_store(&step, 3);
    struct ebb_domain *domain = ebb_domain_open("cancelled");
    for (int i = 0; i < 500; i++) {
        struct ebb_scope before = ebb_domain_enter(domain);
        unsigned seed = (unsigned)i;
        churn(&seed, 100);
        ebb_leave(before);
        ebb_domain_advance(domain);
    }
    atomic_store(&step, 4);
    for (int i = 0; i < 20; i++) {
        ebb_synchronize();
        ebb_barrier();
        ebb_reclaim();
    }
    atomic_store(&step, 5);
    ebb_trim();
    atomic_store(&step, 6);
    pthread_testcancel();
    return unused;
}

int main(void)
{
    pthread_t reading = start(reader, NULL);
    void *result = NULL;
    pthread_join(start(retires, NULL), &result);
    MUST(atomic_load(&step) == 6, "cancelled after %s", steps[atomic_load(&step)]);
    MUST(result == PTHREAD_CANCELED, "not cancelled at all");
    atomic_store(&stop, 1);
    pthread_join(reading, NULL);
    return pass("cancelled where it was asked for");
}
