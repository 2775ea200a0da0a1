// SPDX-License-Identifier: MIT OR Apache-2.0
// The sampled profile from the inside: what is a sample, and what it stands for.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <pthread.h>
#include <sys/mman.h>

#include <gtest/gtest.h>

#include "support/engine.h"

namespace {

TEST(Profile, ItsLogarithmIsThatOfLibm)
{
    for (double x = 0x1p-53; x < 1e9; x *= 1.0137)
        ASSERT_NEAR(std::log(x), ebbi_profile_log(x), 1e-13 * std::fmax(1, std::fabs(std::log(x))))
            << x;
}

TEST(Profile, ASampleStandsForOneOverItsOdds)
{
    for (const std::size_t mean : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 40})
        for (std::size_t bytes = 0; bytes < std::size_t{1} << 46; bytes = bytes * 5 / 3 + 1) {
            const double x = std::fmax(static_cast<double>(bytes), 1) / static_cast<double>(mean);
            const double expected = -1 / std::expm1(-x);
            ASSERT_NEAR(expected, ebbi_sample_objects(bytes, mean), 1e-9 * expected)
                << bytes << " of " << mean;
        }
}

// Of n allocations the samples are n * odds, within five standard deviations: one such run in a million fails.
TEST(Profile, SamplesComeByTheBytes)
{
    ASSERT_EQ(0, ebbi_profile_begin(10000));
    for (const std::size_t bytes : {1, 100, 10000, 100000}) {
        ebbi_sampler sampler = {};
        const double odds = 1 / ebbi_sample_objects(bytes, 10000);
        const double count = std::fmin(2e7, 1e5 / odds);
        double found = 0;
        for (double i = 0; i < count; i++)
            found += ebbi_sampler_count(&sampler, ebbi_profile_round(), bytes) ? 1 : 0;
        EXPECT_NEAR(count * odds, found, 5 * std::sqrt(count * odds * (1 - odds)) + 1) << bytes;
    }
    ebbi_profile_end();
}

TEST(Profile, SizesThatWillBeRefusedDoNotConfuseIt)
{
    ASSERT_EQ(0, ebbi_profile_begin(10000));
    ebbi_sampler sampler = {};
    for (int i = 0; i < 100; i++)
        EXPECT_TRUE(ebbi_sampler_count(&sampler, ebbi_profile_round(),
                                       std::numeric_limits<std::size_t>::max()));
    EXPECT_GT(sampler.until, 0);
    ebbi_profile_end();
}

TEST(Profile, ANewRoundDrawsAgain)
{
    ASSERT_EQ(0, ebbi_profile_begin(std::size_t{1} << 40));
    ebbi_sampler sampler = {};
    EXPECT_FALSE(ebbi_sampler_count(&sampler, ebbi_profile_round(), 1));
    ASSERT_EQ(0, ebbi_profile_begin(1));
    EXPECT_TRUE(ebbi_sampler_count(&sampler, ebbi_profile_round(), 1000));
    ebbi_profile_end();
    EXPECT_EQ(0U, ebbi_profile_round());
}

TEST(Profile, ATermEndsWhereTheNextBegins)
{
    std::uint64_t end_ms = 1;
    for (unsigned term = 0; term + 1 < EBBI_TERMS; term++) {
        const std::uint64_t ends = end_ms * 1000000;
        EXPECT_EQ(term, ebbi_profile_term(ends - 1));
        EXPECT_EQ(term + 1, ebbi_profile_term(ends));
        end_ms *= term < 4 ? 10 : term == 4 ? 6 : 60;
    }
    EXPECT_EQ(0U, ebbi_profile_term(0));
    EXPECT_EQ(EBBI_TERMS - 1, ebbi_profile_term(std::numeric_limits<std::uint64_t>::max()));
}

ebbi_live sample(std::uint64_t made_ns, double objects, std::uint32_t thread,
                 const ebbi_label *label = nullptr)
{
    ebbi_live live{};
    live.made_ns = made_ns;
    live.bytes = 2;
    live.objects = objects;
    live.label = label;
    live.entry = 1;
    live.thread = thread;
    return live;
}

// As many as there is room for; what is more has no place, and a place is taken again.
// Each of 2^17 ways through 20 calls is a stack of its own.
constexpr unsigned WAYS = 17, CALLS = 20;

[[gnu::noinline]] bool sample_by_way(unsigned way, unsigned calls, ebbi_note *note)
{
    volatile bool done = false; // behind the call, which so is none in place of this one
    if (calls == 0)
        done = ebbi_profile_add(note, 1, 1, 1, nullptr, 0);
    else if ((way >> (calls % WAYS) & 1) != 0)
        done = sample_by_way(way, calls - 1, note);
    else
        done = sample_by_way(way, calls - 1, note);
    return done;
}

std::size_t resident_tables()
{
    const auto begin = reinterpret_cast<std::uintptr_t>(ebbi_profile_book.entries);
    const auto end = reinterpret_cast<std::uintptr_t>(ebbi_live_table.at) + EBBI_LIVE_BYTES;
    std::vector<unsigned char> pages((end - begin) / ebbi_os_page_size());
    EXPECT_EQ(0, mincore(ebbi_profile_book.entries, end - begin, pages.data()));
    const auto count = std::count_if(pages.begin(), pages.end(), [](int p) { return p & 1; });
    return static_cast<std::size_t>(count) * ebbi_os_page_size();
}

void *sample_all_ways(void *notes)
{
    for (unsigned way = 0; way < 100000; way++)
        EXPECT_TRUE(sample_by_way(way, CALLS, static_cast<ebbi_note *>(notes) + way));
    return nullptr;
}

TEST(Profile, OneHundredThousandStacksInUseTake32MB)
{
    static std::array<ebbi_note, 100000> notes;
    ASSERT_EQ(0, ebbi_profile_begin(1));
    const std::size_t before = resident_tables(), entries = ebbi_profile_entries();
    pthread_t thread; // whose own calls are few
    ASSERT_EQ(0, pthread_create(&thread, nullptr, sample_all_ways, notes.data()));
    ASSERT_EQ(0, pthread_join(thread, nullptr));
    EXPECT_EQ(entries + notes.size(), ebbi_profile_entries());
    ebbi_profile_sums sums;
    const std::uintptr_t *calls;
    std::size_t depth;
    ASSERT_TRUE(ebbi_profile_entry(entries, &sums, &calls, &depth));
    EXPECT_GE(depth, 24U);
    EXPECT_LE(resident_tables() - before, 32000000U) << depth;

    for (ebbi_note &note : notes)
        ebbi_profile_freed(&note);
    for (std::size_t i = entries; i < ebbi_profile_entries(); i++) {
        ASSERT_TRUE(ebbi_profile_entry(i, &sums, &calls, &depth));
        double freed = 0;
        for (const ebbi_profile_sum &sum : sums.freed.in)
            freed += sum.objects;
        ASSERT_EQ(sums.made.objects, freed);
    }
    ebbi_profile_end();
}

TEST(Profile, PlacesOfSamplesInUse)
{
    ASSERT_EQ(0, ebbi_profile_begin(1));
    const ebbi_live live = sample(1, 3, 4);
    std::uint32_t last = 0, count = 0;
    while (const std::uint32_t place = ebbi_live_add(&live)) {
        ASSERT_GT(place, last);
        last = place;
        count++;
    }
    EXPECT_EQ(EBBI_LIVE_BYTES / sizeof live - 1, count);
    ebbi_live_drop(0);
    EXPECT_EQ(0U, ebbi_live_add(&live));
    ebbi_live_drop(7);
    ebbi_live_drop(last);
    EXPECT_EQ(last, ebbi_live_add(&live));
    EXPECT_EQ(7U, ebbi_live_add(&live));
    EXPECT_EQ(0U, ebbi_live_add(&live));
    ebbi_profile_end();
}

// P5: who has been lent what is held keeps it if its sample has ended.
TEST(Profile, WhatIsHeldIsLent)
{
    ASSERT_EQ(0, ebbi_profile_begin(1));
    std::array<char, 300> blocks{};
    ebbi_live live = sample(1, 3, 4);
    for (char &block : blocks) {
        live.held = &block;
        live.made_ns++;
        ASSERT_NE(0U, ebbi_live_add(&live));
    }
    std::array<ebbi_loan, EBBI_LOANS> loans{};
    std::uint32_t place = 1;
    ASSERT_EQ(EBBI_LOANS, ebbi_live_lend(loans.data(), &place));
    EXPECT_EQ(1 + EBBI_LOANS, place);
    EXPECT_EQ(nullptr, ebbi_live_drop(loans[3].place)) << "it is lent";
    live.held = nullptr;
    EXPECT_EQ(loans[3].place, ebbi_live_add(&live)) << "the next of its place";
    for (std::size_t i = 0; i < loans.size(); i++) {
        EXPECT_EQ(&blocks[i], loans[i].held);
        loans[i].keeps = 100;
        EXPECT_EQ(i == 3 ? &blocks[3] : nullptr, ebbi_live_return(&loans[i]));
    }
    EXPECT_EQ(100U, ebbi_live_table.at[1].keeps);
    EXPECT_EQ(0U, ebbi_live_table.at[loans[3].place].keeps);
    std::size_t count = EBBI_LOANS;
    while (place != 0) {
        std::size_t some = ebbi_live_lend(loans.data(), &place);
        count += some;
        for (std::size_t i = 0; i < some; i++)
            EXPECT_EQ(nullptr, ebbi_live_return(&loans[i]));
    }
    EXPECT_EQ(blocks.size(), count);
    EXPECT_EQ(&blocks[0], ebbi_live_drop(1));
    ebbi_profile_end();
}

// Two samples each of many threads, labels and ages, which stand for a number of their own: so close together that
// their places collide.
TEST(Profile, GroupsOfSamplesInUse)
{
    static std::array<ebbi_label, 100> labels;
    ASSERT_EQ(0, ebbi_profile_begin(1));
    std::array<ebbi_live, 800> lives{};
    for (std::uint32_t i = 0; i < lives.size(); i++)
        lives[i] = sample(i % 2 == 0 ? 0 : ebbi_os_now_ns(), i + 1.0, i / 200 + 1,
                          &labels[i / 2 % labels.size()]);
    for (std::size_t i = 0; i < 2 * lives.size(); i++)
        ASSERT_NE(0U, ebbi_live_add(&lives[i % lives.size()]));
    ebbi_live_groups groups;
    ASSERT_TRUE(ebbi_live_groups_take(&groups));
    std::size_t count = 0;
    for (std::uint32_t at = groups.first[0]; at != 0; at = groups.at[at - 1].next, count++) {
        const ebbi_live_group &group = groups.at[at - 1];
        const std::size_t which = static_cast<std::size_t>(group.sum.objects) / 2 - 1;
        ASSERT_LT(which, lives.size());
        const ebbi_live &live = lives[which];
        EXPECT_EQ(2 * live.objects, group.sum.objects);
        EXPECT_EQ(4 * live.objects, group.sum.bytes);
        EXPECT_EQ(live.thread, group.thread);
        EXPECT_EQ(live.label, group.label);
        EXPECT_EQ(live.made_ns == 0, group.age > 2);
    }
    EXPECT_EQ(lives.size(), count);
    ebbi_live_groups_end(&groups);
    ebbi_profile_end();
}

} // namespace
