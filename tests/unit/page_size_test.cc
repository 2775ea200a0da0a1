// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels with pages of 16 and 64 KiB: every call to the OS is in whole pages of theirs, and nothing
// live is returned.
#include "support/arena_walk.h"
#include "support/slab_walk.h"

namespace {

using namespace unit;

struct PageSize : Fake, testing::WithParamInterface<std::size_t> {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_page_size(GetParam());
        fake_os_threaded(false);
        fake_os_clock(1000);
    }
};

TEST_P(PageSize, RandomUseKeepsContents)
{
    Random random(GetParam());
    std::vector<Block> live;
    for (int i = 0; i < 30000; i++) {
        if (random.chance(2) || live.empty()) {
            std::size_t bytes = random.chance(500)  ? 32 * MiB + random.below(MiB)
                                : random.chance(50) ? random.below(MiB)
                                                    : random.below(5000);
            Block b{static_cast<unsigned char *>(ebb_malloc(bytes)), bytes,
                    static_cast<unsigned char>(i)};
            ASSERT_NE(nullptr, b.bytes);
            b.fill();
            live.push_back(b);
        } else {
            std::size_t k = random.below(live.size());
            ASSERT_TRUE(live[k].intact()) << "step " << i;
            ebb_free(live[k].bytes);
            live[k] = live.back();
            live.pop_back();
        }
        if (i % 5000 == 0)
            ebb_trim();
    }
    for (const Block &b : live)
        ebb_free(b.bytes);
    fake_purge purges[256];
    std::size_t count = fake_os_purges(purges, 256);
    EXPECT_GT(count, 0U);
    for (std::size_t i = 0; i < count; i++) {
        EXPECT_EQ(0U, purges[i].start % GetParam());
        EXPECT_EQ(0U, purges[i].bytes % GetParam());
    }
}

TEST_P(PageSize, UsableSizesAreWholePages)
{
    for (std::size_t bytes : {200000, 5000000, 40000000}) {
        void *p = ebb_malloc(bytes);
        EXPECT_EQ(ebbi_align_up(bytes, GetParam()), ebb_malloc_usable_size(p));
        std::memset(p, 1, ebb_malloc_usable_size(p));
        ebb_free(p);
    }
    EXPECT_ARENA_WHOLE();
}

INSTANTIATE_TEST_SUITE_P(Kernels, PageSize, testing::Values(4 * KiB, 16 * KiB, 64 * KiB),
                         [](const auto &page) { return std::to_string(page.param / KiB) + "KiB"; });

} // namespace
