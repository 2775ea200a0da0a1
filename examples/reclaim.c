// SPDX-License-Identifier: MIT OR Apache-2.0
// Pin and retire: one writer swaps a configuration, readers use it without a lock. A reader pins, so
// the configuration it has loaded stays; the writer retires the old one instead of freeing it.
#include <ebbtide/reclaim.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { READERS = 3, VERSIONS = 20000 };

struct config {
    int version;
    int limits[4]; // always {version, 2 * version, 3 * version, 4 * version}
};

static _Atomic(struct config *) current;
static atomic_bool done;
static atomic_int torn;

static struct config *config_create(int version)
{
    struct config *config = ebb_malloc(sizeof *config);
    if (config != NULL) {
        config->version = version;
        for (int i = 0; i < 4; i++) {
            config->limits[i] = (i + 1) * version;
        }
    }
    return config;
}

static int is_whole(const struct config *config)
{
    for (int i = 0; i < 4; i++) {
        if (config->limits[i] != (i + 1) * config->version) {
            return 0;
        }
    }
    return 1;
}

static void *read_configs(void *unused)
{
    (void)unused;
    while (!atomic_load(&done)) {
        ebb_pin();
        const struct config *config = atomic_load_explicit(&current, memory_order_acquire);
        if (!is_whole(config)) {
            atomic_fetch_add(&torn, 1);
        }
        ebb_unpin(); // config must not be used any more
    }
    return NULL;
}

static int swap_configs(void)
{
    for (int version = 2; version <= VERSIONS; version++) {
        struct config *fresh = config_create(version);
        if (fresh == NULL) {
            return -1;
        }
        struct config *old = atomic_exchange_explicit(&current, fresh, memory_order_acq_rel);
        ebb_retire(old); // freed when no pin is left that may have loaded it
    }
    return 0;
}

int main(void)
{
    pthread_t readers[READERS];
    atomic_store(&current, config_create(1));
    if (atomic_load(&current) == NULL) {
        return 1;
    }
    for (int i = 0; i < READERS; i++) {
        if (pthread_create(&readers[i], NULL, read_configs, NULL) != 0) {
            return 1;
        }
    }
    int status = swap_configs();
    atomic_store(&done, 1);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
    }
    struct config *last = atomic_load(&current);
    printf("version %d, %d torn reads\n", last->version, atomic_load(&torn));
    int wrong = status != 0 || last->version != VERSIONS || atomic_load(&torn) != 0;
    ebb_free(last);
    ebb_barrier();
    return wrong;
}
