// SPDX-License-Identifier: MIT OR Apache-2.0
// What the compiler puts before each access to memory, and what the library asks of the system: both come here, and
// are told to the machine.
#include <stddef.h>

#include "cores/hooks.h"

// ---- the compiler's calls ------------------------------------------------------------------------

#define PC __builtin_return_address(0)

#define PLAIN(name, bytes, writes)                                                                 \
    void name(void *p);                                                                            \
    void name(void *p)                                                                             \
    {                                                                                              \
        if (machine_is_on()) {                                                                     \
            machine_touch(p, bytes, writes, PC);                                                   \
        }                                                                                          \
    }
PLAIN(__tsan_read1, 1, false)
PLAIN(__tsan_read2, 2, false)
PLAIN(__tsan_read4, 4, false)
PLAIN(__tsan_read8, 8, false)
PLAIN(__tsan_read16, 16, false)
PLAIN(__tsan_unaligned_read2, 2, false)
PLAIN(__tsan_unaligned_read4, 4, false)
PLAIN(__tsan_unaligned_read8, 8, false)
PLAIN(__tsan_unaligned_read16, 16, false)
PLAIN(__tsan_write1, 1, true)
PLAIN(__tsan_write2, 2, true)
PLAIN(__tsan_write4, 4, true)
PLAIN(__tsan_write8, 8, true)
PLAIN(__tsan_write16, 16, true)
PLAIN(__tsan_unaligned_write2, 2, true)
PLAIN(__tsan_unaligned_write4, 4, true)
PLAIN(__tsan_unaligned_write8, 8, true)
PLAIN(__tsan_unaligned_write16, 16, true)

#define RANGE(name, writes)                                                                        \
    void name(void *p, unsigned long bytes);                                                       \
    void name(void *p, unsigned long bytes)                                                        \
    {                                                                                              \
        if (machine_is_on() && bytes > 0) {                                                        \
            machine_touch(p, bytes, writes, PC);                                                   \
        }                                                                                          \
    }
RANGE(__tsan_read_range, false)
RANGE(__tsan_write_range, true)

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define ATOMIC(bits)                                                                               \
    typedef uint##bits##_t word##bits;                                                             \
    word##bits __tsan_atomic##bits##_load(const volatile word##bits *p, int order);                \
    word##bits __tsan_atomic##bits##_load(const volatile word##bits *p, int order)                 \
    {                                                                                              \
        (void)order;                                                                               \
        machine_touch_atomic(p, sizeof *p, false, PC);                                             \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile word##bits *p, word##bits v, int order);             \
    void __tsan_atomic##bits##_store(volatile word##bits *p, word##bits v, int order)              \
    {                                                                                              \
        (void)order;                                                                               \
        if (machine_is_on()) {                                                                     \
            machine_touch(p, sizeof *p, true, PC);                                                 \
        }                                                                                          \
        __atomic_store_n(p, v, __ATOMIC_RELEASE);                                                  \
    }                                                                                              \
    word##bits __tsan_atomic##bits##_exchange(volatile word##bits *p, word##bits v, int order);    \
    word##bits __tsan_atomic##bits##_exchange(volatile word##bits *p, word##bits v, int order)     \
    {                                                                                              \
        (void)order;                                                                               \
        machine_touch_atomic(p, sizeof *p, true, PC);                                              \
        word##bits was = __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                              \
        if (v == 0) {                                                                              \
            machine_drop(p);                                                                       \
        }                                                                                          \
        return was;                                                                                \
    }                                                                                              \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile word##bits *p, word##bits *c,      \
                                                       word##bits v, int order, int failed);       \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile word##bits *p, word##bits *c,      \
                                                       word##bits v, int order, int failed)        \
    {                                                                                              \
        (void)order;                                                                               \
        (void)failed;                                                                              \
        if (sizeof *p == sizeof(uint64_t) && machine_is_claim(*c, v)) {                            \
            return machine_claim((volatile uint64_t *)(uintptr_t)p, (uint64_t *)(uintptr_t)c, PC); \
        }                                                                                          \
        machine_touch_atomic(p, sizeof *p, true, PC);                                              \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    }
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

#define FETCH(bits, operation)                                                                     \
    word##bits __tsan_atomic##bits##_fetch_##operation(volatile word##bits *p, word##bits v,       \
                                                       int order);                                 \
    word##bits __tsan_atomic##bits##_fetch_##operation(volatile word##bits *p, word##bits v,       \
                                                       int order)                                  \
    {                                                                                              \
        (void)order;                                                                               \
        machine_touch_atomic(p, sizeof *p, true, PC);                                              \
        return __atomic_fetch_##operation(p, v, __ATOMIC_SEQ_CST);                                 \
    }
FETCH(8, or)
FETCH(8, and)
FETCH(32, add)
FETCH(32, sub)
FETCH(32, or)
FETCH(32, and)
FETCH(64, add)
FETCH(64, sub)
FETCH(64, or)
FETCH(64, and)

// ---- what the library asks of the system -----------------------------------------------------------

size_t __real_ebbi_os_cpu(void);
size_t __wrap_ebbi_os_cpu(void);
size_t __wrap_ebbi_os_cpu(void) { return machine_core(__real_ebbi_os_cpu()); }

size_t __wrap_ebbi_os_cpus(void);
size_t __wrap_ebbi_os_cpus(void) { return machine_cores(); }

uint64_t __real_ebbi_os_now_ms(void);
uint64_t __wrap_ebbi_os_now_ms(void);
uint64_t __wrap_ebbi_os_now_ms(void)
{
    static uint64_t start_ms; // of one thread at a time
    if (!machine_is_on()) {
        return __real_ebbi_os_now_ms();
    }
    if (start_ms == 0) {
        start_ms = __real_ebbi_os_now_ms();
    }
    return start_ms + machine_now() / 10000000;
}

bool __real_ebbi_os_membarrier(void);
bool __wrap_ebbi_os_membarrier(void);
bool __wrap_ebbi_os_membarrier(void)
{
    machine_call(COST_CALL, PC);
    return __real_ebbi_os_membarrier();
}

bool __real_ebbi_os_purge(void *start, size_t bytes);
bool __wrap_ebbi_os_purge(void *start, size_t bytes);
bool __wrap_ebbi_os_purge(void *start, size_t bytes)
{
    machine_call(COST_CALL, PC);
    return __real_ebbi_os_purge(start, bytes);
}

int __real_ebbi_os_commit(void *start, size_t bytes);
int __wrap_ebbi_os_commit(void *start, size_t bytes);
int __wrap_ebbi_os_commit(void *start, size_t bytes)
{
    machine_call(COST_CALL, PC);
    return __real_ebbi_os_commit(start, bytes);
}

void __real_ebbi_os_yield(void);
void __wrap_ebbi_os_yield(void);
void __wrap_ebbi_os_yield(void)
{
    if (!machine_is_on()) {
        __real_ebbi_os_yield();
    } else {
        machine_lets_others(COST_CALL);
    }
}

void __real_ebbi_nap(uint32_t ms);
void __wrap_ebbi_nap(uint32_t ms);
void __wrap_ebbi_nap(uint32_t ms)
{
    if (!machine_is_on()) {
        __real_ebbi_nap(ms);
    } else {
        machine_lets_others((uint64_t)ms * COST_NAP);
    }
}
