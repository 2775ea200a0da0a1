// SPDX-License-Identifier: MIT OR Apache-2.0
// The OS refuses each single call of a workload in turn: every failure is NULL with ENOMEM, the
// contents of all live blocks stay, and later allocations work.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/arena_walk.h"

namespace {

using namespace unit;

struct Refusal : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_pretend_threads();
    }
};

class Workload {
public:
    std::size_t failures = 0;

    void run(std::uint64_t seed, int steps)
    {
        Random random(seed);
        for (int i = 0; i < steps && !testing::Test::HasFailure(); i++)
            step(random);
        while (!live_.empty() && !testing::Test::HasFailure())
            drop(live_.size() - 1);
    }

private:
    std::vector<Block> live_;
    unsigned char mark_ = 0;

    static std::size_t size(Random &random)
    {
        switch (random.below(12)) {
        case 0:
            return 32 * MiB + random.below(40 * MiB);
        case 1:
        case 2:
            return 128 * KiB + random.below(4 * MiB);
        case 3:
            return random.below(128 * KiB);
        default:
            return random.below(3000);
        }
    }

    void keep(void *p, std::size_t bytes)
    {
        if (p == nullptr) {
            failures++;
            ASSERT_EQ(ENOMEM, errno);
            return;
        }
        live_.push_back({static_cast<unsigned char *>(p), bytes, ++mark_});
        live_.back().fill();
    }

    void drop(std::size_t i)
    {
        ASSERT_TRUE(live_[i].intact()) << live_[i].size;
        ebb_free(live_[i].bytes);
        live_[i] = live_.back();
        live_.pop_back();
    }

    void change(Block &b, std::size_t bytes)
    {
        auto *to = static_cast<unsigned char *>(ebb_realloc(b.bytes, bytes));
        if (to == nullptr) {
            failures++;
            ASSERT_EQ(ENOMEM, errno);
            ASSERT_TRUE(b.intact()) << "a refused realloc leaves its block";
            return;
        }
        b.bytes = to;
        ASSERT_TRUE(b.intact(std::min(b.size, bytes)));
        b.size = bytes;
        b.fill();
    }

    void step(Random &random)
    {
        std::size_t bytes = size(random);
        errno = 0;
        switch (random.below(8)) {
        case 0: {
            void *p = ebb_calloc(1, bytes);
            auto *c = static_cast<unsigned char *>(p);
            if (p != nullptr && bytes > 0) {
                ASSERT_EQ(0, c[0] | c[bytes / 2] | c[bytes - 1]) << "calloc of " << bytes;
            }
            keep(p, bytes);
            break;
        }
        case 1:
            keep(ebb_aligned_alloc(std::size_t{16} << random.below(16), bytes), bytes);
            break;
        case 2:
            std::thread([&] { keep(ebb_malloc(bytes), bytes); }).join();
            break;
        case 3:
        case 4:
            if (!live_.empty()) {
                Block &b = live_[random.below(live_.size())];
                change(b,
                       random.chance(3) ? bytes + 1 : b.size / 2 + random.below(b.size + 16) + 1);
            }
            break;
        default:
            keep(ebb_malloc(bytes), bytes);
        }
        while (live_.size() > 24 || (!live_.empty() && random.chance(2)))
            drop(random.below(live_.size()));
        if (random.chance(40)) {
            ebb_trim();
            (void)ebb_helper_start();
        }
    }
};

struct Outcome {
    std::size_t calls, refused, failures;
};

// A process of its own, from its very first allocation on. n 0: nothing is refused.
Outcome run_child(fake_call call, std::size_t n, bool onward)
{
    auto *shared = static_cast<Outcome *>(
        mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        fake_os_cpu(0); // the same calls in each run
        Workload workload;
        const std::size_t before = fake_os_count(call);
        if (n > 0)
            fake_os_refuse(call, n, onward);
        void *wide = ebb_malloc(30 * MiB); // the first chunk alone does not do
        workload.run(2, 250);
        ebb_free(wide);
        *shared = {fake_os_count(call) - before, fake_os_refused(call), workload.failures};
        fake_os_allow();
        Workload after;
        after.run(3, 40);
        EXPECT_EQ(0U, after.failures) << "allocations work again";
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    Outcome outcome = *shared;
    munmap(shared, sizeof *shared);
    return outcome;
}

void refuse_in_turn(fake_call call, bool onward)
{
    std::size_t calls = run_child(call, 0, false).calls;
    if (calls == 0 && call == FAKE_MOVE && emulated)
        GTEST_SKIP() << "the emulator finds room to grow in place each time";
    ASSERT_GT(calls, 0U) << "the workload never makes this call";
    std::size_t stride = 1 + calls / 40, met = 0;
    for (std::size_t n = 1; n <= calls && !testing::Test::HasFailure(); n += stride) {
        SCOPED_TRACE(std::string(fake_os_name(call)) + " refused, number " + std::to_string(n));
        const Outcome outcome = run_child(call, n, onward);
        EXPECT_EQ(outcome.calls >= n, outcome.refused > 0); // what is old is returned by time
        met += outcome.refused > 0;
    }
    EXPECT_GT(2 * met * stride, calls) << "of these calls most come in each run";
}

#define REFUSAL(name, call)                                                                        \
    TEST_F(Refusal, name##Once) { refuse_in_turn(call, false); }                                   \
    TEST_F(Refusal, name##FromThenOn) { refuse_in_turn(call, true); }

REFUSAL(Reserve, FAKE_RESERVE)
REFUSAL(Commit, FAKE_COMMIT)
REFUSAL(Purge, FAKE_PURGE)
REFUSAL(Resize, FAKE_RESIZE)
REFUSAL(Move, FAKE_MOVE)
REFUSAL(StartThread, FAKE_START_THREAD)

TEST_F(Refusal, OfTheVeryFirstMemoryIsSurvived)
{
    EXPECT_GT(run_child(FAKE_COMMIT, 1, true).failures, 0U);
    EXPECT_GT(run_child(FAKE_RESERVE, 1, true).refused,
              0U); // the first chunk's is there, mappings do
}

// Negative control: with everything refused something does fail, so the cases above can.
TEST_F(Refusal, WithNoMemoryAtAllAllocationsFail)
{
    for (fake_call call : {FAKE_RESERVE, FAKE_COMMIT, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    errno = 0;
    EXPECT_EQ(nullptr, ebb_malloc(64 * MiB));
    EXPECT_EQ(ENOMEM, errno);
    EXPECT_EQ(nullptr, ebb_calloc(3, 20 * MiB));
    void *out = &errno;
    errno = 7;
    EXPECT_EQ(ENOMEM, ebb_posix_memalign(&out, 4096, 64 * MiB));
    EXPECT_EQ(&errno, out);
    EXPECT_EQ(7, errno);
}

} // namespace
