// SPDX-License-Identifier: MIT OR Apache-2.0
// What another process writes into this one's memory and reads there (src/os/control.h, src/profile/profile.c), as it
// sees it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <ebbtide.h>

extern "C" {
struct Control {
    std::uint64_t magic;
    std::uint32_t version, asked, answered;
    std::int32_t result;
    std::uint64_t what, with, ms;
};
extern Control ebb_control;
struct Live {
    std::uint64_t made_ns;
    std::size_t bytes;
    double objects;
    const void *label;
    std::uint32_t entry, thread;
    void *held;
    std::uint32_t keeps, unused;
};
struct ProfileBoard {
    std::uint64_t magic;
    std::uint32_t version, entry_bytes;
    const std::uint32_t *round;
    const std::size_t *mean;
    const std::uint64_t *until_ms;
    void *const *entries;
    const std::size_t *entry_count;
    const std::uintptr_t *const *calls;
    Live *const *live;
    const std::uint32_t *live_count;
};
extern const ProfileBoard ebb_profile_board;
struct SnapshotBoard {
    std::uint64_t magic;
    std::uint32_t version, bytes;
    std::uint64_t turn;
    ebb_snapshot taken;
};
extern SnapshotBoard ebb_snapshot_board;
}

namespace control {

inline constexpr std::uint64_t nothing = 0, profile = 1, trim = 2, snapshot = 3, pins = 4,
                               nothing_known = 77;

inline void ask(std::uint64_t what, std::uint64_t with, std::uint64_t ms = 100000)
{
    __atomic_store_n(&ebb_control.what, what, __ATOMIC_RELAXED);
    __atomic_store_n(&ebb_control.with, with, __ATOMIC_RELAXED);
    __atomic_store_n(&ebb_control.ms, ms, __ATOMIC_RELAXED);
    __atomic_fetch_add(&ebb_control.asked, 1U, __ATOMIC_RELEASE);
}

inline bool is_answered()
{
    return __atomic_load_n(&ebb_control.answered, __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&ebb_control.asked, __ATOMIC_ACQUIRE);
}

} // namespace control
