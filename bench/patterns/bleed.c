// SPDX-License-Identifier: MIT OR Apache-2.0
// bleed: as many tables of blocks as threads go round a ring. Who has a table checks and frees some
// of its blocks, puts others in their place and passes the table on, so each fills with blocks of
// many heaps. After some visits the threads exit, and successors take their places.
#include "harness/block.h"

#include <pthread.h>

enum { THREADS_MAX = 32, SLOTS = 2000 };

static uint64_t thread_count = 4;
static uint64_t replaced = 500;
static uint64_t generation_count = 200;
static uint64_t visit_count = 60;
static uint64_t scale = 100;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"threads", &thread_count, 2, THREADS_MAX, "threads of the ring, and tables"},
    {"replaced", &replaced, 1, 1000000, "blocks that a visit replaces"},
    {"generations", &generation_count, 1, 1000000, "threads that follow each other in a place"},
    {"visits", &visit_count, 1, 1000000, "visits of each thread"},
    {"scale", &scale, 1, 10000, "percent of the generations"},
    {"seed", &seed, 1, UINT32_MAX, "seed of the first table"},
};

static const struct bench_program program = {
    "bleed", "blocks pass from thread to thread, and are freed far from where they were made",
    options, sizeof options / sizeof options[0]};

// Its generator travels with it, so what is done to it does not depend on who does it.
struct table {
    struct block slots[SLOTS];
    uint32_t state;
    uint64_t visits;
    uint64_t damaged;
};

static struct table *tables;
static pthread_t threads[THREADS_MAX];
static pthread_barrier_t visited;

// 16 to 1,023 bytes: each doubling of the size is as likely as the one before.
static struct block new_block(uint32_t r)
{
    uint64_t low = 16ULL << (r >> 16) % 6;
    return block_make(block_size(r, low, 2 * low - 1), (unsigned char)(r >> 24));
}

static void remove_block(struct table *table, const struct block *slot)
{
    table->damaged += !block_is_intact(slot);
    free(slot->start);
}

static void visit(struct table *table)
{
    uint32_t r = table->state;
    for (uint64_t i = 0; i < replaced; i++) {
        r = bench_xs32(r);
        struct block *slot = &table->slots[r % SLOTS];
        remove_block(table, slot);
        r = bench_xs32(r);
        *slot = new_block(r);
    }
    table->state = r;
    table->visits++;
}

// The barrier passes all tables on at once: this thread's next one is its neighbour's.
static void *run_thread(void *argument)
{
    uint64_t place = (uint64_t)((struct table *)argument - tables);
    for (uint64_t i = 0; i < visit_count; i++) {
        visit(&tables[(place + i) % thread_count]);
        pthread_barrier_wait(&visited);
    }
    return NULL;
}

static void run_generation(void)
{
    for (uint64_t i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], NULL, run_thread, &tables[i]) != 0)
            bench_fail("cannot start a thread");
    for (uint64_t i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
}

static void fill_table(struct table *table, uint32_t index)
{
    uint32_t r = (uint32_t)seed + index * 7919U;
    r += r == 0; // a zero state would stay zero for ever
    for (uint32_t k = 0; k < SLOTS; k++) {
        r = bench_xs32(r);
        table->slots[k] = new_block(r);
    }
    table->state = r;
}

static void empty_table(struct table *table)
{
    for (uint32_t k = 0; k < SLOTS; k++)
        remove_block(table, &table->slots[k]);
}

int main(int argc, char **argv)
{
    bench_open(&program, argc, argv);
    uint64_t generations = generation_count * scale / 100 + 1;
    tables = bench_map(thread_count * sizeof *tables);
    pthread_barrier_init(&visited, NULL, (unsigned)thread_count);
    for (uint32_t i = 0; i < thread_count; i++)
        fill_table(&tables[i], i);

    struct bench_clock clock;
    struct bench_result result = {0};
    bench_clock_start(&clock);
    for (uint64_t i = 0; i < generations; i++)
        run_generation();
    bench_clock_stop(&clock);

    uint64_t damaged = 0, visits = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        empty_table(&tables[i]);
        damaged += tables[i].damaged;
        visits += tables[i].visits;
    }
    bench_figures_of(&result, &clock, visits * replaced);
    bench_figure(&result, "generations", (double)generations);
    bench_verify(&result, "contents_intact", damaged == 0);
    bench_verify(&result, "every_table_visited",
                 visits == generations * visit_count * thread_count);
    return bench_report(&program, &result);
}
