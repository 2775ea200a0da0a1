// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the window, its tag table, and places in it.
#include "support/arena_walk.h"

namespace {

using namespace unit;

using Window = Fake;

char *in_window(std::size_t offset) { return reinterpret_cast<char *>(ebbi_window.base + offset); }

std::size_t window_bytes() { return ebbi_window.granules * EBBI_GRANULE; }

TEST_F(Window, AnyPointerMayBeAsked)
{
    int local = 0;
    for (std::uintptr_t p : {std::uintptr_t{0}, std::uintptr_t{1}, address(&local), UINTPTR_MAX,
                             std::uintptr_t{1} << 47, (std::uintptr_t{1} << 47) - 1,
                             ebbi_window.base - 1, ebbi_window.base + window_bytes()})
        EXPECT_EQ(EBBI_TAG_NONE, ebbi_tag_of(reinterpret_cast<void *>(p))) << p;
}

TEST_F(Window, SetsAndClearsARange)
{
    char *start = in_window(20 * GiB);
    ASSERT_EQ(0, ebbi_tags_prepare(start, 100 * EBBI_GRANULE));
    ebbi_tags_set(start + EBBI_GRANULE, 3, 9);
    EXPECT_EQ(0, ebbi_tag_of(start));
    EXPECT_EQ(9, ebbi_tag_of(start + EBBI_GRANULE));
    EXPECT_EQ(9, ebbi_tag_of(start + 4 * EBBI_GRANULE - 1));
    EXPECT_EQ(0, ebbi_tag_of(start + 4 * EBBI_GRANULE));
    ebbi_tags_set(start, 100, EBBI_TAG_NONE);
    EXPECT_EQ(0, ebbi_tag_of(start + EBBI_GRANULE));
}

TEST_F(Window, ItsTableReadsWithoutAFault)
{
    for (std::size_t at = 0; at < window_bytes(); at += GiB)
        ASSERT_EQ(EBBI_TAG_NONE, ebbi_tag_of(in_window(at)));
    EXPECT_EQ(EBBI_TAG_NONE, ebbi_tag_of(in_window(window_bytes() - 1)));
}

TEST_F(Window, FollowsMemoryAndTheLimit)
{
    fake_os_memory(GiB);
    ASSERT_EQ(0, ebbi_window_open());
    std::size_t usual = window_bytes();
    EXPECT_GE(256 * GiB, usual);
    EXPECT_EQ(0U, ebbi_window.base % EBBI_CHUNK);
    fake_os_memory(300 * GiB);
    ASSERT_EQ(0, ebbi_window_open());
    EXPECT_TRUE(window_bytes() == 2048 * GiB || emulated || under_tsan) << window_bytes();
    start_limited(512 * MiB);
    EXPECT_GE(64 * GiB, window_bytes());
    EXPECT_GE(usual, window_bytes());
}

TEST_F(Window, IsLookedForElsewhereWhereItsPlaceIsRefused)
{
    std::uintptr_t usual = ebbi_window.base;
    void *got[18] = {};
    ASSERT_NE(nullptr, ebbi_span_alloc(3, 1, EBBI_SPAN_LARGE)); // its chunk has the first place
    for (std::size_t i = 1; i < 18; i++)
        got[i] = ebbi_os_reserve(in_window(i * GiB), MiB);
    ASSERT_EQ(0, ebbi_window_open());
    EXPECT_NE(usual, ebbi_window.base);
    EXPECT_NE(nullptr, ebbi_span_alloc(3, 1, EBBI_SPAN_LARGE));
    for (void *p : got)
        if (p != nullptr)
            ebbi_os_release(p, MiB);
}

TEST_F(Window, APlaceThatIsTakenIsPassedOver)
{
    ASSERT_NE(nullptr, ebbi_span_alloc(3, 1, EBBI_SPAN_LARGE));
    void *taken = ebbi_os_reserve(in_window(GiB), MiB);
    ASSERT_NE(nullptr, taken);
    for (int i = 0; i < 4; i++)
        EXPECT_NE(nullptr, ebbi_span_alloc(9000, 1, EBBI_SPAN_LARGE));
    ASSERT_ARENA_WHOLE();
    ebbi_os_release(taken, MiB);
}

TEST_F(Window, ARefusedTableIsReportedAndTriedAgain)
{
    std::size_t held = fake_os_held_bytes();
    for (fake_call call : {FAKE_RESERVE_READABLE, FAKE_RESERVE}) {
        fake_os_refuse(call, 1, true);
        EXPECT_EQ(-ENOMEM, ebbi_window_open());
        EXPECT_LE(fake_os_held_bytes(), held);
        fake_os_allow();
        EXPECT_EQ(0, ebbi_window_open()) << "may be called again";
    }
}

TEST_F(Window, ARefusedCommitIsReported)
{
    fake_os_refuse(FAKE_COMMIT, 1, true);
    EXPECT_EQ(-ENOMEM, ebbi_tags_prepare(in_window(0), EBBI_GRANULE));
}

TEST_F(Window, WhenItIsFullLargeObjectsAreMappings)
{
    start_limited(30 * GiB);
    fake_os_limit(SIZE_MAX);
    std::size_t spans = 0;
    while (ebbi_span_alloc(9000, 1, EBBI_SPAN_LARGE) != nullptr)
        spans++;
    EXPECT_LE(spans, window_bytes() / GiB);
    EXPECT_GE(spans, window_bytes() / GiB - 8);
    EXPECT_EQ(nullptr, ebbi_span_alloc(9000, 1, EBBI_SPAN_LARGE));
    auto *p = static_cast<char *>(ebb_malloc(600 * MiB));
    ASSERT_NE(nullptr, p);
    p[600 * MiB - 1] = 1;
    ebb_free(p);
    EXPECT_NE(nullptr, ebb_malloc(100)) << "the small chunks of the beginning have room";
}

TEST_F(Window, ForeignAddressesAreNamedWhereverTheyLie)
{
    void *p = ebb_malloc(100);
    int local = 0;
    const char *message = "does not come from this allocator";
    EXPECT_DEATH(ebb_free(static_cast<char *>(p) + 8 * GiB), message);
    EXPECT_DEATH(ebb_free(&local), message);
    EXPECT_DEATH(ebb_free(reinterpret_cast<void *>(UINTPTR_MAX - 15)), message);
    EXPECT_DEATH(ebb_free(reinterpret_cast<void *>(ebbi_window.base - 16)), message);
    EXPECT_DEATH(ebbi_retire(&local), message);
}

} // namespace
