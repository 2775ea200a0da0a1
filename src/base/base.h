// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: compiler vocabulary, checks and bit arithmetic. No state, no calls upward.
#ifndef EBB_BASE_BASE_H
#define EBB_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBBI_LIKELY(x) __builtin_expect(!!(x), 1)
#define EBBI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define EBBI_INLINE static inline __attribute__((always_inline))
#define EBBI_NOINLINE __attribute__((noinline))
#define EBBI_COLD __attribute__((noinline, cold))
// A large variable of which most processes touch a page or none: kept apart from the small ones.
#define EBBI_SPARSE __attribute__((section(".bss.sparse")))
// On every extern variable: reached directly, not through the global offset table.
#define EBBI_HIDDEN __attribute__((visibility("hidden")))
// On what another process alone reads: linkers that drop what nothing refers to (--gc-sections, as Rust has it) keep it.
#if defined(__has_attribute) && __has_attribute(retain)
#define EBBI_KEPT __attribute__((used, retain))
#else
#define EBBI_KEPT __attribute__((used))
#endif
#ifndef EBBI_NORETURN // tools/coverage: clang 14 loses count of the lines behind a call that does not return
#define EBBI_NORETURN __attribute__((noreturn))
#endif
#define EBBI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define EBBI_CACHE_LINE 64u
#define EBBI_8_TIMES(x) x, x, x, x, x, x, x, x

#ifdef EBB_ASSERT
#define EBBI_HAVE_ASSERT 1
#else
#define EBBI_HAVE_ASSERT 0
#endif

// A moment of this processor's, without a call.
EBBI_INLINE void ebbi_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Prints "ebbtide: <program>[<pid>]: <message>" on stderr and aborts; locks of a heap may be held, the arena's may
// not. Defined in os/, because base makes no system calls.
EBBI_NORETURN void ebbi_fatal(const char *format, ...) EBBI_PRINTF(1, 2);

// CHECK holds in every build and is kept off the fast paths; ASSERT only with EBB_ASSERT.
#define EBBI_CHECK(cond)                                                                           \
    (EBBI_LIKELY(cond)                                                                             \
         ? (void)0                                                                                 \
         : ebbi_fatal("internal check failed: %s (%s:%d)", #cond, __FILE__, __LINE__))
#define EBBI_ASSERT(cond) (EBBI_HAVE_ASSERT ? EBBI_CHECK(cond) : (void)0)

EBBI_INLINE size_t ebbi_align_up(size_t n, size_t power_of_two)
{
    return (n + power_of_two - 1) & ~(power_of_two - 1);
}

EBBI_INLINE size_t ebbi_align_down(size_t n, size_t power_of_two)
{
    return n & ~(power_of_two - 1);
}

EBBI_INLINE bool ebbi_is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

EBBI_INLINE unsigned ebbi_lowest_bit(uint64_t word) { return (unsigned)__builtin_ctzll(word); }

#define EBBI_HIGHEST_BIT(word) (63u - (unsigned)__builtin_clzll(word)) // of constants, too
EBBI_INLINE unsigned ebbi_highest_bit(uint64_t word) { return EBBI_HIGHEST_BIT(word); }

// Sideways addition: the builtin is a call where the instruction is not certain to be there.
EBBI_INLINE unsigned ebbi_count_bits(uint64_t word)
{
    word -= word >> 1 & 0x5555555555555555u;
    word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (unsigned)(word * 0x0101010101010101u >> 56);
}

EBBI_INLINE size_t ebbi_min(size_t a, size_t b) { return a < b ? a : b; }
EBBI_INLINE size_t ebbi_max(size_t a, size_t b) { return a > b ? a : b; }

#endif
