// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions in the destructors of a thread's keys, in every round of them that libc makes: the last ones come
// after the thread's own heap has gone.
#include "../api/api_ebb.h"

#include <climits>

#include "../api/region_support.h"

namespace {

using namespace regions;
using support::KiB;

struct Late {
    pthread_key_t key;
    ebb_region *region;
    int rounds;
    bool right;
};

bool use(ebb_region *region, std::size_t seed)
{
    void *small = take_filled(region, 100, seed);
    void *large = take_filled(region, 300 * KiB, seed + 1);
    void *aligned = ebb_region_aligned_alloc(region, 4096, 5000);
    void *zeroed = ebb_region_calloc(region, 10, 10);
    void *moved = ebb_region_realloc(region, take_filled(region, 50, seed + 2), 3000);
    bool right = small != nullptr && large != nullptr && aligned != nullptr && zeroed != nullptr &&
                 moved != nullptr && is_filled(small, 100, seed) &&
                 is_filled(large, 300 * KiB, seed + 1) && is_filled(moved, 50, seed + 2) &&
                 ebb_region_of(small) == region && ebb_region_of(large) == region;
    ebb_free(small);
    ebb_free(large);
    void *copy = ebb_region_promote(moved, nullptr);
    right = right && copy != nullptr && is_filled(copy, 50, seed + 2);
    ebb_free(copy);
    return right;
}

void in_a_round(void *argument)
{
    auto *late = static_cast<Late *>(argument);
    late->rounds++;
    late->right = late->right && use(late->region, static_cast<std::size_t>(late->rounds));
    ebb_region *own = open("of a late round");
    late->right = late->right && own != nullptr && use(own, 7);
    late->rounds % 2 == 0 ? ebb_region_release(own) : ebb_region_close(own);
    if (late->rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
        pthread_setspecific(late->key, late);
}

void run_rounds(ebb_region *region)
{
    Late late = {0, region, 0, true};
    ASSERT_EQ(pthread_key_create(&late.key, in_a_round), 0);
    std::thread([&late] {
        use(late.region, 1); // the thread has a heap
        pthread_setspecific(late.key, &late);
    }).join();
    pthread_key_delete(late.key);
    EXPECT_EQ(late.rounds, PTHREAD_DESTRUCTOR_ITERATIONS);
    EXPECT_TRUE(late.right);
}

constexpr const char *no_late_rounds = "TSan ends its part of a thread before the last rounds";

TEST(RegionLate, EveryRoundOfDestructorsMayAllocate)
{
    if (support::under_tsan)
        GTEST_SKIP() << no_late_rounds;
    ebb_region *region = open("late");
    run_rounds(region);
    EXPECT_TRUE(use(region, 1));
    ebb_region_release(region);
    EXPECT_EQ(line("of a late round").open, 0U);
}

// It is closed while a thread is still inside: what comes then is its parent's, or the heap's.
TEST(RegionLate, ARegionThatIsClosedPassesOn)
{
    if (support::under_tsan)
        GTEST_SKIP() << no_late_rounds;
    ebb_region *parent = open("passes on"), *region = open("is closed", parent);
    const ebb_scope before = ebb_region_enter(region);
    ebb_region_close(region);
    bool right = false;
    struct Argument {
        ebb_region *closed, *parent;
        bool *right;
        int rounds;
        pthread_key_t key;
    } argument = {region, parent, &right, 0, 0};
    ASSERT_EQ(pthread_key_create(&argument.key,
                                 [](void *p) {
                                     auto *a = static_cast<Argument *>(p);
                                     if (++a->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
                                         pthread_setspecific(a->key, a);
                                         return;
                                     }
                                     void *block = ebb_region_alloc(a->closed, 100);
                                     *a->right =
                                         block != nullptr && ebb_region_of(block) == a->parent;
                                 }),
              0);
    std::thread([&argument] {
        ebb_free(ebb_malloc(10));
        pthread_setspecific(argument.key, &argument);
    }).join();
    pthread_key_delete(argument.key);
    EXPECT_TRUE(right);
    ebb_leave(before);
    ebb_region_release(parent);
}

// A label whose survivors pin much: the region gives way to a domain, for which the thread has no heap.
TEST(RegionLate, ARegionThatGivesWay)
{
    if (support::under_tsan)
        GTEST_SKIP() << no_late_rounds;
    const ebb_region_options options = {"gives way late", nullptr, 0, 0, 1};
    std::vector<void *> kept;
    for (int i = 0; i < 40; i++) {
        ebb_region *region = ebb_region_open(&options);
        kept.push_back(take(region, 100));
        ebb_region_close(region);
    }
    ebb_region *region = ebb_region_open(&options);
    ASSERT_EQ(ebb_region_of(kept[0] = (ebb_free(kept[0]), take(region, 100))), nullptr)
        << "it does not give way";
    Late late = {0, region, 0, true};
    static void *blocks[PTHREAD_DESTRUCTOR_ITERATIONS];
    ASSERT_EQ(pthread_key_create(&late.key,
                                 [](void *p) {
                                     auto *l = static_cast<Late *>(p);
                                     blocks[l->rounds] = take_filled(l->region, 200, 1);
                                     if (++l->rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
                                         pthread_setspecific(l->key, l);
                                 }),
              0);
    std::thread([&late] {
        ebb_free(ebb_malloc(10));
        pthread_setspecific(late.key, &late);
    }).join();
    pthread_key_delete(late.key);
    ebb_region_close(region);
    for (void *block : blocks) {
        ASSERT_NE(block, nullptr);
        EXPECT_TRUE(is_filled(block, 200, 1));
        ebb_free(block);
    }
    for (void *block : kept)
        ebb_free(block);
}

} // namespace
