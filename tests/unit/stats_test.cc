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

// Of an object of 8 MiB, fresh, of which each page has been read.
std::size_t live_of_what_was_read()
{
    ebb_stats before, after;
    ebb_stats_get(&before);
    auto *p = static_cast<volatile char *>(ebb_calloc(1, 8 * unit::MiB));
    for (std::size_t at = 0; at < 8 * unit::MiB; at += 4096)
        EXPECT_EQ(0, p[at]);
    ebb_stats_get(&after);
    ebb_free(const_cast<char *>(p));
    (void)ebb_trim(); // the next one is fresh, too
    return after.resident_live + after.resident_rounding - before.resident_live -
           before.resident_rounding;
}

TEST(Stats, PagesThatWereOnlyReadAreNotResident)
{
    struct ebbi_os_pages pages;
    unsigned char there;
    ebbi_os_pages_open(&pages);
    const auto page = reinterpret_cast<std::uintptr_t>(&there) & ~std::uintptr_t{4095};
    EXPECT_TRUE(ebbi_os_resident(&pages, reinterpret_cast<void *>(page), 4096, &there));
    EXPECT_EQ(1, there & 1);
    if (pages.file < 0)
        GTEST_SKIP() << "this kernel does not tell them apart";
    ebbi_os_pages_close(&pages);
    EXPECT_GT(unit::MiB, live_of_what_was_read());
    fake_os_refuse(FAKE_PAGES, 1, true);
    EXPECT_LT(2 * unit::MiB, live_of_what_was_read()); // mincore's word, less what VmRSS has not
    fake_os_allow();
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
