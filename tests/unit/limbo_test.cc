// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: bags, the malloc that takes them, and what happens when the OS refuses each single
// call: nothing is lost and nothing goes early.
#include <barrier>
#include <set>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/arena_walk.h"
#include "support/slab_walk.h"

#include "ebbtide/reclaim.h"
#include "ebbtide/region.h"

namespace {

using namespace unit;

struct Limbo : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_pretend_threads(); // the helper would free what the tests count
    }
};

ebb_reclaim_stats stats()
{
    ebb_reclaim_stats now;
    ebb_reclaim_stats_get(nullptr, &now);
    return now;
}

void expect_all_slabs_whole()
{
    ebbi_arena_each_chunk(
        [](ebbi_chunk *chunk, void *) {
            for (std::size_t g = chunk->first; g < chunk->granules;) {
                ebbi_span *span = ebbi_chunk_header(chunk, g);
                if (span->state == EBBI_SPAN_SLAB) {
                    EXPECT_EQ("", walk_slab(reinterpret_cast<ebbi_slab *>(span)));
                }
                g += std::max<std::size_t>(span->granules, 1);
            }
        },
        nullptr);
    EXPECT_ARENA_WHOLE();
}

// Bag = magazine: in a steady state retire feeds malloc, and nothing is asked of the slabs.
TEST_F(Limbo, MallocTakesWhatWasRetired)
{
    std::set<void *> known;
    for (int i = 0; i < 20000; i++) {
        void *p = ebb_malloc(64);
        known.insert(p);
        const auto pinned = (ebb_pin(), ebb_is_pinned());
        ASSERT_TRUE(pinned);
        ebb_retire(p);
        ebb_unpin();
    }
    EXPECT_LE(known.size(), 2000U) << "blocks go round";
    ebb_reclaim();
    EXPECT_EQ(0U, stats().retired_blocks);
    expect_all_slabs_whole();
}

TEST_F(Limbo, MallocTakesNothingBeforeItsTime)
{
    ebb_pin();
    std::set<void *> retired;
    for (int i = 0; i < 20000; i++) {
        void *p = ebb_malloc(64);
        ASSERT_EQ(0U, retired.count(p)) << i;
        retired.insert(p);
        ebb_retire(p);
    }
    ebb_unpin();
    ebb_reclaim();
    EXPECT_EQ(0U, stats().retired_blocks);
    expect_all_slabs_whole();
}

TEST_F(Limbo, CountsBytesByBlockSize)
{
    fake_os_pretend_threads(); // without a helper the unpin takes some home
    ASSERT_EQ(0, ebb_helper_start());
    ebb_pin();
    std::size_t bytes = 0, blocks = 0;
    for (std::size_t i = 0; i < 3000; i++) {
        void *p = ebb_malloc(1 + i * 37 % 30000);
        bytes += ebb_malloc_usable_size(p);
        blocks++;
        ebb_retire(p);
    }
    EXPECT_LE(stats().retired_blocks, blocks);
    EXPECT_LE(stats().retired_bytes, bytes);
    ebbi_limbo_seal(ebbi_heap_get());
    EXPECT_EQ(blocks, stats().retired_blocks);
    EXPECT_EQ(bytes, stats().retired_bytes);
    ebb_unpin();
    EXPECT_EQ(bytes, ebb_reclaim());
    EXPECT_EQ(0U, stats().retired_bytes);
}

// Pinned in another thread, from its construction to its destruction.
class PinnedElsewhere {
    std::barrier<> step{2};
    std::thread reader{[this] {
        ebb_pin();
        step.arrive_and_wait();
        step.arrive_and_wait();
        ebb_unpin();
    }};

public:
    PinnedElsewhere() { step.arrive_and_wait(); }
    ~PinnedElsewhere()
    {
        step.arrive_and_wait();
        reader.join();
        ebb_reclaim();
    }
};

TEST_F(Limbo, GivesWayWhileAPinHoldsBackMuch)
{
    const PinnedElsewhere reader;
    for (int i = 0; i < 1000; i++)
        ebb_retire(ebb_malloc(64));
    EXPECT_EQ(0U, fake_os_count(FAKE_YIELD)) << "a little";
    for (int i = 0; i < 50000; i++)
        ebb_retire(ebb_malloc(64));
    EXPECT_GT(fake_os_count(FAKE_YIELD), 0U);
    EXPECT_LT(fake_os_count(FAKE_YIELD), 50000U / 4) << "not at each retire";
}

// Whoever holds it up waits for something else: a time slice now and then, not one for each batch or region.
TEST_F(Limbo, GivesWaySeldomWhileTheClockStands)
{
    const PinnedElsewhere reader;
    fake_os_clock(100000);
    for (int i = 0; i < 20000; i++)
        ebb_retire(ebb_malloc(64));
    for (std::uint64_t now = 101000; now <= 101200; now += 25) {
        fake_os_clock(now);
        const std::size_t before = fake_os_count(FAKE_YIELD);
        for (int i = 0; i < 20000; i++)
            ebb_retire(ebb_malloc(64));
        for (int i = 0; i < 300; i++) {
            ebb_region *region = ebb_region_open(nullptr);
            std::memset(ebb_region_alloc(region, 100), 1, 100);
            ebb_region_release(region);
        }
        EXPECT_EQ((now - 101000) % 50 == 0 ? 1U : 0U, fake_os_count(FAKE_YIELD) - before) << now;
    }
}

TEST_F(Limbo, GivesNoWayToItself)
{
    ebb_pin();
    for (int i = 0; i < 50000; i++)
        ebb_retire(ebb_malloc(64));
    EXPECT_EQ(0U, fake_os_count(FAKE_YIELD));
    ebb_unpin();
    ebb_reclaim();
}

TEST_F(Limbo, ReturnsPagesToTheSystem)
{
    ebb_stats before, after;
    ebb_stats_get(&before);
    ebb_pin();
    for (int i = 0; i < 60000; i++)
        ebb_retire(std::memset(ebb_malloc(1024), 1, 1024));
    ebb_unpin();
    ebb_reclaim();
    ebb_trim();
    ebb_stats_get(&after);
    EXPECT_LT(after.slab_bytes, before.slab_bytes + 2 * MiB);
    EXPECT_GT(after.purged_bytes, before.purged_bytes + 50 * MiB);
    expect_all_slabs_whole();
}

TEST_F(Limbo, OfAThreadThatLeftIsTakenOver)
{
    std::vector<void *> blocks(500);
    ebb_pin();
    std::thread([&] {
        for (void *&p : blocks)
            ebb_retire(p = std::memset(ebb_malloc(100), 0x5A, 100));
    }).join();
    EXPECT_EQ(blocks.size(), stats().retired_blocks) << "sealed at its end";
    for (void *p : blocks)
        for (int i = 0; i < 100; i++)
            ASSERT_EQ(0x5A, static_cast<unsigned char *>(p)[i]);
    ebb_unpin();
    ebb_reclaim();
    EXPECT_EQ(0U, stats().retired_blocks);
}

TEST_F(Limbo, StrandedBlocksWaitAndComeBack)
{
    std::vector<void *> blocks;
    for (std::size_t bytes : {16U, 48U, 64U, 3000U, 32768U})
        for (int i = 0; i < 100; i++)
            blocks.push_back(std::memset(ebb_malloc(bytes), 0x5A, 16));
    blocks.push_back(std::memset(ebb_malloc(MiB), 0x5A, 16));
    blocks.push_back(std::memset(ebb_malloc(40 * MiB), 0x5A, 16));
    ebb_pin();
    for (void *p : blocks)
        ebbi_strand(p);
    EXPECT_EQ(blocks.size(), stats().retired_blocks);
    std::thread([] {
        for (int i = 0; i < 10; i++)
            ebb_reclaim();
        ebb_trim();
    }).join();
    EXPECT_EQ(blocks.size(), stats().retired_blocks);
    for (void *p : blocks)
        for (int i = 0; i < 16; i++)
            ASSERT_EQ(0x5A, static_cast<unsigned char *>(p)[i]);
    ebb_unpin();
    ebb_reclaim();
    EXPECT_EQ(0U, stats().retired_blocks);
    expect_all_slabs_whole();
}

TEST_F(Limbo, StrandingTwiceIsFound)
{
    void *p = ebb_malloc(64);
    EXPECT_DEATH((ebbi_strand(p), ebbi_strand(p)), "^ebbtide: .*: double retire");
    ebb_free(p);
}

// ---- refused memory ------------------------------------------------------------------------------

// Threads that hold all the heaps that can be had. No memory is to be had meanwhile.
class Holders {
public:
    Holders()
    {
        while (add()) {
        }
    }
    ~Holders()
    {
        leave_.store(true);
        leave_.notify_all();
        for (std::thread &thread : threads_)
            thread.join();
    }

private:
    bool add()
    {
        heaps_.store(-1);
        threads_.emplace_back([this] {
            heaps_.store(ebbi_heap_get() != nullptr);
            heaps_.notify_one();
            leave_.wait(false);
        });
        heaps_.wait(-1);
        return heaps_.load() > 0;
    }
    std::atomic<int> heaps_{-1};
    std::atomic<bool> leave_{false};
    std::vector<std::thread> threads_;
};

// The first call of the thread finds no memory for a heap.
TEST_F(Limbo, AThreadWithoutAHeapPinsAndRetires)
{
    std::vector<void *> blocks, hoard;
    for (std::size_t bytes : {48U, 64U, 1000U, 100000U})
        for (int i = 0; i < 50; i++)
            blocks.push_back(std::memset(ebb_malloc(bytes), 0x5A, 40));
    for (fake_call call : {FAKE_COMMIT, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    for (std::size_t bytes : {16 * MiB, MiB, 64 * KiB})
        for (void *p = ebb_malloc(bytes); p != nullptr; p = ebb_malloc(bytes))
            hoard.push_back(p);
    const Holders holders;
    std::thread([&] {
        ebb_pin();
        EXPECT_EQ(nullptr, ebbi_heap_get()) << "no heap to be had";
        EXPECT_TRUE(ebb_is_pinned());
        ebb_pin();
        for (void *p : blocks)
            ebb_retire(p);
        std::thread([] { ebb_reclaim(); }).join();
        for (void *p : blocks)
            for (int i = 0; i < 40; i++)
                ASSERT_EQ(0x5A, static_cast<unsigned char *>(p)[i]);
        ebb_unpin();
        ebb_unpin();
        EXPECT_FALSE(ebb_is_pinned());
    }).join();
    fake_os_allow();
    for (int i = 0; i < 3; i++)
        ebb_reclaim();
    EXPECT_EQ(0U, stats().retired_blocks);
    for (void *p : hoard)
        ebb_free(p);
    expect_all_slabs_whole();
}

struct Outcome {
    std::size_t calls, refused, destroyed;
};

// Pins, retires, destructors and trims of every kind, by two threads in turn; blocks are checked
// while they are pinned.
class Workload {
public:
    std::size_t destroyed = 0, accepted = 0;

    void run(std::uint64_t seed, int steps)
    {
        Random random(seed);
        for (int i = 0; i < steps && !testing::Test::HasFailure(); i++) {
            if (random.chance(4))
                std::thread([&] { step(random); }).join();
            else
                step(random);
            if (random.chance(8))
                ebb_trim();
        }
    }

private:
    static void count(void *p, void *self)
    {
        ebb_free(p);
        static_cast<Workload *>(self)->destroyed++;
    }
    void step(Random &random)
    {
        std::vector<Block> held;
        ebb_pin();
        for (int i = 0; i < 40; i++) {
            std::size_t bytes = random.chance(20)   ? 33 * KiB + random.below(2 * MiB)
                                : random.chance(60) ? 32 * MiB
                                                    : 1 + random.below(3000);
            std::size_t align = bytes < 32 * MiB ? 16 : 64 * MiB;
            auto *p = static_cast<unsigned char *>(ebb_aligned_alloc(align, bytes));
            if (p == nullptr)
                continue;
            held.push_back({p, bytes, static_cast<unsigned char>(i + 1)});
            held.back().fill();
            if (random.chance(10) && ebb_retire_with(p, count, this) == 0)
                accepted++;
            else
                ebb_retire(p);
        }
        for (const Block &b : held)
            ASSERT_TRUE(b.intact()) << b.size << " bytes were reclaimed in the pin";
        ebb_unpin();
    }
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
        fake_os_clock(100000);
        fake_os_clock_step(2);
        Workload workload;
        if (n > 0)
            fake_os_refuse(call, n, onward);
        workload.run(2, 60);
        *shared = {fake_os_count(call), fake_os_refused(call), 0};
        fake_os_allow();
        for (int i = 0; i < 3; i++)
            ebb_reclaim();
        ebb_barrier();
        EXPECT_EQ(workload.accepted, workload.destroyed) << "each destructor once";
        EXPECT_EQ(0U, stats().retired_blocks) << "nothing is lost";
        ebb_stats now;
        ebb_stats_get(&now);
        EXPECT_LT(now.live_bytes, 256 * KiB);
        expect_all_slabs_whole();
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
    if (calls == 0 && call == FAKE_RESERVE)
        GTEST_SKIP() << "earlier cases of this process have reserved enough";
    ASSERT_GT(calls, 0U) << "the workload never makes this call";
    std::size_t stride = 1 + calls / 60;
    for (std::size_t n = 1; n <= calls && !testing::Test::HasFailure(); n += stride) {
        SCOPED_TRACE(std::string(fake_os_name(call)) + " refused, number " + std::to_string(n));
        EXPECT_GT(run_child(call, n, onward).refused, 0U);
    }
}

#define REFUSAL(name, call)                                                                        \
    TEST_F(Limbo, Survives##name##RefusedOnce) { refuse_in_turn(call, false); }                    \
    TEST_F(Limbo, Survives##name##RefusedFromThenOn) { refuse_in_turn(call, true); }

REFUSAL(Reserve, FAKE_RESERVE)
REFUSAL(Commit, FAKE_COMMIT)
REFUSAL(Purge, FAKE_PURGE)

// The helper cannot be started: the threads themselves do its work.
TEST_F(Limbo, SurvivesWithoutTheHelper)
{
    fake_os_reset();
    fake_os_refuse(FAKE_START_THREAD, 1, true);
    Workload workload;
    workload.run(5, 40);
    ebb_barrier();
    ebb_reclaim();
    EXPECT_EQ(workload.accepted, workload.destroyed);
    EXPECT_EQ(0U, stats().retired_blocks);
}

} // namespace
