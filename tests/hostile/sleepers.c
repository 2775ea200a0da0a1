// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that allocated much, freed it all and sleep: what they keep is small, for how many threads
// there may be. It goes home by itself within seconds, or at once by malloc_trim.
//   sleepers wait|trim THREADS ORDER      2: each thread frees what its neighbour allocated
#include "hostile.h"
#include <malloc.h>

enum { MOST = 8192, THREADS_MOST = 1024 };
struct batch {
    void **blocks;
    int count;
};

static pthread_barrier_t made, done, leave;
static long order, threads;
static struct batch batches[THREADS_MOST];

static struct batch exchanged(struct batch mine, long number)
{
    if (order != 2)
        return mine;
    batches[number] = mine;
    pthread_barrier_wait(&made);
    return batches[(number + 1) % threads];
}

static void *works_then_sleeps(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    void **blocks = mmap(NULL, MOST * sizeof *blocks, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(blocks != MAP_FAILED, "mmap: %s", strerror(errno));
    int count = 0;
    for (size_t have = 0; have < (size_t)(2 * MIB) && count < MOST;) {
        size_t size = 32 + chance(&seed) % 4065; // 32 to 4096
        blocks[count] = malloc(size);
        MUST(blocks[count] != NULL, "no memory");
        memset(blocks[count++], 1, size);
        have += size;
    }
    for (int i = 0; order == 1 && i < count; i++) {
        int other = (int)(chance(&seed) % (unsigned)count);
        void *p = blocks[i];
        blocks[i] = blocks[other];
        blocks[other] = p;
    }
    struct batch batch = exchanged((struct batch){blocks, count}, (long)(uintptr_t)argument - 1);
    for (int i = 0; i < batch.count; i++)
        free(batch.blocks[i]);
    munmap(batch.blocks, MOST * sizeof *batch.blocks);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&leave);
    return NULL;
}

int main(int argc, char **argv)
{
    MUST(argc == 4, "usage: sleepers wait|trim THREADS ORDER");
    if (!under_ebbtide())
        skip("only Ebbtide promises it");
    int trim = strcmp(argv[1], "trim") == 0;
    threads = atol(argv[2]);
    order = atol(argv[3]);
    MUST(threads <= THREADS_MOST, "at most %d threads", THREADS_MOST);
    pthread_barrier_init(&made, NULL, (unsigned)threads);
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&leave, NULL, (unsigned)threads + 1);
    long before = resident();
    for (long i = 0; i < threads; i++)
        pthread_detach(start(works_then_sleeps, (void *)(i + 1)));
    pthread_barrier_wait(&done);
    long limit = before + threads * 100 * KIB;
    if (trim)
        malloc_trim(0);
    long have = trim ? resident_within(200, limit) : resident_within(4000, limit);
    MUST(have <= limit, "%ld KiB resident, %ld before, %ld a thread", have / KIB, before / KIB,
         (have - before) / KIB / threads);
    pthread_barrier_wait(&leave);
    return pass("%ld KiB resident, %ld a thread", have / KIB, (have - before) / KIB / threads);
}
