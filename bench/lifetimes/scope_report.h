// SPDX-License-Identifier: MIT OR Apache-2.0
// What libebbtide says of a label of regions or domains, as figures, checks, and a series
// over time. For the other kinds of scope there is nothing to ask: these functions then
// report what the harness itself knows.
#ifndef EBB_BENCH_LIFETIMES_SCOPE_REPORT_H
#define EBB_BENCH_LIFETIMES_SCOPE_REPORT_H

#include "scope.h"

// What all threads did, added up.
struct scope_sum {
    uint64_t threads;
    uint64_t entered;
    uint64_t ended;  // epochs, by the harness
    uint64_t asked;  // epochs that --every asked for, the threads' unfinished last ones aside
    uint64_t astray; // objects outside of their scope
};

void scope_sum_add(struct scope_sum *sum, const struct scope *scope);

// The line of the label that scope_prepare was given; all zero when there is none.
struct ebb_lifetime_stats scope_stats(void);

// The figures advances and, where libebbtide has the scope: slabs, held_mb, pinned_mb (as
// of `busy`, while the threads were still there), held_peak_mb, drained_percent,
// late_allocations, refused_allocations (as of `over`, when all was freed).
void scope_figures(struct bench_result *result, const struct scope_sum *sum,
                   const struct ebb_lifetime_stats *busy, const struct ebb_lifetime_stats *over);

// The checks objects_in_scope and, where libebbtide has the scope, units_counted and
// epochs_as_asked. None without a scope.
void scope_verify(struct bench_result *result, const struct scope_sum *sum,
                  const struct ebb_lifetime_stats *over);

// Samples resident memory, and what each label of libebbtide holds and has in use, every
// step_ms from a thread of its own. When the series is full, every other value goes and
// the step doubles. To sample makes system calls under the allocator's locks: not in runs
// that are judged by time.
void scope_sampler_start(struct bench_result *result, uint64_t step_ms);
void scope_sampler_stop(void);

#endif
