// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: atomics whose names carry the order. Each use names its partner in a comment:
//   release[a -> b]: what it publishes      acquire[b <- a]: what is now visible
//   relaxed: why no order is needed
// tools/lint_orders pairs the labels and generates docs/memory-model.md from them.
#ifndef EBB_BASE_ATOMIC_H
#define EBB_BASE_ATOMIC_H

#include "base/base.h"

// Keeps the compiler from moving stores across; no instruction.
#define ebbi_compiler_fence() __atomic_signal_fence(__ATOMIC_SEQ_CST)

#define ebbi_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define ebbi_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define ebbi_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define ebbi_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ebbi_exchange_acquire(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
#define ebbi_exchange_release(p, v) __atomic_exchange_n((p), (v), __ATOMIC_RELEASE)
#define ebbi_exchange_acq_rel(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define ebbi_fetch_or_release(p, v) __atomic_fetch_or((p), (v), __ATOMIC_RELEASE)
#define ebbi_fetch_or_acq_rel(p, v) __atomic_fetch_or((p), (v), __ATOMIC_ACQ_REL)
#define ebbi_fetch_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define ebbi_fetch_sub_relaxed(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_RELAXED)

// Strong compare-exchange; on failure *expected holds the value seen.
#define ebbi_cas_acquire(p, expected, v)                                                           \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define ebbi_cas_relaxed(p, expected, v)                                                           \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define ebbi_cas_release(p, expected, v)                                                           \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)

#endif
