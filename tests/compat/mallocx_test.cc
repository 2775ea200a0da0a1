// SPDX-License-Identifier: MIT OR Apache-2.0
// jemalloc's *allocx: flags, sizes that overflow, what stays of a block.
#include <jemalloc/jemalloc.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>

#include <unistd.h>

namespace {

constexpr int EVERY_CHOICE[] = {0,
                                MALLOCX_TCACHE_NONE,
                                MALLOCX_TCACHE(5),
                                MALLOCX_ARENA(0),
                                MALLOCX_ARENA(300),
                                MALLOCX_ARENA(4094) | MALLOCX_TCACHE(4094)};

bool holds(const void *p, int byte, size_t from, size_t to)
{
    const auto *bytes = static_cast<const unsigned char *>(p);
    return std::all_of(bytes + from, bytes + to, [=](unsigned char each) { return each == byte; });
}

// So that memory is not fresh from the kernel.
void leave_dirty_blocks(size_t size)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 300; i++) {
        blocks.push_back(mallocx(size, 0));
        memset(blocks.back(), 0xff, sallocx(blocks.back(), 0));
    }
    for (void *p : blocks) {
        dallocx(p, 0);
    }
}

TEST(Mallocx, Flags)
{
    EXPECT_EQ(0, MALLOCX_ALIGN(1));
    EXPECT_EQ(12, MALLOCX_ALIGN(4096));
    EXPECT_EQ(40, MALLOCX_ALIGN(size_t{1} << 40));
    EXPECT_EQ(MALLOCX_LG_ALIGN(6), MALLOCX_ALIGN(64));
    EXPECT_EQ(0x100, MALLOCX_TCACHE_NONE);
    EXPECT_EQ(0x500000, MALLOCX_ARENA(4));
}

TEST(Mallocx, ABlockIsAlignedWritableAndOfItsRealSize)
{
    for (int choice : EVERY_CHOICE) {
        for (int lg = 0; lg <= 21; lg++) {
            for (size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{200000}}) {
                int flags = choice | MALLOCX_LG_ALIGN(lg);
                void *p = mallocx(size, flags);
                ASSERT_NE(nullptr, p);
                EXPECT_EQ(0U, reinterpret_cast<uintptr_t>(p) & ((uintptr_t{1} << lg) - 1));
                size_t real = sallocx(p, flags);
                EXPECT_GE(real, size);
                memset(p, 0xaa, real);
                dallocx(p, flags);
            }
        }
    }
}

TEST(Mallocx, ZeroClearsTheWholeBlock)
{
    for (size_t size :
         {size_t{1}, size_t{100}, size_t{1000}, size_t{5000}, size_t{200001}, size_t{5} << 20}) {
        for (int lg : {0, 4, 6, 13}) {
            if (size < 10000) {
                leave_dirty_blocks(size);
            }
            void *p = mallocx(size, MALLOCX_ZERO | MALLOCX_LG_ALIGN(lg));
            EXPECT_TRUE(holds(p, 0, 0, sallocx(p, 0))) << size << ' ' << lg;
            dallocx(p, 0);
        }
    }
}

TEST(Mallocx, SizesThatOverflowAreRefused)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX / 2 + 1}) {
        for (int lg : {0, 4, 5, 12, 31, 62, 63}) {
            for (int zero : {0, MALLOCX_ZERO}) {
                EXPECT_EQ(nullptr, mallocx(size, zero | MALLOCX_LG_ALIGN(lg))) << size << ' ' << lg;
                EXPECT_EQ(0U, nallocx(size, zero | MALLOCX_LG_ALIGN(lg))) << size << ' ' << lg;
            }
        }
    }
    EXPECT_EQ(0U, nallocx(200000, MALLOCX_LG_ALIGN(63)));
    for (int lg : {50, 62, 63}) {
        EXPECT_EQ(nullptr, mallocx(1, MALLOCX_LG_ALIGN(lg)));
        EXPECT_EQ(0U, nallocx(1, MALLOCX_LG_ALIGN(lg)));
    }
}

TEST(Mallocx, ARefusedResizeLeavesTheBlock)
{
    for (int lg : {0, 6}) {
        void *p = mallocx(100, MALLOCX_LG_ALIGN(lg));
        memset(p, 7, 100);
        EXPECT_EQ(nullptr, rallocx(p, SIZE_MAX / 2 + 1, MALLOCX_LG_ALIGN(lg)));
        EXPECT_EQ(nullptr, rallocx(p, SIZE_MAX, MALLOCX_LG_ALIGN(lg) | MALLOCX_ZERO));
        EXPECT_EQ(nullptr, rallocx(p, 100, MALLOCX_LG_ALIGN(63)));
        EXPECT_TRUE(holds(p, 7, 0, 100));
        dallocx(p, 0);
    }
}

TEST(Mallocx, AResizeKeepsWhatWasThereAndClearsTheRest)
{
    for (int lg : {0, 4, 7, 14}) {
        for (size_t size : {size_t{1}, size_t{60}, size_t{3000}, size_t{70000}, size_t{300000}}) {
            int flags = MALLOCX_LG_ALIGN(lg) | MALLOCX_ZERO;
            void *p = mallocx(200, flags);
            size_t before = sallocx(p, 0);
            memset(p, 7, before);
            leave_dirty_blocks(std::min(size, size_t{3000}));
            p = rallocx(p, size, flags);
            ASSERT_NE(nullptr, p);
            EXPECT_EQ(0U, reinterpret_cast<uintptr_t>(p) & ((uintptr_t{1} << lg) - 1));
            size_t now = sallocx(p, 0);
            EXPECT_GE(now, size);
            EXPECT_TRUE(holds(p, 7, 0, std::min(size, before)));
            EXPECT_TRUE(now <= before || holds(p, 0, before, now)) << size << ' ' << lg;
            dallocx(p, flags);
        }
    }
}

TEST(Mallocx, ABlockStaysInPlaceAtItsSize)
{
    void *p = mallocx(100, 0);
    size_t real = sallocx(p, 0);
    EXPECT_EQ(real, xallocx(p, 50, 0, 0));
    EXPECT_EQ(real, xallocx(p, real, 0, MALLOCX_ZERO));
    EXPECT_EQ(real, xallocx(p, 1 << 20, SIZE_MAX - (1 << 20), 0));
    dallocx(p, 0);
}

TEST(Mallocx, NallocxForetellsTheRealSize)
{
    for (size_t size = 1; size < (size_t{1} << 29); size += 1 + size / 3) {
        for (int lg : {0, 5, 12}) {
            int flags = MALLOCX_LG_ALIGN(lg);
            size_t real = nallocx(size, flags);
            void *p = mallocx(size, flags);
            EXPECT_EQ(sallocx(p, flags), real) << size << ' ' << lg;
            sdallocx(p, size, flags);
        }
    }
    for (size_t size : {131071, 131072, 131073, 135168, 135169, 1048576, 1048577}) {
        for (int lg : {0, 12, 13, 16, 21}) {
            void *p = mallocx(size, MALLOCX_LG_ALIGN(lg));
            EXPECT_EQ(sallocx(p, 0), nallocx(size, MALLOCX_LG_ALIGN(lg))) << size << ' ' << lg;
            dallocx(p, 0);
        }
    }
}

// The program may use all of it.
void use_all(std::mt19937 &random)
{
    struct Made {
        unsigned char *p;
        size_t size, real;
        int flags;
    };
    std::vector<Made> all;
    for (int i = 0; i < 20000; i++) {
        size_t size = random() % (i % 100 == 0 ? 300000 : 1500) + 1;
        int flags = i % 3 == 0 ? MALLOCX_LG_ALIGN(5 + i % 8) : 0;
        all.push_back({nullptr, size, nallocx(size, flags), flags});
    }
    for (size_t i = 0; i < all.size(); i++) {
        Made &one = all[i];
        one.p = static_cast<unsigned char *>(mallocx(one.size, one.flags));
        ASSERT_LE(one.real, sallocx(one.p, 0)) << one.size << ' ' << one.flags;
        memset(one.p, static_cast<int>(i % 251), one.real);
    }
    for (size_t i = 0; i < all.size(); i++) {
        const Made &one = all[i];
        ASSERT_TRUE(holds(one.p, static_cast<unsigned char>(i % 251), 0, one.real)) << one.size;
        sdallocx(one.p, i % 2 == 0 ? one.size : one.real, one.flags);
    }
    sdallocx(je_malloc(100), 100, 0);
}

// For as long as some hundred are guarded, where some are by time.
TEST(Mallocx, AllThatNallocxSaysIsThere)
{
    std::mt19937 random(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < end && !HasFatalFailure())
        use_all(random);
}

#if !defined(EBBTEST_EMULATED) &&                                                                  \
    !defined(EBBTEST_SANITIZED) // which no process can be started anew under
TEST(Mallocx, SoItIsWithGuardsChecksAndProfiles)
{
    for (const char *setting :
         {"EBB_CHECK=1", "EBB_CHECK=sample", "EBB_GUARD=1000", "EBB_PROFILE=4096,/dev/null"}) {
        std::string command = "exec env " + std::string(setting) + " /proc/" +
                              std::to_string(getpid()) +
                              "/exe --gtest_filter=*.AllThatNallocxSaysIsThere >&2";
        EXPECT_EQ(0, system(command.c_str())) << setting;
    }
}
#endif

// Whatever its memory: a size is foretold, not tried.
TEST(Mallocx, NallocxTakesNoLargeMemory)
{
    EXPECT_EQ(size_t{1} << 44, nallocx((size_t{1} << 44) - 1, 0));
    EXPECT_EQ(0U, nallocx(PTRDIFF_MAX, 0));
    EXPECT_EQ(0U, nallocx(size_t{PTRDIFF_MAX} + 1, 0));
}

TEST(Mallocx, ZeroBytesAndNull) // left undefined by jemalloc
{
    void *p = mallocx(0, MALLOCX_ZERO);
    ASSERT_NE(nullptr, p);
    p = rallocx(p, 0, 0);
    ASSERT_NE(nullptr, p);
    sdallocx(p, 0, 0);
    EXPECT_GT(nallocx(0, 0), 0U);
    EXPECT_EQ(0U, sallocx(nullptr, 0));
    dallocx(nullptr, 0);
    p = rallocx(nullptr, 10, MALLOCX_ALIGN(64));
    ASSERT_NE(nullptr, p);
    dallocx(p, 0);
}

TEST(Mallocx, TheFamilyWithThePrefix)
{
    void *p = je_calloc(10, 10);
    EXPECT_TRUE(holds(p, 0, 0, 100));
    p = je_realloc(p, 1000);
    EXPECT_GE(je_malloc_usable_size(p), 1000U);
    je_free(p);
    EXPECT_EQ(nullptr, je_calloc(SIZE_MAX, 2));
    void *aligned[] = {je_aligned_alloc(64, 100), je_memalign(128, 100), nullptr};
    EXPECT_EQ(0, je_posix_memalign(&aligned[2], 256, 100));
    EXPECT_NE(0, je_posix_memalign(&p, 3, 100));
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(0U, reinterpret_cast<uintptr_t>(aligned[i]) % (64U << i));
        je_free(aligned[i]);
    }
    dallocx(je_malloc(10), 0);
    je_dallocx(je_mallocx(10, 0), 0);
    p = je_rallocx(je_mallocx(10, 0), 100, 0);
    EXPECT_EQ(je_sallocx(p, 0), je_xallocx(p, 50, 0, 0));
    EXPECT_EQ(je_sallocx(p, 0), je_nallocx(100, 0));
    je_sdallocx(p, 100, 0);
}

TEST(Mallocx, ThreadsFreeEachOthersBlocks)
{
    std::vector<void *> blocks(20000);
    std::thread([&] {
        for (size_t i = 0; i < blocks.size(); i++) {
            blocks[i] = mallocx(1 + i % 500, i % 2 == 0 ? MALLOCX_ZERO : MALLOCX_ALIGN(64));
        }
    }).join();
    std::vector<std::thread> threads;
    for (size_t n = 0; n < 2; n++) {
        threads.emplace_back([&, n] {
            for (size_t i = n; i < blocks.size(); i += 2) {
                dallocx(rallocx(blocks[i], 1 + i % 700, 0), 0);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

} // namespace
