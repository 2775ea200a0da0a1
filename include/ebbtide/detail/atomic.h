// SPDX-License-Identifier: MIT OR Apache-2.0
// Atomics whose names carry the order; the engine, the inline half of pin and unpin, and the blocks
// of lockfree/ share them. Not part of the API. Each use names its partner in a comment:
//   release[a -> b]: what it publishes      acquire[b <- a]: what is now visible
//   full[a <-> b]: which store of each side the other's load cannot miss
//   relaxed: why no order is needed
// tools/lint_orders pairs the labels and generates docs/memory-model.md from them.
//
// EBBI_ATOMIC(type) declares what these work on. A model checker defines EBB_MODEL as the name of a
// header that gives both another meaning.
#ifndef EBB_DETAIL_ATOMIC_H
#define EBB_DETAIL_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// For functions that are inlined wherever they are called, and have no copy of their own.
#define EBBI_INLINED extern inline __attribute__((gnu_inline, always_inline))

#ifdef EBB_MODEL
#include EBB_MODEL
#else

#define EBBI_ATOMIC(type) type

// Keeps the compiler from moving memory accesses across; no instruction.
#define ebbi_compiler_fence() __atomic_signal_fence(__ATOMIC_SEQ_CST)

#define ebbi_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define ebbi_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define ebbi_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define ebbi_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ebbi_exchange_acquire(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
#define ebbi_exchange_release(p, v) __atomic_exchange_n((p), (v), __ATOMIC_RELEASE)
#define ebbi_exchange_acq_rel(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define ebbi_fetch_or_acquire(p, v) __atomic_fetch_or((p), (v), __ATOMIC_ACQUIRE)
#define ebbi_fetch_or_release(p, v) __atomic_fetch_or((p), (v), __ATOMIC_RELEASE)
#define ebbi_fetch_and_relaxed(p, v) __atomic_fetch_and((p), (v), __ATOMIC_RELAXED)
#define ebbi_fetch_or_acq_rel(p, v) __atomic_fetch_or((p), (v), __ATOMIC_ACQ_REL)
#define ebbi_fetch_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define ebbi_fetch_add_acq_rel(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define ebbi_fetch_sub_release(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_RELEASE)
#define ebbi_fetch_sub_relaxed(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_RELAXED)

// Strong compare-exchange; on failure *expected holds the value seen.
#define ebbi_cas_acquire(p, expected, v)                                                           \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define ebbi_cas_relaxed(p, expected, v)                                                           \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define ebbi_cas_release(p, expected, v)                                                           \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
#define ebbi_cas_acq_rel(p, expected, v)                                                           \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

// A full fence, and a store with one behind it: of two threads that each store, pass one of these
// and load what the other stored, at least one sees the other's store. On x86-64 any locked
// instruction is one; an mfence, which compilers choose for C11's fence, costs many times as much.
// ebbi_fence_loads is the full fence of a thread that only loads on both sides of it, which x86-64
// does in order anyway.
#if defined(__x86_64__)
#define ebbi_fence_full() __asm__ volatile("lock; orl $0, -8(%%rsp)" ::: "memory", "cc")
#define ebbi_fence_loads() ebbi_compiler_fence()
#else
#define ebbi_fence_full() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define ebbi_fence_loads() ebbi_fence_full()
#endif
#define ebbi_store_full(p, v)                                                                      \
    do {                                                                                           \
        __atomic_store_n((p), (v), __ATOMIC_RELEASE);                                              \
        ebbi_fence_full();                                                                         \
    } while (0)

#endif
#endif
