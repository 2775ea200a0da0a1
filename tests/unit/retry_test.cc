// SPDX-License-Identifier: MIT OR Apache-2.0
// Layers arena and process: memory that the kernel does not take when it is offered (locked, or too many mappings) does not keep
// what lies behind it, and goes home later, while nobody calls.
#include <chrono>

#include "support/engine.h"

namespace {

using namespace unit;

struct Retry : Fake {
    std::vector<void *> objects, between;

    // Free spans of a mebibyte each, one after the other.
    void free_objects(int count)
    {
        for (int i = 0; i < count; i++) {
            objects.push_back(ebb_malloc(MiB));
            between.push_back(ebb_malloc(3 * EBBI_GRANULE));
            std::memset(objects.back(), 1, MiB);
        }
        for (void *p : objects)
            ebb_free(p);
        ebbi_spares_rest(ebbi_heap_get());
    }
};

TEST_F(Retry, APassGoesByWhatIsRefused)
{
    fake_os_clock(100000);
    fake_os_threaded(false);
    free_objects(6);
    const std::size_t dirty = ebbi_arena_dirty_bytes();
    ASSERT_LE(6 * MiB, dirty);
    fake_os_refuse(FAKE_PURGE, 1, false);
    (void)ebbi_arena_purge(100600, 500, SIZE_MAX);
    EXPECT_TRUE(ebbi_arena_was_refused());
    EXPECT_EQ(MiB, ebbi_arena_dirty_bytes());
    (void)ebbi_arena_purge(101200, 500, SIZE_MAX);
    EXPECT_FALSE(ebbi_arena_was_refused());
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
}

// Not for ever, where all is refused.
TEST_F(Retry, APassEndsWhereAllIs)
{
    fake_os_clock(100000);
    fake_os_threaded(false);
    free_objects(40);
    const std::size_t before = fake_os_count(FAKE_PURGE);
    fake_os_refuse(FAKE_PURGE, 1, true);
    for (std::uint64_t delay_ms : {500, 0})
        (void)ebbi_arena_purge(100600, delay_ms, SIZE_MAX);
    EXPECT_EQ(before + 32, fake_os_count(FAKE_PURGE));
    (void)ebbi_arena_purge(100600, 0, 20 * MiB); // by a free, of which there may be many
    EXPECT_EQ(before + 33, fake_os_count(FAKE_PURGE));
    EXPECT_LE(40 * MiB, ebbi_arena_dirty_bytes());
}

TEST_F(Retry, TheHelperOffersItAgain)
{
    using clock = std::chrono::steady_clock;
    setenv("EBB_PURGE_DELAY_MS", "50", 1);
    ebbi_options_read();
    ASSERT_EQ(0, ebb_helper_start());
    fake_os_refuse(FAKE_PURGE, 1, true);
    free_objects(4);
    const auto begin = clock::now();
    while (fake_os_refused(FAKE_PURGE) == 0 && clock::now() - begin < std::chrono::seconds(20))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_LT(0U, fake_os_refused(FAKE_PURGE));
    std::this_thread::sleep_for(std::chrono::milliseconds(300)); // there is nothing else to do
    EXPECT_LE(4 * MiB, ebbi_arena_dirty_bytes());
    fake_os_allow();
    while (ebbi_arena_dirty_bytes() > 0 && clock::now() - begin < std::chrono::seconds(40))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(0U, ebbi_arena_dirty_bytes());
}

} // namespace
