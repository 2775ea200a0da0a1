// SPDX-License-Identifier: MIT OR Apache-2.0
// Statistics when the OS refuses their scratch memory, and of what is not there yet.
#include "support/engine.h"

namespace {

TEST(Stats, WithoutScratchMemoryWhatIsCachedIsAnEstimate)
{
    ebb_stats exact, estimate;
    ebb_free(ebb_malloc(100));
    ebb_stats_get(&exact);
    fake_os_refuse(FAKE_MAP, 1, true);
    ebb_stats_get(&estimate);
    fake_os_allow();
    EXPECT_GE(fake_os_refused(FAKE_MAP), 1U);
    EXPECT_EQ(exact.live_blocks, estimate.live_blocks);
    EXPECT_EQ(exact.live_bytes, estimate.live_bytes);
    EXPECT_EQ(exact.cached_bytes, estimate.cached_bytes);
    EXPECT_EQ(estimate.resident, estimate.resident_live + estimate.resident_rounding +
                                     estimate.resident_cached + estimate.resident_pinned +
                                     estimate.resident_free + estimate.resident_metadata +
                                     estimate.resident_other);
}

TEST(Stats, TheScratchMemoryIsGivenBack)
{
    ebb_stats s;
    ebb_free(ebb_malloc(100));
    const std::size_t held = fake_os_held_bytes();
    ebb_stats_get(&s);
    EXPECT_EQ(held, fake_os_held_bytes());
    EXPECT_GE(fake_os_count(FAKE_MAP), 1U);
}

// Its thread has the span, and has not written yet what lies there: another's header was there before.
TEST(Stats, AnObjectThatIsJustBegunIsNoLongerThanItsSpan)
{
    void *p = ebb_malloc(200000);
    struct ebbi_large *large = ebbi_large_of(p);
    const std::size_t bytes = large->bytes;
    for (const std::size_t stale : {std::size_t{1} << 52, SIZE_MAX}) {
        large->bytes = stale;
        large->shift = static_cast<std::uint32_t>(stale);
        ebb_stats stats;
        ebb_stats_get(&stats);
        EXPECT_GT(64 * unit::MiB, stats.resident_live + stats.resident_rounding);
    }
    large->bytes = bytes;
    large->shift = 0;
    ebb_free(p);
}

} // namespace
