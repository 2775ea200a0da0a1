// SPDX-License-Identifier: MIT OR Apache-2.0
// What another process writes into this one's memory and reads there (src/process/board.h), as it sees it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <ebbtide.h>

extern "C" {
struct Control {
    std::uint32_t asked, answered;
    std::int32_t result;
    std::uint32_t unused;
    std::uint64_t what, with, ms;
};
struct Live {
    std::uint64_t made_ns;
    std::size_t bytes;
    double objects;
    const void *label;
    std::uint32_t entry, thread;
    void *held;
    std::uint32_t keeps, unused;
};
struct Published {
    std::uint64_t turn;
    ebb_snapshot taken;
    std::uint64_t unsealed_bytes;
    std::uint64_t thread_count;
    ebb_thread_stats threads[1024];
};
struct OptionTable {
    std::uint64_t count;
    const struct {
        const char *name;
        std::uint64_t kind;
        std::size_t least, most;
    } * options;
    const char *const (*words)[5];
    const char *const *files;
    const bool *changes;
    const std::size_t *values;
    const std::uint8_t *sources;
};
struct Board {
    std::uint64_t magic;
    std::uint32_t version, bytes;
    char release[16];
    Control *control;
    const Published *snapshot;
    const void *labels;
    std::uint64_t labels_a_part;
    const OptionTable *options;
    struct {
        const void *now, *participants, *changed_ms, *waiting;
        std::uint64_t waiting_parts;
    } reclaim;
    struct {
        std::uint64_t entry_bytes;
        const struct {
            std::uint32_t round;
            std::size_t mean;
            std::uint64_t until_ms;
        } * state;
        const struct {
            const void *entries;
            const void *freed;
            const std::uintptr_t *calls;
            std::size_t entry_count;
        } * book;
        const struct {
            const Live *at;
            std::uint32_t count;
        } * live;
    } profile;
};
extern const Board ebbi_board;
}

namespace control {

inline constexpr std::uint64_t nothing = 0, profile = 1, trim = 2, snapshot = 3, pins = 4,
                               option = 5, nothing_known = 77;

inline void ask(std::uint64_t what, std::uint64_t with, std::uint64_t ms = 100000)
{
    __atomic_store_n(&ebbi_board.control->what, what, __ATOMIC_RELAXED);
    __atomic_store_n(&ebbi_board.control->with, with, __ATOMIC_RELAXED);
    __atomic_store_n(&ebbi_board.control->ms, ms, __ATOMIC_RELAXED);
    __atomic_fetch_add(&ebbi_board.control->asked, 1U, __ATOMIC_RELEASE);
}

inline bool is_answered()
{
    return __atomic_load_n(&ebbi_board.control->answered, __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&ebbi_board.control->asked, __ATOMIC_ACQUIRE);
}

} // namespace control
