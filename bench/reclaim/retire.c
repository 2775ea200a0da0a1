// SPDX-License-Identifier: MIT OR Apache-2.0
// retire: one thread allocates a node, writes it, and retires it inside a pin. First
// without a clock inside; then, with one retire per pin, once more with one operation
// in 16 timed. Schemes work in batches of powers of two, so which one of the 16 it is
// changes at random. Beside threads that are registered and idle, each advance of the
// scheme's clock has them to look at. Fails unless all was reclaimed in the end.
#include "harness/histogram.h"
#include "harness/timer.h"
#include "idlers.h"

enum { PERIOD = 16 };

static uint64_t op_count = 1000000;
static uint64_t size_bytes = sizeof(struct node);
static uint64_t batch = 1;
static uint64_t idle_count = 0;

static const struct bench_option options[] = {
    {"iters", &op_count, 10, UINT64_MAX / 128, "nodes to retire, before rounding up to batches"},
    {"size", &size_bytes, sizeof(struct node), 1 << 20, "size of a node in bytes"},
    {"batch", &batch, 1, 1000000, "retires per pin"},
    {"idle", &idle_count, 0, IDLERS_MAX, "threads that pin once, then sleep"},
};

static const struct bench_program program = {"retire", "nodes that live from malloc to retire",
                                             options, sizeof options / sizeof options[0]};

static inline void retire_batch(struct scheme_thread *me, uint64_t nodes)
{
    scheme_pin(me);
    for (uint64_t i = 0; i < nodes; i++)
        scheme_retire(me, node_create(size_bytes, i));
    scheme_unpin(me);
    scheme_poll(me);
}

// Whole batches, `ops` nodes or a little more. The number of nodes.
static uint64_t retire_many(struct scheme_thread *me, uint64_t ops)
{
    uint64_t done = 0;
    for (; done < ops; done += batch)
        retire_batch(me, batch);
    return done;
}

static void retire_one_timed(struct scheme_thread *me, const struct bench_timer *timer,
                             struct histogram *op_ns)
{
    uint64_t start = bench_timer_start();
    retire_batch(me, 1);
    uint64_t stop = bench_timer_stop();
    histogram_record(op_ns, bench_timer_ns(timer, start, stop));
}

static void retire_timed(struct scheme_thread *me, const struct bench_timer *timer,
                         struct histogram *op_ns)
{
    uint32_t r = 1;
    for (uint64_t done = 0; done < op_count / PERIOD; done++) {
        r = bench_xs32(r);
        for (uint32_t i = 0; i < PERIOD; i++) {
            if (i == r % PERIOD)
                retire_one_timed(me, timer, op_ns);
            else
                retire_batch(me, 1);
        }
    }
}

static void report_percentiles(struct bench_result *result, struct scheme_thread *me,
                               struct histogram *op_ns)
{
    struct bench_timer timer = bench_timer_open();
    retire_timed(me, &timer, op_ns);
    histogram_report(result, "op", op_ns);
    bench_timer_report(result, &timer);
    bench_verify(result, "one_op_in_16_timed", histogram_total(op_ns) == op_count / PERIOD);
}

int main(int argc, char **argv)
{
    static struct bench_result result;
    static struct scheme_thread me;
    bench_open(&program, argc, argv);
    struct histogram *op_ns = histogram_create();
    histogram_make_resident(op_ns);
    scheme_open();
    scheme_enter(&me);
    idlers_start(idle_count);
    uint64_t start_kb = bench_peak_rss_kb();
    retire_many(&me, op_count / 10);

    struct bench_clock clock;
    bench_clock_start(&clock);
    uint64_t ops = retire_many(&me, op_count);
    bench_clock_stop(&clock);
    bench_figures_of(&result, &clock, ops);
    bench_figure(&result, "ns_per_op", clock.wall_s * 1e9 / (double)ops);
    bench_figure(&result, "peak_growth_kb", (double)(bench_peak_rss_kb() - start_kb));
    if (batch == 1)
        report_percentiles(&result, &me, op_ns);

    idlers_stop(idle_count);
    scheme_leave(&me);
    scheme_flush();
    uint64_t unreclaimed = scheme_unreclaimed();
    bench_figure(&result, "unreclaimed", (double)unreclaimed);
    bench_verify(&result, "all_reclaimed", unreclaimed == 0);
    return bench_report(&program, &result);
}
