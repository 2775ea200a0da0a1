// SPDX-License-Identifier: MIT OR Apache-2.0
// The engine's C headers for C++ tests, and what every unit test shares.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
// C17 spellings that C++ has under other names.
#define _Static_assert static_assert
#define _Thread_local __thread
#include "arena/internal.h"
#include "debug/checked.h"
#include "debug/held.h"
#include "debug/quarantine.h"
#include "front/fast.h"
#include "heap/registry.h"
#include "lifetime/domain.h"
#include "os/options.h"
#include "reclaim/reclaim.h"
#include "slab/slab.h"
#include "support/fake_os.h"
#undef _Static_assert
#undef _Thread_local
}
#include "ebbtide.h"

namespace unit {

// By user-mode emulation of another machine, whose system calls are the emulator's.
#ifdef EBBTEST_EMULATED
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNIT_UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define UNIT_UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(UNIT_UNDER_TSAN)
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(UNIT_UNDER_ASAN)
inline constexpr bool under_asan = true;
#else
inline constexpr bool under_asan = false;
#endif

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t MiB = 1024 * KiB;
inline constexpr std::size_t GiB = 1024 * MiB;

inline std::uintptr_t address(const void *p) { return reinterpret_cast<std::uintptr_t>(p); }

class Random { // xorshift: the same numbers everywhere
public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U | 1) {}
    std::size_t below(std::size_t limit)
    {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return static_cast<std::size_t>((state_ * 0x2545F4914F6CDD1DU) >> 16) % limit;
    }
    bool chance(std::size_t one_in) { return below(one_in) == 0; }

private:
    std::uint64_t state_;
};

// A block with known contents at both ends.
struct Block {
    unsigned char *bytes = nullptr;
    std::size_t size = 0;
    unsigned char mark = 0;

    void fill()
    {
        std::memset(bytes, mark, std::min<std::size_t>(size, 256));
        if (size > 256)
            std::memset(bytes + size - 256, mark, 256);
    }
    bool intact(std::size_t upto) const
    {
        std::size_t head = std::min({size, upto, std::size_t{256}});
        for (std::size_t i = 0; i < head; i++)
            if (bytes[i] != mark)
                return false;
        for (std::size_t i = size > 256 && upto >= size ? size - 256 : size; i < size; i++)
            if (bytes[i] != mark)
                return false;
        return true;
    }
    bool intact() const { return intact(size); }
};

// An address limit decides about the window when that is chosen: before the first allocation.
inline void start_limited(std::size_t limit_bytes)
{
    fake_os_limit(limit_bytes + fake_os_held_bytes());
    ASSERT_EQ(0, ebbi_window_open());
}

class Fake : public testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_EQ(0, ebbi_start());
        fake_os_reset();
    }
};

} // namespace unit
