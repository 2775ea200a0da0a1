// SPDX-License-Identifier: MIT OR Apache-2.0
// request: workers serve requests. One request allocates 225 objects (66 of 88, 72
// of 184, 87 of 376 bytes, in a random order, about 52 KB), writes both ends of each
// and frees them in the order of allocation, so that 45 are live at a time.
//
// Closed loop: a worker takes the next request when it is done with the last. Open
// loop: request k is due at k / rate, and its latency counts from then, even when
// every worker was busy: a slow request is not hidden by those it held up. With --burst
// (arrival.h) the requests of bursts are also told by themselves, and how long after the
// end of a burst the last of its requests was done.
//
// With --scope a request is a unit of work of a domain, region, heap or arena, and each
// --every requests of a worker are an epoch (lifetimes/scope.h). With --free 0 objects go
// at the epoch's end; their contents are checked as they leave their use. Requests of
// variant 2 with an epoch each are routed wrongly: 1 % of their objects outlive it.
//
// Survivors (variants 2 and 3) wait in a bounded queue and are linked through their
// own bytes: the harness has no array for them, whose pages would be resident.
#include "arrival.h"
#include "harness/histogram.h"
#include "harness/timer.h"
#include "lifetimes/scope_report.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    WORKERS_MAX = 64,
    OBJECTS = 225,
    LIVE_MAX = 45,
    PER_CENT = 100,
    NS_PER_MS = 1000000,
    NS_PER_S = 1000000000,
};

enum variant { PLAIN, HOLD_ALL, MIXED_SESSION, WRONG_THREAD };

static uint64_t worker_count = 4;
static uint64_t request_count = 1200;
static uint64_t is_open_loop = 0;
static uint64_t variant = PLAIN;
static uint64_t survive_ms = 30000;
static uint64_t queue_limit = 20000;
static uint64_t sample_ms = 0;
static uint64_t seed = 1;

static const struct bench_option options[] = {
    {"workers", &worker_count, 1, WORKERS_MAX, "threads that serve"},
    {"requests", &request_count, 10, UINT64_MAX / 1024, "requests of all workers together"},
    {"loop", &is_open_loop, 0, 1, "0 closed, 1 open"},
    ARRIVAL_OPTIONS,
    {"variant", &variant, PLAIN, WRONG_THREAD,
     "0 plain, 1 hold-all, 2 mixed-session, 3 wrong-thread"},
    {"survive-ms", &survive_ms, 0, 3600000, "how long 1 % of the objects survive (2, 3)"},
    {"queue-limit", &queue_limit, 1, 100000000, "most survivors of one worker (2, 3)"},
    {"sample-ms", &sample_ms, 0, 60000, "memory over time, a sample each N ms; 0: none"},
    {"seed", &seed, 0, UINT32_MAX, "seed of the first worker"},
    SCOPE_OPTIONS,
};

static const struct bench_program program = {"request",
                                             "threads serve requests of 225 objects each", options,
                                             sizeof options / sizeof options[0]};

struct object {
    unsigned char *block;
    uint16_t size_bytes;
    unsigned char mark;
};

// The start of a surviving object; its last byte still has the mark.
struct survivor {
    struct survivor *next;
    uint64_t due_ns;
    uint16_t size_bytes;
    unsigned char mark;
};

// Oldest first. Linked and unlinked under the lock; who unlinks, frees.
struct queue {
    pthread_mutex_t lock;
    struct survivor *first;
    struct survivor **last;
    uint64_t length;
};

struct worker {
    _Alignas(BENCH_LINE_BYTES) pthread_t thread;
    uint32_t state;
    uint16_t sizes[OBJECTS];
    struct object objects[OBJECTS];
    uint64_t now_ns; // when the running request was taken up
    struct histogram *request_ns;
    struct histogram *burst_ns; // of those that were due in a burst
    uint64_t recovery_ns;       // the longest from a burst's end to that of its last request
    struct scope scope;
    uint64_t left_to_scope; // objects that go at the end of the epoch
    uint64_t requests;
    uint64_t allocated;
    uint64_t freed;
    uint64_t survived;
    uint64_t cut_short;
    uint64_t failed;
    uint64_t spoiled;
    // What this worker is to free, put there by itself or by its neighbour.
    _Alignas(BENCH_LINE_BYTES) struct queue queue;
};

static struct worker workers[WORKERS_MAX];
static struct bench_timer timer;
static uint64_t origin; // ticks when the first request is due; set before `ready` opens
static _Alignas(BENCH_LINE_BYTES) atomic_uint_fast64_t next_request;

// Resident memory. The first is written by the one worker that draws that request.
static struct {
    double after_tenth_mb;
    double served_mb;
    double drained_mb;
} memory;

// What libebbtide says of the scopes: when the last request is served, and after all.
static struct ebb_lifetime_stats scopes_busy;
static struct ebb_lifetime_stats scopes_over;

static pthread_barrier_t ready;
static pthread_barrier_t served;
static pthread_barrier_t drain;

static double rss_mb(void) { return (double)bench_rss_kb() * 1024e-6; }

static uint32_t below(uint32_t r, uint32_t limit) { return (uint32_t)((uint64_t)r * limit >> 32); }

// --- objects -----------------------------------------------------------------

static void list_sizes(uint16_t *sizes)
{
    static const struct {
        uint16_t size_bytes;
        uint16_t count;
    } kinds[] = {{88, 66}, {184, 72}, {376, 87}};
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        for (uint16_t i = 0; i < kinds[kind].count; i++)
            *sizes++ = kinds[kind].size_bytes;
}

static void shuffle_sizes(struct worker *worker)
{
    uint32_t r = worker->state;
    for (uint32_t left = OBJECTS; left > 1; left--) {
        r = bench_lcg(r);
        uint32_t pick = below(r, left);
        uint16_t size_bytes = worker->sizes[left - 1];
        worker->sizes[left - 1] = worker->sizes[pick];
        worker->sizes[pick] = size_bytes;
    }
    worker->state = r;
}

// NULL is counted and the request goes on without the object.
static void make_object(struct worker *worker, uint32_t index)
{
    struct object *object = &worker->objects[index];
    object->size_bytes = worker->sizes[index];
    object->mark = (unsigned char)(worker->requests + index);
    object->block = scope_alloc(&worker->scope, object->size_bytes);
    if (object->block == NULL) {
        worker->failed++;
        return;
    }
    bench_touch(object->block, object->size_bytes, object->mark);
    worker->allocated++;
}

static void free_object(struct worker *worker, const struct object *object)
{
    const unsigned char *block = object->block;
    worker->spoiled += block[0] != object->mark || block[object->size_bytes - 1] != object->mark;
    if (!scope_frees_objects()) {
        worker->left_to_scope++;
        return;
    }
    scope_free(&worker->scope, object->block);
    worker->freed++;
}

static void end_epoch(struct worker *worker)
{
    worker->freed += worker->left_to_scope;
    worker->left_to_scope = 0;
}

// --- survivors ---------------------------------------------------------------

static struct worker *who_frees(struct worker *worker)
{
    if (variant != WRONG_THREAD)
        return worker;
    return &workers[(uint64_t)(worker - workers + 1) % worker_count];
}

static void keep_object(struct worker *worker, const struct object *object)
{
    struct queue *queue = &who_frees(worker)->queue;
    struct survivor *survivor = (struct survivor *)(void *)object->block;
    *survivor = (struct survivor){
        .due_ns = worker->now_ns + survive_ms * NS_PER_MS,
        .size_bytes = object->size_bytes,
        .mark = object->mark,
    };
    pthread_mutex_lock(&queue->lock);
    *queue->last = survivor;
    queue->last = &survivor->next;
    queue->length++;
    pthread_mutex_unlock(&queue->lock);
    worker->survived++;
}

// The oldest one whose time is over at `now_ns`, or that has to leave because the queue
// is over its limit.
static struct survivor *pop_due(struct worker *worker, uint64_t now_ns)
{
    struct queue *queue = &worker->queue;
    pthread_mutex_lock(&queue->lock);
    struct survivor *oldest = queue->first;
    bool is_due = oldest != NULL && oldest->due_ns <= now_ns;
    if (is_due || queue->length > queue_limit) {
        worker->cut_short += !is_due;
        queue->first = oldest->next;
        if (queue->first == NULL)
            queue->last = &queue->first;
        queue->length--;
    } else {
        oldest = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    return oldest;
}

static void free_survivors(struct worker *worker, uint64_t now_ns)
{
    struct survivor *survivor = pop_due(worker, now_ns);
    for (; survivor != NULL; survivor = pop_due(worker, now_ns)) {
        const unsigned char *block = (unsigned char *)survivor;
        worker->spoiled += block[survivor->size_bytes - 1] != survivor->mark;
        free(survivor);
        worker->freed++;
    }
}

static bool has_survivors(void) { return variant == MIXED_SESSION || variant == WRONG_THREAD; }

static bool survives(struct worker *worker)
{
    if (!has_survivors())
        return false;
    worker->state = bench_lcg(worker->state);
    return below(worker->state, PER_CENT) == 0;
}

// --- requests ----------------------------------------------------------------

static void end_object(struct worker *worker, uint32_t index)
{
    const struct object *object = &worker->objects[index];
    if (object->block == NULL)
        return;
    if (survives(worker))
        keep_object(worker, object);
    else
        free_object(worker, object);
}

static void run_objects(struct worker *worker)
{
    uint32_t live_max = variant == HOLD_ALL ? OBJECTS : LIVE_MAX;
    if (has_survivors())
        free_survivors(worker, worker->now_ns);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        if (i >= live_max)
            end_object(worker, i - live_max);
        make_object(worker, i);
    }
    for (uint32_t i = OBJECTS - live_max; i < OBJECTS; i++)
        end_object(worker, i);
}

static void serve(struct worker *worker)
{
    scope_enter(&worker->scope);
    if (worker->requests == 0)
        scope_probe(&worker->scope, worker->sizes[0]);
    run_objects(worker);
    if (scope_leave(&worker->scope))
        end_epoch(worker);
}

static uint64_t now_ns(void) { return bench_timer_since(&timer, origin); }

// When the request starts, in time since `origin`: now, or in the open loop when it
// is due, which may be long over.
static uint64_t start_of(uint64_t request)
{
    uint64_t now = now_ns();
    if (!is_open_loop)
        return now;
    uint64_t due = arrival_due_ns(request);
    for (; now < due; now = now_ns()) {
        uint64_t left = due - now;
        struct timespec delay = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
        nanosleep(&delay, NULL);
    }
    return due;
}

static void record_burst(struct worker *worker, uint64_t request, uint64_t end, uint64_t took_ns)
{
    histogram_record(worker->burst_ns, took_ns);
    uint64_t over = arrival_burst_end_ns(request);
    if (end > over && end - over > worker->recovery_ns)
        worker->recovery_ns = end - over;
}

// The order of sizes is drawn before the request starts.
static void run_request(struct worker *worker, uint64_t request)
{
    if (request == request_count / 10)
        memory.after_tenth_mb = rss_mb();
    shuffle_sizes(worker);
    uint64_t start = start_of(request);
    worker->now_ns = now_ns();
    serve(worker);
    uint64_t end = now_ns();
    uint64_t took_ns = end < start ? 0 : end - start;
    histogram_record(worker->request_ns, took_ns);
    if (arrival_is_in_burst(request))
        record_burst(worker, request, end, took_ns);
    worker->requests++;
}

// Relaxed: the counter hands out numbers, it publishes nothing. The sleep of the open
// loop is asked to end on time; by default the kernel may add 50 us.
static void *run_worker(void *argument)
{
    struct worker *worker = argument;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    pthread_barrier_wait(&ready);
    for (;;) {
        uint64_t request = atomic_fetch_add_explicit(&next_request, 1, memory_order_relaxed);
        if (request >= request_count)
            break;
        run_request(worker, request);
    }
    pthread_barrier_wait(&served);
    pthread_barrier_wait(&drain);
    free_survivors(worker, UINT64_MAX);
    if (scope_finish(&worker->scope))
        end_epoch(worker);
    return NULL;
}

static void start_worker(struct worker *worker, uint32_t index)
{
    worker->state = (uint32_t)seed + index * 7919U;
    list_sizes(worker->sizes);
    pthread_mutex_init(&worker->queue.lock, NULL);
    worker->queue.last = &worker->queue.first;
    worker->request_ns = histogram_create();
    histogram_make_resident(worker->request_ns);
    worker->burst_ns = histogram_create();
    if (arrival_has_bursts())
        histogram_make_resident(worker->burst_ns);
    if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0)
        bench_fail("cannot start worker %u", index);
}

static void start_workers(void)
{
    unsigned parties = (unsigned)worker_count + 1;
    pthread_barrier_init(&ready, NULL, parties);
    pthread_barrier_init(&served, NULL, parties);
    pthread_barrier_init(&drain, NULL, parties);
    for (uint32_t i = 0; i < worker_count; i++)
        start_worker(&workers[i], i);
}

// --- report ------------------------------------------------------------------

static void join_workers(void)
{
    for (uint64_t i = 0; i < worker_count; i++)
        pthread_join(workers[i].thread, NULL);
}

// Adds all workers up in the first, and their scopes.
static const struct worker *add_up(struct scope_sum *scopes)
{
    struct worker *sum = &workers[0];
    for (uint64_t i = 0; i < worker_count; i++)
        scope_sum_add(scopes, &workers[i].scope);
    for (uint64_t i = 1; i < worker_count; i++) {
        struct worker *worker = &workers[i];
        histogram_merge(sum->request_ns, worker->request_ns);
        histogram_merge(sum->burst_ns, worker->burst_ns);
        if (worker->recovery_ns > sum->recovery_ns)
            sum->recovery_ns = worker->recovery_ns;
        sum->requests += worker->requests;
        sum->allocated += worker->allocated;
        sum->freed += worker->freed;
        sum->survived += worker->survived;
        sum->cut_short += worker->cut_short;
        sum->failed += worker->failed;
        sum->spoiled += worker->spoiled;
    }
    return sum;
}

static void report_memory(struct bench_result *result)
{
    double growth_mb = memory.served_mb - memory.after_tenth_mb;
    bench_figure(result, "rss_after_tenth_mb", memory.after_tenth_mb);
    bench_figure(result, "rss_after_requests_mb", memory.served_mb);
    bench_figure(result, "rss_growth_percent", 100 * growth_mb / memory.after_tenth_mb);
    bench_figure(result, "rss_after_drain_mb", memory.drained_mb);
}

static void report_requests(struct bench_result *result, const struct worker *sum)
{
    histogram_report(result, "request", sum->request_ns);
    if (arrival_has_bursts()) {
        histogram_report(result, "burst", sum->burst_ns);
        bench_figure(result, "burst_recovery_ms", (double)sum->recovery_ns / NS_PER_MS);
    }
    bench_figure(result, "survivors", (double)sum->survived);
    bench_figure(result, "survivors_cut_short", (double)sum->cut_short);
    bench_figure(result, "failed_allocations", (double)sum->failed);
    bench_verify(result, "every_request_served",
                 sum->requests == request_count &&
                     histogram_total(sum->request_ns) == request_count);
    bench_verify(result, "every_object_freed",
                 sum->freed == sum->allocated &&
                     sum->allocated + sum->failed == request_count * OBJECTS);
    bench_verify(result, "contents_intact", sum->spoiled == 0);
    bench_verify(result, "no_failed_allocation", sum->failed == 0);
}

static void report(struct bench_result *result)
{
    struct scope_sum scopes = {0};
    const struct worker *sum = add_up(&scopes);
    report_memory(result);
    report_requests(result, sum);
    scope_figures(result, &scopes, &scopes_busy, &scopes_over);
    scope_verify(result, &scopes, &scopes_over);
    bench_timer_report(result, &timer);
}

static void run_requests(struct bench_result *result, struct bench_clock *clock)
{
    if (sample_ms > 0)
        scope_sampler_start(result, sample_ms);
    bench_clock_start(clock);
    origin = bench_timer_start();
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&served);
    bench_clock_stop(clock);
    memory.served_mb = rss_mb();
    scopes_busy = scope_stats();
    pthread_barrier_wait(&drain);
    join_workers();
    memory.drained_mb = rss_mb();
    scopes_over = scope_stats();
    if (sample_ms > 0)
        scope_sampler_stop();
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    bench_open(&program, argc, argv);
    arrival_check(is_open_loop != 0);
    if (variant == WRONG_THREAD && worker_count < 2)
        bench_fail("--variant 3 wants two workers: one frees what the other allocated");
    scope_prepare("requests", has_survivors());
    timer = bench_timer_open();
    start_workers();

    struct bench_clock clock;
    run_requests(&result, &clock);
    bench_figures_of(&result, &clock, request_count);
    bench_figure(&result, "ns_per_object",
                 clock.cpu_s * NS_PER_S / (double)(request_count * OBJECTS));
    report(&result);
    return bench_report(&program, &result);
}
