// SPDX-License-Identifier: MIT OR Apache-2.0
// See scope_report.h.
#include "scope_report.h"

#include <string.h>

static const double MB = 1e-6;

static bool has_stats(void) { return scope_calls.lifetimes_get != NULL; }

void scope_sum_add(struct scope_sum *sum, const struct scope *scope)
{
    sum->threads++;
    sum->entered += scope->entered;
    sum->ended += scope->ended;
    sum->asked += scope_every == 0 ? 0 : scope->entered / scope_every;
    sum->astray += scope->astray;
}

// These programs have one label.
struct ebb_lifetime_stats scope_stats(void)
{
    struct ebb_lifetime_stats line = {0};
    if (has_stats())
        scope_calls.lifetimes_get(&line, 1);
    return line;
}

static uint64_t epochs_of(const struct ebb_lifetime_stats *line)
{
    return line->closed + line->released;
}

void scope_figures(struct bench_result *result, const struct scope_sum *sum,
                   const struct ebb_lifetime_stats *busy, const struct ebb_lifetime_stats *over)
{
    if (scope_kind == SCOPE_NONE)
        return;
    bench_figure(result, "advances", (double)(has_stats() ? epochs_of(over) : sum->ended));
    if (!has_stats())
        return;
    bench_figure(result, "slabs", (double)busy->slabs);
    bench_figure(result, "held_mb", (double)busy->held_bytes * MB);
    bench_figure(result, "pinned_mb", (double)busy->pinned_bytes * MB);
    bench_figure(result, "held_peak_mb", (double)over->peak_bytes * MB);
    if (over->closed > 0)
        bench_figure(result, "drained_percent", 100 * (double)over->drained / (double)over->closed);
    bench_figure(result, "late_allocations", (double)over->late);
    bench_figure(result, "refused_allocations", (double)over->refused);
}

// A thread's last epoch may end with the thread, and a region that is reset is released
// once more at the end.
void scope_verify(struct bench_result *result, const struct scope_sum *sum,
                  const struct ebb_lifetime_stats *over)
{
    if (scope_kind == SCOPE_NONE)
        return;
    bool was_used = !has_stats() || over->peak_bytes > 0;
    bench_verify(result, "objects_in_scope", sum->astray == 0 && was_used);
    if (!has_stats())
        return;
    uint64_t epochs = epochs_of(over);
    bench_verify(result, "epochs_as_asked",
                 epochs >= sum->asked && epochs <= sum->asked + 2 * sum->threads);
    if (scope_kind == SCOPE_DOMAIN)
        bench_verify(result, "units_counted", over->opened == sum->entered);
}
