// SPDX-License-Identifier: MIT OR Apache-2.0
// The rest of libc's surface, called by its own names: old aligned forms, and what tools and
// runtimes ask an allocator (trim, mallinfo, malloc_info, malloc_stats, mallopt).
#include "api_libc.h"

#include <chrono>
#include <string>

namespace {

using support::KiB;
using support::MiB;

TEST(Memalign, EveryPowerOfTwo)
{
    for (std::size_t alignment = 1; alignment <= 64 * MiB; alignment *= 2)
        for (std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{4096}, 40 * KiB}) {
            void *block = memalign(support::opaque(alignment), support::opaque(bytes));
            ASSERT_NE(block, nullptr) << alignment;
            ASSERT_EQ(support::address(block) % (alignment < 16 ? 16 : alignment), 0U);
            ASSERT_GE(malloc_usable_size(block), bytes);
            static_cast<char *>(block)[bytes - 1] = 1;
            std::free(block);
        }
}

// As glibc does.
TEST(Memalign, TakesTheNextPowerOfTwo)
{
    for (const auto &[asked, next] :
         {std::pair{0U, 1U}, {3U, 4U}, {24U, 32U}, {48U, 64U}, {4097U, 8192U}}) {
        void *block = memalign(support::opaque<std::size_t>(asked), 100);
        ASSERT_NE(block, nullptr) << asked;
        EXPECT_EQ(support::address(block) % next, 0U) << asked;
        std::free(block);
    }
    errno = 0;
    EXPECT_EQ(memalign(support::opaque(SIZE_MAX / 2 + 2), 100), nullptr) << "there is none";
    EXPECT_EQ(errno, EINVAL);
}

TEST(Memalign, TooMuchIsRefused)
{
    errno = 0;
    EXPECT_EQ(memalign(4096, support::opaque(SIZE_MAX - 4096)), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(Valloc, IsPageAligned)
{
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, MiB}) {
        void *block = valloc(support::opaque(bytes));
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(support::address(block) % support::page_bytes(), 0U);
        EXPECT_GE(malloc_usable_size(block), bytes);
        std::free(block);
    }
}

TEST(Pvalloc, RoundsUpToPages)
{
    const std::size_t page = support::page_bytes();
    for (std::size_t bytes : {std::size_t{1}, page - 1, page, page + 1, MiB + 1}) {
        void *block = pvalloc(support::opaque(bytes));
        ASSERT_NE(block, nullptr);
        const std::size_t rounded = (bytes + page - 1) / page * page;
        EXPECT_EQ(support::address(block) % page, 0U);
        EXPECT_GE(malloc_usable_size(block), rounded);
        std::memset(block, 1, rounded);
        std::free(block);
    }
}

TEST(Pvalloc, TooMuchIsRefused)
{
    for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 100, support::too_large}) {
        errno = 0;
        EXPECT_EQ(pvalloc(support::opaque(bytes)), nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
        EXPECT_EQ(valloc(support::opaque(bytes)), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
}

TEST(Cfree, Releases)
{
    const auto cfree = api::find_symbol<void (*)(void *)>("cfree");
    ASSERT_NE(cfree, nullptr);
    const std::size_t before = support::resident_bytes();
    for (int i = 0; i < 500; i++) {
        void *block = api::allocate(300 * KiB);
        std::memset(block, 1, 300 * KiB);
        cfree(block);
    }
    cfree(nullptr);
    EXPECT_LT(support::resident_bytes(), before + 32 * MiB);
}

class Burst {
public:
    Burst(std::size_t count, std::size_t bytes) : blocks_(count)
    {
        for (void *&block : blocks_) {
            block = api::allocate(bytes);
            std::memset(block, 1, bytes);
        }
    }
    ~Burst() { release(); }
    void release()
    {
        for (void *&block : blocks_) {
            api::release(block);
            block = nullptr;
        }
    }

private:
    support::MappedArray<void *> blocks_;
};

TEST(MallocTrim, ReturnsABurstAndSaysSo)
{
    const std::size_t before = support::resident_bytes();
    Burst burst(64 * 1024, 1000);
    burst.release();
    const std::size_t held = support::resident_bytes();
    const auto start = std::chrono::steady_clock::now();
    const int released = malloc_trim(0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const std::size_t after = support::resident_bytes();
    EXPECT_LT(after, before + 16 * MiB);
    EXPECT_EQ(released, after + MiB < held ? 1 : released) << "memory went back, and it said no";
    EXPECT_LT(took.count(), 1.0 * (support::scale() < 1.0 ? 20 : 1));
}

TEST(MallocTrim, SaysZeroWhenNothingWasReleased)
{
    Burst burst(1000, 1000);
    burst.release();
    int calls = 0;
    while (malloc_trim(0) == 1 && calls < 10)
        calls++;
    EXPECT_LT(calls, 10) << "it claims to release memory on every call";
    EXPECT_EQ(malloc_trim(0), 0);
}

TEST(MallocTrim, LeavesLiveBlocksAlone)
{
    support::MappedArray<void *> blocks(4000);
    for (std::size_t i = 0; i < blocks.size(); i++) {
        blocks[i] = api::allocate(777);
        support::fill_pattern(blocks[i], 0, 777, static_cast<unsigned>(i));
    }
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (i % 7 != 0)
            api::release(blocks[i]);
    malloc_trim(0);
    for (std::size_t i = 0; i < blocks.size(); i += 7) {
        ASSERT_EQ(support::find_mismatch(blocks[i], 777, static_cast<unsigned>(i)), 777U);
        api::release(blocks[i]);
    }
}

template <typename Info> std::size_t bytes_in_use(const Info &info)
{
    return static_cast<std::size_t>(info.uordblks) + static_cast<std::size_t>(info.hblkhd);
}

template <typename Info> void expect_real_values(Info (*query)())
{
    const std::size_t requested = 2000 * 3000 + 20 * MiB + 64 * MiB;
    const std::size_t before = bytes_in_use(query());
    Burst small(2000, 3000);
    Burst large(1, 20 * MiB);
    Burst huge(1, 64 * MiB); // counted as hblkhd alone
    const Info held = query();
    EXPECT_GE(bytes_in_use(held), before + requested * 95 / 100);
    EXPECT_LE(bytes_in_use(held), before + requested * 120 / 100);
    EXPECT_GE(static_cast<std::size_t>(held.arena) + static_cast<std::size_t>(held.hblkhd),
              requested * 95 / 100);
    small.release();
    large.release();
    huge.release();
    EXPECT_LE(bytes_in_use(query()), before + 2 * MiB) << "freed blocks still count as in use";
}

TEST(Mallinfo2, CountsRealBytes) { expect_real_values(mallinfo2); }

// Its own copy of the struct: the header deprecates the old name, programs still import it.
struct IntInfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

TEST(Mallinfo, CountsRealBytes)
{
    const auto query = api::find_symbol<IntInfo (*)()>("mallinfo");
    ASSERT_NE(query, nullptr);
    expect_real_values(query);
}

std::string info_text(int options, int &result)
{
    char text[64 * 1024] = {};
    FILE *stream = fmemopen(text, sizeof text - 1, "w");
    result = stream != nullptr ? malloc_info(options, stream) : -2;
    if (stream != nullptr)
        std::fclose(stream);
    return text;
}

// Balance of tags is what a reader of this XML needs first; it has no comments and no CDATA.
bool tags_balance(const std::string &text)
{
    std::vector<std::string> open;
    for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
        const std::size_t end = text.find('>', at);
        if (end == std::string::npos)
            return false;
        const std::string tag = text.substr(at + 1, end - at - 1);
        if (tag.empty())
            return false;
        if (tag[0] == '?' || tag.back() == '/')
            continue;
        if (tag[0] != '/')
            open.push_back(tag.substr(0, tag.find_first_of(" \n")));
        else if (open.empty() || open.back() != tag.substr(1))
            return false;
        else
            open.pop_back();
    }
    return open.empty();
}

TEST(MallocInfo, WritesBalancedXml)
{
    int result = -1;
    const std::string text = info_text(0, result);
    EXPECT_EQ(result, 0);
    EXPECT_NE(text.find("<malloc version="), std::string::npos) << text;
    EXPECT_NE(text.find("</malloc>"), std::string::npos) << text;
    EXPECT_TRUE(tags_balance(text)) << text;
}

TEST(MallocInfo, RefusesUnknownOptions)
{
    int result = 0;
    const std::string text = info_text(1, result);
    EXPECT_NE(result, 0) << "glibc gives EINVAL, its manual says -1";
    EXPECT_EQ(text, "");
}

TEST(MallocStats, WritesToStandardError)
{
    testing::internal::CaptureStderr();
    malloc_stats();
    EXPECT_GT(testing::internal::GetCapturedStderr().size(), 20U);
}

TEST(Mallopt, AcceptsWhatProgramsSet)
{
    EXPECT_EQ(mallopt(M_TRIM_THRESHOLD, 128 * 1024), 1);
    EXPECT_EQ(mallopt(M_TOP_PAD, 64 * 1024), 1);
    EXPECT_EQ(mallopt(M_MMAP_THRESHOLD, 1024 * 1024), 1);
    EXPECT_EQ(mallopt(M_MMAP_MAX, 1024), 1);
    EXPECT_EQ(mallopt(M_ARENA_MAX, 2), 1);
    void *block = api::allocate(2 * MiB);
    EXPECT_NE(block, nullptr);
    api::release(block);
}

std::size_t purge_delay_ms()
{
    static const auto value_of =
        api::find_symbol<const char *(*)(unsigned, std::size_t *, int *)>("ebb_option_value");
    std::size_t value = 0;
    int is_set = 0;
    for (unsigned i = 0; const char *const name = value_of(i, &value, &is_set); i++)
        if (std::string(name) == "EBB_PURGE_DELAY_MS")
            return value;
    return 0;
}

TEST(Mallopt, NothingGoesHomeWhileNothingMayBeTrimmed)
{
    const std::size_t usual = purge_delay_ms();
    for (int i = 0; i < 2; i++) { // a second time, too
        mallopt(M_TRIM_THRESHOLD, -1);
        mallopt(M_TRIM_THRESHOLD, -1);
        EXPECT_EQ(3600000U, purge_delay_ms());
        mallopt(M_MMAP_MAX, 0);
        EXPECT_EQ(3600000U, purge_delay_ms());
        mallopt(M_TRIM_THRESHOLD, 128 * 1024);
        EXPECT_EQ(usual, purge_delay_ms());
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
        EXPECT_EQ(usual, purge_delay_ms());
    }
}

} // namespace
