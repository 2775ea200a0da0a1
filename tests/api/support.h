// SPDX-License-Identifier: MIT OR Apache-2.0
// What every API and stress test shares: values that the compiler cannot see through, patterns,
// resident memory, and the scale of a run. Never allocates through the allocator under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace support {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_UNDER_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define TEST_UNDER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_UNDER_SANITIZER 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TEST_UNDER_TSAN 1
#endif

#if defined(TEST_UNDER_SANITIZER)
inline constexpr bool under_sanitizer = true;
#else
inline constexpr bool under_sanitizer = false;
#endif
#if defined(TEST_UNDER_TSAN)
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SUPPORT_UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SUPPORT_UNDER_ASAN)
inline constexpr bool under_asan = true;
extern "C" void __asan_handle_no_return();
inline void leave_all_frames() { __asan_handle_no_return(); }
#else
inline constexpr bool under_asan = false;
inline void leave_all_frames() {}
#endif

// The calling thread ends at its next cancellation point. AddressSanitizer does not see frames left so: where they lay
// its marks would stay, for whoever comes there next.
inline void cancel_myself()
{
    leave_all_frames();
    pthread_cancel(pthread_self());
}

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t MiB = 1024 * KiB;
inline constexpr std::size_t too_large = static_cast<std::size_t>(PTRDIFF_MAX) + 1;

// Hides a value, so that no call is folded away and no size or pointer is judged while compiling.
template <typename T> inline T opaque(T value)
{
    __asm__ volatile("" : "+r"(value) : : "memory");
    return value;
}

inline std::uintptr_t address(const void *block) { return reinterpret_cast<std::uintptr_t>(block); }

// EBBTEST_SCALE multiplies the work: above 1 for long runs, below 1 under emulation.
inline double scale()
{
    const char *text = std::getenv("EBBTEST_SCALE");
    const double factor = text != nullptr ? std::strtod(text, nullptr) : 1.0;
    return factor > 0.0 ? factor : 1.0;
}

inline std::size_t scaled(std::size_t count)
{
    const double sanitizer_share = under_sanitizer ? 0.2 : 1.0;
    const double product = static_cast<double>(count) * scale() * sanitizer_share;
    return product < 1.0 ? 1 : static_cast<std::size_t>(product);
}

inline std::uint64_t mix(std::uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdU;
    value ^= value >> 29;
    value *= 0xc4ceb9fe1a85ec53U;
    return value ^ (value >> 32);
}

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(mix(seed + 0x9e3779b97f4a7c15U)) {}
    std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15U); }
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }
    std::size_t between(std::size_t low, std::size_t high) { return low + below(high - low + 1); }

private:
    std::uint64_t state_;
};

inline std::size_t page_bytes()
{
    static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

// VmRSS without stdio, which would allocate.
inline std::size_t resident_bytes()
{
    char text[128] = {};
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    const ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0)
        return 0;
    char *end = nullptr;
    std::strtoull(text, &end, 10);
    return static_cast<std::size_t>(std::strtoull(end, nullptr, 10)) * page_bytes();
}

// From here on the process may map so many bytes more.
inline bool limit_address_space(std::size_t more_bytes)
{
    char text[128] = "";
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    const bool known = read(fd, text, sizeof text - 1) > 0;
    close(fd);
    const rlim_t most = std::strtoull(text, nullptr, 10) * page_bytes() + more_bytes;
    const rlimit limit = {most, RLIM_INFINITY};
    return known && setrlimit(RLIMIT_AS, &limit) == 0;
}

// By user-mode emulation of another machine, whose translated code is resident too.
#ifdef EBBTEST_EMULATED
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif

// A sanitizer's shadow and quarantine hide what the allocator holds, so nothing is judged there.
inline void expect_at_most(std::size_t bytes, std::size_t limit, const char *otherwise)
{
    if (!under_sanitizer) {
        EXPECT_LE(bytes, limit) << otherwise;
    }
}

inline void expect_resident_at_most(std::size_t limit, const char *otherwise)
{
    expect_at_most(resident_bytes(), limit, otherwise);
}

// Book-keeping that stays outside the allocator under test. T must be trivial.
template <typename T> class MappedArray {
public:
    explicit MappedArray(std::size_t count) : count_(count)
    {
        void *range =
            mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (range == MAP_FAILED)
            std::abort();
        items_ = static_cast<T *>(range);
    }
    ~MappedArray() { munmap(items_, bytes()); }
    MappedArray(const MappedArray &) = delete;
    MappedArray &operator=(const MappedArray &) = delete;
    T &operator[](std::size_t index) { return items_[index]; }
    const T &operator[](std::size_t index) const { return items_[index]; }
    std::size_t size() const { return count_; }
    T *begin() { return items_; }
    T *end() { return items_ + count_; }

private:
    std::size_t bytes() const { return (count_ == 0 ? 1 : count_) * sizeof(T); }
    T *items_ = nullptr;
    std::size_t count_;
};

inline unsigned char pattern_byte(std::size_t index, unsigned seed)
{
    return static_cast<unsigned char>((index * 131U + (index >> 8) * 17U + seed) | 1U);
}

// Dense up to 64 KiB; beyond, every step-th byte and both ends are enough to find a lost page.
inline std::size_t pattern_step(std::size_t bytes)
{
    if (bytes <= 64 * KiB)
        return 1;
    return bytes <= MiB ? 61 : 509;
}

inline void fill_pattern(void *block, std::size_t from, std::size_t to, unsigned seed)
{
    auto *bytes = static_cast<unsigned char *>(block);
    for (std::size_t i = from; i < to; i++)
        bytes[i] = pattern_byte(i, seed);
}

// Returns the index of the first wrong byte, or bytes when all are right.
inline std::size_t find_mismatch(const void *block, std::size_t bytes, unsigned seed)
{
    const auto *seen = static_cast<const unsigned char *>(block);
    const std::size_t step = pattern_step(bytes);
    for (std::size_t i = 0; i < bytes; i += step)
        if (seen[i] != pattern_byte(i, seed))
            return i;
    if (bytes != 0 && seen[bytes - 1] != pattern_byte(bytes - 1, seed))
        return bytes - 1;
    return bytes;
}

inline bool all_zero(const void *block, std::size_t bytes)
{
    const auto *seen = static_cast<const unsigned char *>(block);
    return bytes == 0 || (seen[0] == 0 && std::memcmp(seen, seen + 1, bytes - 1) == 0);
}

} // namespace support
