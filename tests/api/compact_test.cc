// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb_is_sparse and ebb_compact: contents stay, slabs go, whatever other threads do.
#include "api_ebb.h"

#include <ebbtide.h>
#include <ebbtide/region.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace {

struct Filled {
    unsigned char *at;
    std::size_t bytes;
    unsigned char mark;

    static Filled make(std::size_t bytes, unsigned char mark)
    {
        auto *at = static_cast<unsigned char *>(ebb_malloc(bytes));
        std::memset(at, mark, bytes);
        return {at, bytes, mark};
    }
    [[nodiscard]] bool is_intact() const
    {
        for (std::size_t i = 0; i < bytes; i++)
            if (at[i] != mark)
                return false;
        return true;
    }
};

std::size_t slabs()
{
    auto taken = std::make_unique<ebb_snapshot>();
    ebb_snapshot_get(taken.get());
    return taken->slabs;
}

// Of so many blocks, about `kept` of ten are left.
std::vector<Filled> thinned(std::size_t bytes, int count, unsigned kept, unsigned seed)
{
    std::mt19937 random(seed);
    std::vector<Filled> all;
    std::vector<Filled> left;
    for (int i = 0; i < count; i++)
        all.push_back(Filled::make(bytes, static_cast<unsigned char>(i)));
    for (const Filled &each : all)
        if (random() % 10 < kept)
            left.push_back(each);
        else
            ebb_free(each.at);
    (void)ebb_trim(); // what lies in magazines goes home
    return left;
}

std::size_t compact(std::vector<Filled> &blocks)
{
    std::size_t moved = 0;
    for (Filled &each : blocks) {
        const bool was_sparse = ebb_is_sparse(each.at) != 0;
        auto *to = static_cast<unsigned char *>(ebb_compact(each.at));
        EXPECT_TRUE(was_sparse || to == each.at) << "a dense one has moved";
        moved += to != each.at;
        each.at = to;
    }
    return moved;
}

void check_and_free(const std::vector<Filled> &blocks)
{
    for (const Filled &each : blocks) {
        EXPECT_TRUE(each.is_intact());
        ebb_free(each.at);
    }
}

TEST(Compact, SlabsGoAndContentsStay)
{
    for (const std::size_t bytes : {16U, 100U, 256U, 1000U, 4096U, 30000U}) {
        const int count = static_cast<int>(std::size_t{24 << 20} / (bytes + 100));
        std::vector<Filled> left = thinned(bytes, count, 4, 7);
        const std::size_t before = slabs();
        EXPECT_GT(compact(left), 0U);
        const std::size_t after = slabs();
        EXPECT_LE(after * 10, before * 7 + 200) << bytes << ": " << before << " slabs, " << after;
        EXPECT_LE(compact(left) * 20, left.size()) << "a second time there is little to do";
        check_and_free(left);
    }
}

TEST(Compact, WhatIsDenseStays)
{
    std::vector<Filled> all = thinned(200, 50000, 10, 3);
    EXPECT_EQ(0U, compact(all));
    check_and_free(all);
}

TEST(Compact, OthersStay)
{
    ebb_region *region = ebb_region_open(nullptr);
    void *others[] = {ebb_malloc(0), ebb_malloc(200000), ebb_malloc(40 << 20),
                      ebb_region_alloc(region, 100), nullptr};
    for (void *p : others) {
        EXPECT_EQ(0, ebb_is_sparse(p));
        EXPECT_EQ(p, ebb_compact(p));
    }
    for (int i = 0; i < 3; i++)
        ebb_free(others[i]);
    ebb_region_release(region);
}

TEST(CompactDeathTest, WhatIsNoBlockIsNamed)
{
    auto *p = static_cast<char *>(ebb_malloc(100));
    int local = 0;
    EXPECT_DEATH((void)ebb_is_sparse(p + 16), "invalid");
    EXPECT_DEATH((void)ebb_compact(&local), "invalid");
    ebb_free(p);
    std::vector<Filled> left = thinned(200, 20000, 3, 9);
    std::size_t sparse = 0;
    while (sparse < left.size() && ebb_is_sparse(left[sparse].at) == 0)
        sparse++;
    ASSERT_LT(sparse, left.size());
    EXPECT_DEATH(
        {
            ebb_free(left[sparse].at);
            (void)ebb_compact(left[sparse].at);
        },
        "double free");
    check_and_free(left);
}

std::unique_ptr<ebb_snapshot> look()
{
    auto taken = std::make_unique<ebb_snapshot>();
    ebb_snapshot_get(taken.get());
    return taken;
}

std::size_t dirty()
{
    const auto taken = look();
    return taken->dirty_bytes + taken->dirty_span_bytes;
}

// As long as nobody changes it for a second and a half.
std::size_t dirty_at_rest()
{
    std::size_t last = dirty();
    for (int looks = 0; looks < 30; looks++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const std::size_t now = dirty();
        looks = now == last ? looks : 0;
        last = now;
    }
    return last;
}

// Nobody calls the library any more: the helper gives the pages back.
TEST(Compact, WhatIsLeftGoesHomeInAnIdleProcess)
{
    ASSERT_EQ(0, ebb_helper_start());
    std::vector<Filled> left = thinned(200, 200000, 3, 5);
    const std::size_t pinned = dirty_at_rest(); // the helper has nothing to do any more, and sleeps
    const std::size_t returned = look()->purged_bytes;
    EXPECT_GT(compact(left), 0U); // where that takes long, some of it goes home meanwhile
    EXPECT_GT(dirty() + look()->purged_bytes - returned, pinned / 2);
    EXPECT_LE(dirty_at_rest(), pinned / 4);
    check_and_free(left);
}

// Their slabs are another heap's, which has not looked at what came home.
TEST(Compact, WhatAnotherThreadHasAllocatedAndThisOneFreed)
{
    std::vector<Filled> all;
    std::atomic<bool> filled{false}, over{false};
    std::thread other([&] {
        for (int i = 0; i < 60000; i++)
            all.push_back(Filled::make(200, static_cast<unsigned char>(i)));
        filled.store(true);
        while (!over.load())
            std::this_thread::yield();
    });
    while (!filled.load())
        std::this_thread::yield();
    std::vector<Filled> left;
    for (std::size_t i = 0; i < all.size(); i++)
        if (i % 10 == 0)
            left.push_back(all[i]);
        else
            ebb_free(all[i].at);
    EXPECT_GT(compact(left), left.size() / 2);
    over.store(true);
    other.join();
    check_and_free(left);
}

// Each thread moves its own, and what others have allocated for it.
TEST(Compact, BesideThreadsThatAllocateAndFree)
{
    std::atomic<bool> over{false};
    std::vector<std::thread> churn;
    for (unsigned t = 0; t < 3; t++)
        churn.emplace_back([&over, t] {
            std::mt19937 random(t);
            std::vector<Filled> mine;
            while (!over.load()) {
                mine.push_back(
                    Filled::make(random() % 600 + 1, static_cast<unsigned char>(random())));
                if (mine.size() > 3000) {
                    std::swap(mine[random() % mine.size()], mine.back());
                    EXPECT_TRUE(mine.back().is_intact());
                    ebb_free(mine.back().at);
                    mine.pop_back();
                }
            }
            check_and_free(mine);
        });
    for (unsigned round = 0; round < 6; round++) {
        std::vector<Filled> left = thinned(300, 20000, 3, round);
        std::thread([&left] { (void)compact(left); }).join();
        (void)compact(left);
        check_and_free(left);
    }
    over.store(true);
    for (std::thread &each : churn)
        each.join();
}

} // namespace
