// SPDX-License-Identifier: MIT OR Apache-2.0
// The order of locks, which checked builds watch.
#include <thread>

#include "support/engine.h"

namespace {

struct ebbi_lock owner = EBBI_LOCK(OWNER), other = EBBI_LOCK(OWNER), arena = EBBI_LOCK(ARENA);

TEST(LockOrder, DownTheListAndWithinARank)
{
    ebbi_lock_take(&owner);
    ebbi_lock_take(&other);
    ebbi_lock_take(&arena);
    ebbi_lock_drop(&owner); // in any order
    ebbi_lock_drop(&arena);
    ebbi_lock_drop(&other);
    ebbi_lock_take(&arena);
    std::thread([] { // what another thread holds is of no matter
        ebbi_lock_take(&owner);
        ebbi_lock_drop(&owner);
    })
        .join();
    EXPECT_TRUE(ebbi_lock_try(&owner)) << "who does not wait takes any";
    ebbi_lock_drop(&owner);
    ebbi_lock_drop(&arena);
}

TEST(LockOrder, UpwardOrWithoutARankIsRefused)
{
    if (!EBBI_HAVE_ASSERT)
        GTEST_SKIP() << "checked builds alone";
    EXPECT_DEATH(
        {
            ebbi_lock_take(&arena);
            ebbi_lock_take(&owner);
        },
        "internal check failed: ebbi_lock_held\\[rank\\] == 0");
    EXPECT_DEATH(
        {
            (void)ebbi_lock_try(&arena); // which counts as held, too
            ebbi_lock_take(&owner);
        },
        "internal check failed: ebbi_lock_held\\[rank\\] == 0");
    struct ebbi_lock none = {};
    EXPECT_DEATH(ebbi_lock_take(&none), "internal check failed: lock->rank != EBBI_RANK_NONE");
}

// A fork, or another thread's malloc, would wait for it.
TEST(LockOrder, UnderNoneGranulesAreAskedForOrGivenBack)
{
    if (!EBBI_HAVE_ASSERT)
        GTEST_SKIP() << "checked builds alone";
    ASSERT_EQ(0, ebbi_start());
    void *granule = ebbi_own_take();
    ASSERT_NE(nullptr, granule);
    for (struct ebbi_lock *lock : {&owner, &arena}) {
        EXPECT_DEATH(
            {
                ebbi_lock_take(lock);
                ebbi_own_give(granule);
            },
            "internal check failed: ebbi_lock_held\\[rank\\] == 0");
        EXPECT_DEATH(
            {
                ebbi_lock_take(lock);
                ebbi_own_take();
            },
            "internal check failed: ebbi_lock_held\\[rank\\] == 0");
    }
    ebbi_own_give(granule);
}

} // namespace
