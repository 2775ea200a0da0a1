// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the tag table, wide and narrow.
#include "support/engine.h"

namespace {

using namespace unit;

using Tags = Fake;

TEST_F(Tags, AnyPointerMayBeAsked)
{
    int local = 0;
    for (std::uintptr_t p : {std::uintptr_t{0}, std::uintptr_t{1}, address(&local), UINTPTR_MAX,
                             std::uintptr_t{1} << 47, (std::uintptr_t{1} << 47) - 1})
        EXPECT_EQ(EBBI_TAG_NONE, ebbi_tag_of(reinterpret_cast<void *>(p))) << p;
    EXPECT_FALSE(ebbi_tags_narrow());
}

TEST_F(Tags, SetsAndClearsARange)
{
    auto *start = reinterpret_cast<char *>(std::uintptr_t{20} << 40);
    ASSERT_EQ(0, ebbi_tags_prepare(start, 100 * EBBI_GRANULE));
    ebbi_tags_set(start + EBBI_GRANULE, 3, 9);
    EXPECT_EQ(0, ebbi_tag_of(start));
    EXPECT_EQ(9, ebbi_tag_of(start + EBBI_GRANULE));
    EXPECT_EQ(9, ebbi_tag_of(start + 4 * EBBI_GRANULE - 1));
    EXPECT_EQ(0, ebbi_tag_of(start + 4 * EBBI_GRANULE));
    ebbi_tags_set(start, 100, EBBI_TAG_NONE);
    EXPECT_EQ(0, ebbi_tag_of(start + EBBI_GRANULE));
}

TEST_F(Tags, ALimitMakesTheTableNarrow)
{
    start_narrow(512 * MiB);
    EXPECT_EQ(EBBI_WINDOW_END >> EBBI_GRANULE_SHIFT, ebbi_tag_count);
    int local = 0;
    EXPECT_EQ(EBBI_TAG_NONE, ebbi_tag_of(&local)) << "above the window";
}

TEST_F(Tags, ARefusedWideTableFallsBackToTheNarrowOne)
{
    fake_os_refuse(FAKE_RESERVE_READABLE, 1, false);
    ASSERT_EQ(0, ebbi_tags_init());
    EXPECT_TRUE(ebbi_tags_narrow());
    fake_os_refuse(FAKE_RESERVE_READABLE, 1, true);
    EXPECT_EQ(-ENOMEM, ebbi_tags_init());
    fake_os_allow();
    EXPECT_EQ(0, ebbi_tags_init()) << "may be called again";
    EXPECT_FALSE(ebbi_tags_narrow());
}

TEST_F(Tags, ARefusedCommitIsReported)
{
    fake_os_refuse(FAKE_COMMIT, 1, true);
    EXPECT_EQ(-ENOMEM, ebbi_tags_prepare(reinterpret_cast<void *>(std::uintptr_t{20} << 40), 1));
}

} // namespace
