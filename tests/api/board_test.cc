// SPDX-License-Identifier: MIT OR Apache-2.0
// The board that another process reads (src/process/board.h), found as that one finds it, and the options on it.
#include "control.h"
#include "support.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <link.h>

#include <gtest/gtest.h>

namespace {

using control::ask, control::is_answered, control::option;

std::int32_t answer()
{
    for (int i = 0; i < 1000 && !is_answered(); i++)
        ebb_free(ebb_malloc(1 << 20)); // a slow call
    EXPECT_TRUE(is_answered());
    return __atomic_load_n(&ebbi_board.control->result, __ATOMIC_RELAXED);
}

TEST(Board, IsOfItsVersion)
{
    EXPECT_EQ(0, std::memcmp(&ebbi_board.magic, "1DROBBBE", 8));
    EXPECT_EQ(4U, ebbi_board.version);
    EXPECT_EQ(sizeof ebbi_board, ebbi_board.bytes);
    EXPECT_STREQ(ebb_version(), ebbi_board.release);
    EXPECT_EQ(32U, ebbi_board.profile.entry_bytes);
    EXPECT_TRUE(is_answered());
}

struct Note {
    std::uint32_t name_bytes, bytes, type;
    char name[8];
};

// As a reader from outside looks for it: of our notes the one that leads to a board.
int find_noted(dl_phdr_info *info, std::size_t, void *found)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &part = info->dlpi_phdr[i];
        const auto *at = reinterpret_cast<const char *>(info->dlpi_addr + part.p_vaddr);
        for (std::size_t behind = 0;
             part.p_type == PT_NOTE && behind + sizeof(Note) <= part.p_memsz;) {
            Note note;
            std::memcpy(&note, at + behind, sizeof note);
            if (note.name_bytes == 8 && std::memcmp(note.name, "Ebbtide", 8) == 0) {
                EXPECT_EQ(1U, note.type);
                EXPECT_EQ(8U, note.bytes);
                std::int64_t distance;
                std::memcpy(&distance, at + behind + sizeof note, sizeof distance);
                static_cast<std::vector<const void *> *>(found)->push_back(at + behind +
                                                                           sizeof note + distance);
            }
            const std::size_t align = part.p_align == 8 ? 8 : 4;
            const std::size_t content = (12 + note.name_bytes + align - 1) / align * align;
            behind += (content + note.bytes + align - 1) / align * align;
        }
    }
    return 0;
}

TEST(Board, ANoteLeadsToIt)
{
    std::vector<const void *> found;
    dl_iterate_phdr(find_noted, &found);
    ASSERT_EQ(1U, found.size());
    EXPECT_EQ(&ebbi_board, found[0]);
}

std::size_t number_of(const char *name)
{
    const OptionTable &options = *ebbi_board.options;
    std::size_t number = 0;
    while (number < options.count && std::strcmp(name, options.options[number].name) != 0)
        number++;
    return number;
}

TEST(Options, OneChangesAndTellsWhoChangedIt)
{
    const OptionTable &options = *ebbi_board.options;
    const std::size_t delay = number_of("EBB_PURGE_DELAY_MS");
    ASSERT_LT(delay, options.count);
    EXPECT_TRUE(options.changes[delay]);
    EXPECT_EQ(0, options.sources[delay]);
    ask(option, delay, 123);
    EXPECT_EQ(0, answer());
    EXPECT_EQ(123U, options.values[delay]);
    EXPECT_EQ(2, options.sources[delay]);
    std::size_t value = 0;
    int is_set = 0;
    EXPECT_STREQ("EBB_PURGE_DELAY_MS",
                 ebb_option_value(static_cast<unsigned>(delay), &value, &is_set));
    EXPECT_EQ(123U, value);
    EXPECT_EQ(1, is_set);
}

TEST(Options, WhatCannotChangeStays)
{
    const OptionTable &options = *ebbi_board.options;
    const std::size_t delay = number_of("EBB_PURGE_DELAY_MS");
    const std::vector<std::uint8_t> sources(options.sources, options.sources + options.count);
    for (const auto &[number, value] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
             {delay, options.options[delay].most + 1},
             {delay, UINT64_MAX},
             {number_of("EBB_CACHE"), 1 << 20},
             {options.count, 0},
             {UINT64_MAX, 0}}) {
        ask(option, number, value);
        EXPECT_EQ(-EINVAL, answer()) << number;
    }
    for (std::size_t i = 0; i < options.count; i++)
        EXPECT_EQ(sources[i], options.sources[i]) << options.options[i].name;
}

bool is_guarded(void *p) { return ebb_malloc_usable_size(p) == 1001; }

// Of what several threads allocate, whether one is guarded within half a minute.
bool guards_come()
{
    std::atomic<bool> found{false};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            while (!found && std::chrono::steady_clock::now() < end) {
                std::vector<void *> blocks;
                for (int n = 0; n < 300; n++)
                    blocks.push_back(ebb_malloc(1001));
                for (void *p : blocks) {
                    if (is_guarded(p))
                        found = true;
                    ebb_free(p);
                }
            }
        });
    for (std::thread &each : threads)
        each.join();
    return found;
}

TEST(Options, GuardsBeginAndEndInARunningProcess)
{
    const std::size_t guard = number_of("EBB_GUARD");
    ask(option, guard, 1001);
    EXPECT_EQ(-EINVAL, answer());
    for (int round = 0; round < 3; round++) {
        ask(option, guard, 1000);
        EXPECT_EQ(0, answer());
        EXPECT_TRUE(guards_come()) << round;
        ask(option, guard, 0);
        EXPECT_EQ(0, answer());
        std::vector<void *> blocks;
        for (int n = 0; n < 20000; n++)
            blocks.push_back(ebb_malloc(1001));
        EXPECT_TRUE(std::none_of(blocks.begin(), blocks.end(), is_guarded)) << round;
        for (void *p : blocks)
            ebb_free(p);
    }
}

// Who allocates while it goes on and off, again and again.
TEST(Options, GuardsComeAndGoBesideThreadsThatAllocate)
{
    const std::size_t guard = number_of("EBB_GUARD");
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            while (!over) {
                std::vector<void *> blocks;
                for (std::size_t n = 0; n < 200; n++)
                    blocks.push_back(std::memset(ebb_malloc(n * 8), 1, n * 8));
                for (void *p : blocks)
                    ebb_free(p);
            }
        });
    for (std::uint64_t i = 0; i < 300; i++) {
        ask(option, guard, i % 2 * (1 + i));
        EXPECT_EQ(0, answer()) << i;
    }
    over = true;
    for (std::thread &each : threads)
        each.join();
}

// The helper had an hour to sleep.
TEST(Options, AShorterDelayHoldsAtOnce)
{
    ask(option, number_of("EBB_PURGE_DELAY_MS"), 3600000);
    EXPECT_EQ(0, answer());
    std::atomic<bool> over{false};
    ASSERT_EQ(0, ebb_helper_start());
    std::thread sleeper([&] { over.wait(false); });
    std::vector<void *> blocks;
    for (int i = 0; i < 20000; i++)
        blocks.push_back(std::memset(ebb_malloc(2000), 1, 2000));
    for (void *p : blocks)
        ebb_free(p);
    ebb_snapshot before, now;
    ebb_snapshot_get(&before);
    EXPECT_GT(before.dirty_bytes + before.dirty_span_bytes, std::size_t{30} << 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500)); // it naps, by the hour
    ask(option, number_of("EBB_PURGE_DELAY_MS"), 50);
    int rounds = 0;
    do {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ebb_snapshot_get(&now);
    } while (now.dirty_bytes + now.dirty_span_bytes > (std::size_t{5} << 20) && ++rounds < 600);
    EXPECT_LT(rounds, 600) << now.dirty_bytes << " and " << now.dirty_span_bytes;
    over.store(true);
    over.notify_all();
    sleeper.join();
}

} // namespace
