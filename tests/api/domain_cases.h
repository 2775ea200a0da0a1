// SPDX-License-Identifier: MIT OR Apache-2.0
// Domains: policies, epochs, blocks that cross their borders, threads that come and go, statistics.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include "region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

ebb_domain *open_domain(const char *label, ebb_domain_policy policy = EBB_DOMAIN_NEVER,
                        std::size_t n = 0)
{
    ebb_domain *domain = ebb_domain_open(label);
    EXPECT_NE(domain, nullptr);
    EXPECT_EQ(ebb_domain_set_policy(domain, policy, n), 0);
    return domain;
}

void serve(ebb_domain *domain, std::size_t objects = 20)
{
    void *blocks[100];
    const InDomain scope(domain);
    for (std::size_t i = 0; i < objects; i++)
        blocks[i] = std::memset(api::allocate(100 + i * 8), 1, 100);
    for (std::size_t i = 0; i < objects; i++)
        api::release(blocks[i]);
}

void serve_often(ebb_domain *domain, std::size_t scopes)
{
    for (std::size_t i = 0; i < scopes; i++)
        serve(domain);
}

// Everything that threads hold of the domain's free memory goes home.
bool settles_at(ebb_domain *domain, std::size_t live_blocks)
{
    return eventually([=] {
        ebb_domain_advance(domain);
        ebb_trim();
        return stats(domain).live_blocks == live_blocks;
    });
}

TEST(Domain, IsFoundByItsName)
{
    ebb_domain *domain = ebb_domain_open("named");
    ASSERT_NE(domain, nullptr);
    EXPECT_EQ(ebb_domain_open("named"), domain);
    EXPECT_NE(ebb_domain_open("other"), domain);
    EXPECT_STREQ(stats(domain).label, "named");
    EXPECT_EQ(stats(domain).is_domain, 1);
    const std::string built = std::string("nam") + "ed";
    in_thread([&] { EXPECT_EQ(ebb_domain_open(built.c_str()), domain); });
}

// Above 128 KiB, in a domain, in a region, and in one with a limit: the same size and a smaller one stay, and
// growth by little moves it now and then.
TEST(Domain, LargeBlocksDoNotMoveAtEachRealloc)
{
    ebb_domain *domain = open_domain("grows");
    ebb_region *region = open("grows");
    ebb_region_options limited = {};
    limited.hard_limit = 16 * MiB;
    ebb_region *tight = ebb_region_open(&limited);
    const auto grow = [](const char *where) {
        std::size_t moves = 0;
        char *p = static_cast<char *>(api::allocate(200 * KiB));
        ASSERT_NE(p, nullptr);
        EXPECT_EQ(api::resize(p, 200 * KiB), p) << where;
        EXPECT_EQ(api::resize(p, 150 * KiB), p) << where;
        for (std::size_t bytes = 200 * KiB; bytes < 2 * MiB; bytes += 64) {
            p[bytes - 65] = 7;
            char *const to = static_cast<char *>(api::resize(p, bytes));
            ASSERT_NE(to, nullptr);
            EXPECT_EQ(to[bytes - 65], 7);
            moves += to != p;
            p = to;
        }
        EXPECT_LT(moves, 500U) << where;
        errno = 0;
        p = static_cast<char *>(api::resize(p, 300 * KiB));
        EXPECT_EQ(errno, 0) << where;
        api::release(p);
    };
    {
        const InDomain scope(domain);
        grow("domain");
    }
    for (ebb_region *one : {region, tight}) {
        const ebb_scope before = ebb_region_enter(one);
        grow("region");
        ebb_leave(before);
        ebb_region_release(one);
    }
}

TEST(Domain, NamesThatAreNoneAreRefused)
{
    for (const char *name : {static_cast<const char *>(nullptr), ""}) {
        errno = 0;
        EXPECT_EQ(ebb_domain_open(name), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

TEST(Domain, PoliciesThatAreNoneAreRefusedAndChangeNothing)
{
    ebb_domain *domain = open_domain("refusals", EBB_DOMAIN_SCOPES, 2);
    for (ebb_domain_policy policy : {EBB_DOMAIN_SCOPES, EBB_DOMAIN_BYTES, EBB_DOMAIN_MS}) {
        errno = 0;
        EXPECT_EQ(ebb_domain_set_policy(domain, policy, 0), -1);
        EXPECT_EQ(errno, EINVAL);
    }
    for (int policy : {-1, EBB_DOMAIN_MANUAL + 1, 1000}) {
        errno = 0;
        EXPECT_EQ(ebb_domain_set_policy(
                      domain, static_cast<ebb_domain_policy>(support::opaque(policy)), 10),
                  -1);
        EXPECT_EQ(errno, EINVAL);
    }
    serve_often(domain, 10);
    EXPECT_EQ(stats(domain).closed, 5U);
    EXPECT_EQ(ebb_domain_set_policy(domain, EBB_DOMAIN_MANUAL, 0), 0);
    EXPECT_EQ(ebb_domain_set_policy(domain, EBB_DOMAIN_NEVER, 0), 0);
}

TEST(DomainPolicy, NeverIsOneEpoch)
{
    ebb_domain *domain = ebb_domain_open("never");
    serve_often(domain, 5000);
    EXPECT_EQ(stats(domain).closed, 0U);
    EXPECT_EQ(stats(domain).opened, 5000U);
}

TEST(DomainPolicy, EveryNScopes)
{
    for (std::size_t n : {1U, 2U, 7U, 100U, 1000000U}) {
        ebb_domain *domain =
            open_domain(("every " + std::to_string(n)).c_str(), EBB_DOMAIN_SCOPES, n);
        serve_often(domain, 700);
        EXPECT_EQ(stats(domain).closed, 700 / n) << n;
        EXPECT_EQ(stats(domain).drained, 700 / n) << n;
        EXPECT_EQ(stats(domain).opened, 700U);
    }
}

TEST(DomainPolicy, ScopesAreCountedForEachThread)
{
    ebb_domain *domain = open_domain("each thread", EBB_DOMAIN_SCOPES, 10);
    Worker workers[3];
    for (std::size_t i = 0; i < 27; i++)
        workers[i % 3].run([domain] { serve(domain); });
    EXPECT_EQ(stats(domain).closed, 0U) << "nine scopes each";
    for (Worker &worker : workers)
        worker.run([domain] { serve(domain); });
    EXPECT_EQ(stats(domain).closed, 3U);
    EXPECT_EQ(stats(domain).open, 3U);
}

TEST(DomainPolicy, OnlyOutermostScopesCount)
{
    ebb_domain *domain = open_domain("outermost", EBB_DOMAIN_SCOPES, 2);
    ebb_domain *other = open_domain("in between", EBB_DOMAIN_SCOPES, 1000000);
    for (int i = 0; i < 10; i++) {
        const InDomain outermost(domain);
        serve(domain);
        const InDomain between(other);
        serve(domain);
    }
    EXPECT_EQ(stats(domain).closed, 5U);
}

TEST(DomainPolicy, BytesThatSlabsGave)
{
    ebb_domain *domain = open_domain("bytes", EBB_DOMAIN_BYTES, MiB);
    void *again = nullptr;
    for (std::size_t i = 0; i < 50000; i++) {
        const InDomain scope(domain);
        api::release(again);
        again = api::allocate(1000);
    }
    EXPECT_EQ(stats(domain).closed, 0U) << "one block again and again counts once";
    support::MappedArray<void *> blocks(8000);
    for (void *&block : blocks) {
        const InDomain scope(domain);
        block = api::allocate(1000);
    }
    EXPECT_GE(stats(domain).closed, 4U);
    EXPECT_LE(stats(domain).closed, 12U);
    for (void *block : blocks)
        api::release(block);
    api::release(again);
}

TEST(DomainPolicy, Milliseconds)
{
    ebb_domain *short_lived = open_domain("soon", EBB_DOMAIN_MS, 20);
    ebb_domain *long_lived = open_domain("much later", EBB_DOMAIN_MS, 3600 * 1000);
    for (int i = 0; i < 3; i++) {
        serve(short_lived);
        serve(long_lived);
        usleep(100 * 1000);
        serve(short_lived);
        serve(long_lived);
    }
    EXPECT_GE(stats(short_lived).closed, 3U);
    EXPECT_EQ(stats(long_lived).closed, 0U);
}

TEST(DomainPolicy, ManualFromThisThreadAndAnother)
{
    ebb_domain *domain = open_domain("manual", EBB_DOMAIN_MANUAL);
    Worker worker;
    worker.run([domain] { serve_often(domain, 100); });
    EXPECT_EQ(stats(domain).closed, 0U);
    ebb_domain_advance(domain);
    worker.run([domain] { serve(domain); });
    EXPECT_EQ(stats(domain).closed, 1U);
    worker.run([domain] { serve(domain); });
    EXPECT_EQ(stats(domain).closed, 1U) << "one advance ends one epoch";
    serve(domain);
    ebb_domain_advance(domain);
    EXPECT_EQ(stats(domain).closed, 2U) << "the calling thread's ends now";
    worker.run([domain] { serve(domain); });
    EXPECT_EQ(stats(domain).closed, 3U);
}

TEST(DomainPolicy, AdvanceWorksInsideAScopeAndWithEveryPolicy)
{
    for (ebb_domain_policy policy :
         {EBB_DOMAIN_NEVER, EBB_DOMAIN_SCOPES, EBB_DOMAIN_BYTES, EBB_DOMAIN_MS}) {
        ebb_domain *domain =
            open_domain(("advance " + std::to_string(policy)).c_str(), policy, 1000000);
        void *block = nullptr;
        {
            const InDomain scope(domain);
            block = api::allocate(100);
            support::fill_pattern(block, 0, 100, 1);
            ebb_domain_advance(domain);
            serve(domain);
        }
        EXPECT_EQ(stats(domain).closed, 1U) << policy;
        EXPECT_EQ(stats(domain).drained, 0U) << "one block survived";
        EXPECT_EQ(support::find_mismatch(block, 100, 1), 100U);
        api::release(block);
    }
}

// In a thread of its own: the first call puts the thread into the domain for good.
TEST(Domain, AnIdleThreadEndsItsUnitOfWork)
{
    ebb_domain *domain = ebb_domain_open("thread"), *other = ebb_domain_open("not idle");
    const std::uint64_t before = stats(domain).closed;
    std::thread([&] {
        errno = 12345;
        for (int i = 0; i < 3; i++) {
            api::release(api::allocate(100));
            ebb_thread_idle();
        }
        EXPECT_EQ(errno, 12345);
        EXPECT_EQ(stats(domain).closed, before + 3);
        void *block = api::allocate(100);
        EXPECT_GE(stats(domain).live_blocks, 1U) << "in the domain for good";
        api::release(block);
        const InDomain scope(other);
        ebb_thread_idle();
        EXPECT_EQ(stats(domain).closed, before + 3) << "the program's own scope is left alone";
        EXPECT_EQ(stats(other).closed, 0U);
    }).join();
}

TEST(Domain, SurvivorsAreCountedAsPinnedUnderItsName)
{
    ebb_domain *domain = open_domain("survivors", EBB_DOMAIN_SCOPES, 1);
    void *survivors[50];
    for (void *&survivor : survivors) {
        {
            const InDomain scope(domain);
            survivor = std::memset(api::allocate(200), 1, 200);
        }
        serve(domain);
    }
    ebb_lifetime_stats now = stats(domain);
    EXPECT_EQ(now.live_blocks, 50U);
    EXPECT_GE(now.live_bytes, 50U * 200);
    EXPECT_GT(now.pinned_bytes, 0U);
    EXPECT_LE(now.pinned_bytes, now.resident_bytes);
    EXPECT_LE(now.resident_bytes, now.held_bytes);
    EXPECT_LE(now.live_bytes, now.held_bytes);
    EXPECT_GE(now.peak_bytes, now.held_bytes);
    EXPECT_EQ(now.closed, 100U);
    EXPECT_EQ(now.drained, 0U);
    for (void *survivor : survivors)
        api::release(survivor);
    EXPECT_TRUE(settles_at(domain, 0));
}

TEST(Domain, BlocksAreNoRegions)
{
    ebb_domain *domain = open_domain("no region");
    const InDomain scope(domain);
    for (std::size_t bytes : {std::size_t{10}, 20 * KiB, MiB}) {
        void *block = api::allocate(bytes);
        EXPECT_EQ(ebb_region_of(block), nullptr);
        EXPECT_GE(api::usable_bytes(block), bytes);
        api::release(block);
    }
}

// Each kind of block is allocated on one side and freed, or resized, on the other.
TEST(Domain, BlocksCrossItsBorderBothWays)
{
    ebb_domain *domain = open_domain("crossing", EBB_DOMAIN_SCOPES, 3);
    support::MappedArray<void *> inside(3000);
    support::MappedArray<void *> outside(3000);
    const auto bytes_of = [](std::size_t i) { return i % 100 == 0 ? 300 * KiB : i * 5 % 3000; };
    for (std::size_t i = 0; i < inside.size(); i++) {
        outside[i] = api::allocate(bytes_of(i));
        support::fill_pattern(outside[i], 0, bytes_of(i), seed_of(i));
        const InDomain scope(domain);
        inside[i] = api::allocate(bytes_of(i));
        support::fill_pattern(inside[i], 0, bytes_of(i), seed_of(i));
    }
    EXPECT_EQ(stats(domain).live_blocks, 3000U);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < inside.size(); i++) {
        if (i % 2 == 0)
            inside[i] = api::resize(inside[i], bytes_of(i) + 1);
        wrong += !is_filled(inside[i], bytes_of(i), i);
        api::release(inside[i]);
        const InDomain scope(domain);
        if (i % 2 == 0)
            outside[i] = api::resize(outside[i], bytes_of(i) + 1);
        wrong += !is_filled(outside[i], bytes_of(i), i);
        api::release(outside[i]);
    }
    EXPECT_EQ(wrong, 0U);
    EXPECT_TRUE(settles_at(domain, 0));
    EXPECT_EQ(stats(domain).live_bytes, 0U);
}

TEST(Domain, BlocksAreFreedByOtherThreadsInOtherDomains)
{
    ebb_domain *maker = open_domain("maker", EBB_DOMAIN_SCOPES, 5);
    ebb_domain *taker = open_domain("taker", EBB_DOMAIN_SCOPES, 5);
    Worker other;
    support::MappedArray<void *> blocks(500);
    for (int round = 0; round < 50; round++) {
        {
            const InDomain scope(maker);
            for (std::size_t i = 0; i < blocks.size(); i++) {
                blocks[i] = api::allocate(i);
                support::fill_pattern(blocks[i], 0, i, seed_of(i));
            }
        }
        std::size_t wrong = 0;
        other.run([&] {
            const InDomain scope(taker);
            for (std::size_t i = 0; i < blocks.size(); i++) {
                wrong += !is_filled(blocks[i], i, i);
                api::release(blocks[i]);
            }
        });
        ASSERT_EQ(wrong, 0U);
    }
    other.run([taker] {
        ebb_domain_advance(taker);
        ebb_trim();
    });
    EXPECT_TRUE(settles_at(maker, 0));
    EXPECT_EQ(stats(taker).live_blocks, 0U);
}

TEST(Domain, ThreadsComeAndGoByTheThousand)
{
    ebb_domain *domain = open_domain("come and go", EBB_DOMAIN_SCOPES, 2);
    const std::size_t rounds = support::scaled(1000);
    support::MappedArray<void *> left(rounds * 4);
    for (std::size_t round = 0; round < rounds; round++) {
        std::thread threads[4];
        for (std::size_t id = 0; id < 4; id++)
            threads[id] = std::thread([&, id] {
                serve_often(domain, 3);
                const InDomain scope(domain);
                left[round * 4 + id] = std::memset(api::allocate(300), 1, 300);
            });
        for (std::thread &thread : threads)
            thread.join();
    }
    EXPECT_EQ(stats(domain).opened, rounds * 16);
    EXPECT_EQ(stats(domain).live_blocks, rounds * 4);
    EXPECT_EQ(stats(domain).open, 0U) << "epochs of threads that have ended";
    support::expect_at_most(stats(domain).held_bytes, 16 * MiB, "four threads at a time");
    for (void *block : left)
        api::release(block);
    EXPECT_TRUE(settles_at(domain, 0));
}

// The scope is a thread's own: what its end leaves current is of no concern to the next one.
TEST(Domain, ThreadsMayEndInsideAScope)
{
    ebb_domain *domain = open_domain("ends inside", EBB_DOMAIN_SCOPES, 1);
    ebb_region *region = open("thread ends inside");
    for (int i = 0; i < 300; i++)
        in_thread([&] {
            if (i % 2 == 0)
                ebb_region_enter(region);
            ebb_domain_enter(domain);
            api::release(api::allocate(100));
        });
    in_thread([] {
        void *block = api::allocate(100);
        EXPECT_EQ(ebb_region_of(block), nullptr);
        api::release(block);
    });
    EXPECT_EQ(stats(domain).live_blocks, 0U);
    EXPECT_EQ(stats(domain).open, 0U);
    ebb_region_release(region);
}

// Domains and regions nest in any order; leaving restores what was there.
TEST(Domain, NestsWithRegionsAndTheHeap)
{
    ebb_domain *domain = open_domain("nested");
    ebb_region *region = open("nested region");
    void *blocks[5];
    {
        const InDomain outer(domain);
        blocks[0] = api::allocate(100);
        {
            const InRegion inner(region);
            blocks[1] = api::allocate(100);
            {
                const InDomain again(domain);
                blocks[2] = api::allocate(100);
                const InHeap heap;
                blocks[3] = api::allocate(100);
            }
            blocks[4] = api::allocate(100);
        }
    }
    EXPECT_EQ(stats(domain).live_blocks, 2U);
    for (std::size_t i : {0U, 2U, 3U})
        EXPECT_EQ(ebb_region_of(blocks[i]), nullptr) << i;
    EXPECT_EQ(ebb_region_of(blocks[1]), region);
    EXPECT_EQ(ebb_region_of(blocks[4]), region);
    for (void *block : blocks)
        api::release(block);
    ebb_region_close(region);
    EXPECT_TRUE(settles_at(domain, 0));
}

// Small blocks of a domain share their slabs with nobody.
TEST(Domain, SlabsHoldNothingElse)
{
    ebb_domain *domain = open_domain("apart");
    support::MappedArray<std::uintptr_t> granules(4000);
    for (std::size_t i = 0; i < granules.size(); i += 2) {
        granules[i] = support::address(api::allocate(100)) >> 16;
        const InDomain scope(domain);
        granules[i + 1] = support::address(api::allocate(100)) >> 16;
    }
    std::size_t shared = 0;
    for (std::size_t i = 0; i < granules.size(); i += 2)
        for (std::size_t j = 1; j < granules.size(); j += 2)
            shared += granules[i] == granules[j];
    EXPECT_EQ(shared, 0U);
}

TEST(Domain, HasItsLineAmongTheLifetimes)
{
    const std::size_t before = ebb_lifetimes_get(nullptr, 0);
    ebb_domain *domain = open_domain("among the lines");
    ebb_region *region = open("region among the lines");
    void *block = nullptr;
    {
        const InDomain scope(domain);
        block = api::allocate(1000);
    }
    EXPECT_EQ(line("among the lines").is_domain, 1);
    EXPECT_EQ(line("among the lines").opened, 1U);
    EXPECT_EQ(line("among the lines").live_blocks, 1U);
    EXPECT_EQ(line("region among the lines").is_domain, 0);
    support::MappedArray<ebb_lifetime_stats> lines(before + 2);
    EXPECT_EQ(ebb_lifetimes_get(lines.begin(), before + 1), before + 2);
    EXPECT_STREQ(lines[before].label, "among the lines") << "in the order of first use";
    EXPECT_STREQ(lines[before + 1].label, "") << "one line more than there was room for";
    api::release(block);
    ebb_region_release(region);
}

} // namespace
