// SPDX-License-Identifier: MIT OR Apache-2.0
// A small work-stealing pool. A worker runs the youngest task of its own deque, else the oldest job in
// the injector queue, else it steals the oldest task of another worker. A task is a range of numbers
// to add up: one that is longer than the grain puts its upper half into the deque. The grain is a
// setting that the main thread swaps while the workers read it, inside a pin.
#include <ebbtide/deque.h>
#include <ebbtide/queue.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 3, JOBS = 200, NUMBERS = 50000 };

struct settings {
    long grain;
};

struct task {
    long first, end;
};

struct worker {
    pthread_t thread;
    struct ebb_deque *deque;
    unsigned index;
    long sum;
    long stolen;
};

static struct worker workers[WORKERS];
static struct ebb_queue *injector;
static _Atomic(struct settings *) settings;
static atomic_long numbers_left = (long)JOBS * NUMBERS;

static void *need(void *p)
{
    if (p == NULL) {
        perror("pool");
        exit(1);
    }
    return p;
}

static struct task *task_create(long first, long end)
{
    struct task *task = need(ebb_malloc(sizeof *task));
    *task = (struct task){first, end};
    return task;
}

static long grain(void)
{
    ebb_pin();
    long value = atomic_load_explicit(&settings, memory_order_acquire)->grain;
    ebb_unpin(); // the settings may be freed from here on
    return value;
}

static void set_grain(long value)
{
    struct settings *fresh = need(ebb_malloc(sizeof *fresh));
    fresh->grain = value;
    ebb_retire(atomic_exchange_explicit(&settings, fresh, memory_order_acq_rel));
}

static void run(struct worker *me, struct task *task)
{
    while (task->end - task->first > grain()) {
        long middle = task->first + (task->end - task->first) / 2;
        if (ebb_deque_push(me->deque, task_create(middle, task->end)) != 0) {
            need(NULL);
        }
        task->end = middle;
    }
    for (long i = task->first; i < task->end; i++) {
        me->sum += i;
    }
    atomic_fetch_sub_explicit(&numbers_left, task->end - task->first, memory_order_relaxed);
    ebb_free(task); // this worker alone had it
}

static void *steal(struct worker *me)
{
    for (unsigned i = 1; i < WORKERS; i++) {
        struct worker *victim = &workers[(me->index + i) % WORKERS];
        void *task;
        enum ebb_steal result;
        do {
            result = ebb_deque_steal(victim->deque, &task);
        } while (result == EBB_STEAL_RETRY);
        if (result == EBB_STEAL_SUCCESS) {
            me->stolen++;
            return task;
        }
    }
    return NULL;
}

static void *find_task(struct worker *me)
{
    void *task;
    if (ebb_deque_pop(me->deque, &task) || ebb_queue_pop(injector, &task)) {
        return task;
    }
    return steal(me);
}

static void *work(void *argument)
{
    struct worker *me = argument;
    while (atomic_load_explicit(&numbers_left, memory_order_relaxed) > 0) {
        struct task *task = find_task(me);
        if (task != NULL) {
            run(me, task);
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void start(void)
{
    set_grain(1000);
    injector = need(ebb_queue_create());
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].index = i;
        workers[i].deque = need(ebb_deque_create(0));
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            need(NULL);
        }
    }
}

static long finish(void)
{
    long sum = 0;
    long stolen = 0;
    for (unsigned i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        sum += workers[i].sum;
        stolen += workers[i].stolen;
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        ebb_deque_destroy(workers[i].deque);
    }
    ebb_queue_destroy(injector);
    ebb_free(atomic_load(&settings));
    printf("%d jobs, %ld tasks stolen\n", JOBS, stolen);
    return sum;
}

int main(void)
{
    const long total = (long)JOBS * NUMBERS;
    start();
    for (long job = 0; job < JOBS; job++) {
        if (ebb_queue_push(injector, task_create(job * NUMBERS, (job + 1) * NUMBERS)) != 0) {
            need(NULL);
        }
        set_grain(100 + 50 * (job % 20));
    }
    const long sum = finish();
    printf("the sum of the numbers below %ld is %ld\n", total, sum);
    return sum == total / 2 * (total - 1) ? 0 : 1;
}
