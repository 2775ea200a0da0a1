// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions and domains under an address space with an end: NULL with ENOMEM, everything else intact, and
// memory again when a region has gone. Each case runs this program anew under the limit.
#include "../api/api_ebb.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include "../api/region_support.h"

namespace {

using namespace regions;
using support::KiB;
using support::MiB;

constexpr std::size_t limit_bytes = 512 * MiB;
constexpr int outcome_right = 42;
constexpr int outcome_no_limit = 70;

// Bytes that the region gave until it refused.
std::size_t fill_until_refused(ebb_region *region, std::size_t bytes)
{
    errno = 0;
    for (std::size_t taken = 0;; taken += bytes) {
        auto *block = static_cast<char *>(take(region, bytes));
        if (block == nullptr)
            return taken;
        block[0] = block[bytes - 1] = 1;
        if (taken > 2 * limit_bytes)
            _exit(outcome_no_limit);
    }
}

void exhaust_and_release()
{
    for (std::size_t bytes : {std::size_t{600}, 50 * KiB, 3 * MiB}) {
        std::size_t taken[2];
        for (std::size_t &sum : taken) {
            ebb_region *region = open("exhausts");
            ebb_region *witness = open("witness");
            void *kept = take_filled(witness, 5000, 1);
            sum = fill_until_refused(region, bytes);
            EXPECT_EQ(errno, ENOMEM);
            EXPECT_EQ(ebb_region_calloc(region, 1, 100 * MiB), nullptr);
            EXPECT_EQ(ebb_region_aligned_alloc(region, MiB, 100 * MiB), nullptr);
            void *copy = ebb_region_promote(kept, region);
            EXPECT_TRUE(copy == nullptr ? errno == ENOMEM : is_filled(copy, 5000, 1));
            EXPECT_TRUE(is_filled(kept, 5000, 1));
            EXPECT_EQ(stats(region).refused, 0U) << "it has no limit of its own";
            ebb_region_release(region);
            EXPECT_NE(take(witness, 10 * MiB), nullptr) << "the release gave nothing back";
            ebb_region_release(witness);
        }
        EXPECT_GT(taken[0], limit_bytes / 4) << bytes;
        EXPECT_GE(taken[1], taken[0] / 10 * 9) << "the second time there was less";
    }
}

void exhaust_and_resize()
{
    ebb_region *region = open("resizes");
    void *block = take_filled(region, MiB, 1);
    errno = 0;
    EXPECT_EQ(ebb_region_realloc(region, block, 2 * limit_bytes), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(is_filled(block, MiB, 1));
    EXPECT_EQ(ebb_region_of(block), region);
    EXPECT_EQ(stats(region).live_blocks, 1U);
    ebb_region_release(region);
}

// Plain malloc takes all there is; opening, entering and cleanups are refused or served, never broken.
void exhaust_by_handles()
{
    support::MappedArray<void *> eaten(4 * MiB);
    std::size_t count = 0;
    for (std::size_t bytes : {MiB, 30 * KiB, std::size_t{64}})
        while (count < eaten.size() && (eaten[count] = ebb_malloc(bytes)) != nullptr)
            count++;
    ebb_region *last = nullptr;
    std::size_t opened = 0;
    errno = 0;
    for (ebb_region *region; (region = open("eats handles", last)) != nullptr; opened++) {
        last = region;
        if (opened > limit_bytes / 16)
            _exit(outcome_no_limit);
    }
    EXPECT_EQ(errno, ENOMEM);
    for (int i = 0; i < 100; i++) {
        char name[32]; // no string: it might not be had
        std::snprintf(name, sizeof name, "eaten %d", i);
        ebb_domain *domain = ebb_domain_open(name);
        if (domain == nullptr) {
            EXPECT_EQ(errno, ENOMEM);
            continue;
        }
        const std::uint64_t before = stats(domain).opened;
        const InDomain scope(domain);
        EXPECT_LE(stats(domain).opened, before + 1);
        ebb_free(ebb_malloc(100));
    }
    for (std::size_t i = 0; i < count; i++)
        ebb_free(eaten[i]);
    ebb_region *after = open("after the famine");
    EXPECT_NE(take(after, MiB), nullptr);
    ebb_region_release(after);
}

struct Case {
    const char *name;
    void (*run)();
};

const Case cases[] = {{"Release", exhaust_and_release},
                      {"Resize", exhaust_and_resize},
                      {"Handles", exhaust_by_handles}};

void PrintTo(const Case &one, std::ostream *out) { *out << one.name; }

[[noreturn]] void restart_limited(const std::string &own_name)
{
    const std::string filter = "--gtest_filter=" + own_name;
    const rlimit limit = {limit_bytes, limit_bytes};
    setrlimit(RLIMIT_AS, &limit);
    setenv("TEST_LIMITED_CHILD", "1", 1);
    unsetenv("GTEST_OUTPUT");
    alarm(100);
    execl("/proc/self/exe", "limited", filter.c_str(), nullptr);
    _exit(1);
}

class RegionLimited : public testing::TestWithParam<Case> {};

TEST_P(RegionLimited, RefusesAndServesAgain)
{
    if (std::getenv("TEST_LIMITED_CHILD") != nullptr) {
        GetParam().run();
        _exit(testing::Test::HasFailure() ? 1 : outcome_right);
    }
    if (support::under_sanitizer)
        GTEST_SKIP() << "a sanitizer needs more address space than the limit";
    const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
    const std::string own_name = std::string(info->test_suite_name()) + "." + info->name();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
        restart_limited(own_name);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == outcome_no_limit)
        GTEST_SKIP() << "no address space limit here (an emulator ignores it)";
    EXPECT_EQ(WEXITSTATUS(status), outcome_right) << "the limited run failed, see above";
}

std::string name_of_case(const testing::TestParamInfo<Case> &info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(AddressSpace, RegionLimited, testing::ValuesIn(cases), name_of_case);

} // namespace
