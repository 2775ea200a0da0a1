// SPDX-License-Identifier: MIT OR Apache-2.0
// Layers arena and process: memory that the kernel does not take when it is offered (locked, or too many mappings) does not keep
// what lies behind it, and goes home later, while nobody calls.
#include <chrono>

#include "support/engine.h"

extern "C" {
#define _Static_assert static_assert
#include "process/process.h"
#undef _Static_assert
}

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

// Of slabs whose blocks are free for the most part.
TEST_F(Retry, PagesOfSlabsAreOfferedAgain)
{
    fake_os_clock(100000);
    fake_os_threaded(false);
    std::vector<void *> blocks;
    for (int i = 0; i < 20000; i++)
        blocks.push_back(std::memset(ebb_malloc(500), 1, 500));
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 100 != 0)
            ebb_free(blocks[i]);
    ebbi_flush_all(ebbi_heap_get());
    const auto pass_at = [](std::uint64_t now_ms) {
        fake_os_clock(now_ms);
        struct ebbi_pass pass = {};
        pass.delay_ms = 500;
        const std::size_t before = ebbi_arena_purged_bytes();
        ebbi_purge_pass(&pass);
        return ebbi_arena_purged_bytes() - before;
    };
    fake_os_refuse(FAKE_PURGE, 1, true);
    std::size_t gone = 0;
    for (std::uint64_t now_ms = 101000; now_ms < 102000; now_ms += 250)
        gone += pass_at(now_ms);
    EXPECT_EQ(0U, gone);
    EXPECT_LT(100U, fake_os_refused(FAKE_PURGE));
    const std::size_t refused = fake_os_refused(FAKE_PURGE);
    for (std::uint64_t now_ms = 102000; now_ms < 105000; now_ms += 250)
        gone += pass_at(now_ms);
    EXPECT_GE(refused + 20, fake_os_refused(FAKE_PURGE)) << "spans alone, as often as that";
    fake_os_allow();
    for (std::uint64_t now_ms = 105500; now_ms < 108000; now_ms += 250)
        gone += pass_at(now_ms);
    EXPECT_LT(5 * MiB, gone);
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
