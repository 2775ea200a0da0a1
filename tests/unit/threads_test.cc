// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap, several threads: outbox, migration, adoption, thread exit, fork.
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <pthread.h>

#include "support/engine.h"

namespace {

using namespace unit;

struct Threads : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_pretend_threads(); // the helper would free what the tests count
    }
};

std::size_t count_heaps()
{
    std::size_t count = 0;
    ebbi_heaps_each([](ebbi_heap *, void *n) { ++*static_cast<std::size_t *>(n); }, &count);
    return count;
}

std::size_t held_bytes()
{
    std::size_t bytes = 0;
    ebbi_heaps_each(
        [](ebbi_heap *h, void *n) { *static_cast<std::size_t *>(n) += h->own.held_bytes; }, &bytes);
    ebbi_depots_each(
        [](ebbi_owner *o, void *n) { *static_cast<std::size_t *>(n) += o->held_bytes; }, &bytes);
    return bytes;
}

bool is_depot(const ebbi_owner *owner)
{
    ebbi_owner *first = nullptr;
    const std::size_t count = ebbi_depots(&first);
    return owner >= first && owner < first + count;
}

template <typename F> void in_thread(F run) { std::thread(run).join(); }

TEST_F(Threads, AThreadTakesTheHeapOfOneThatLeft)
{
    ebbi_heap *first = nullptr, *second = nullptr;
    in_thread([&] { first = (ebb_free(ebb_malloc(10)), ebbi_heap_get()); });
    in_thread([&] { second = (ebb_free(ebb_malloc(10)), ebbi_heap_get()); });
    EXPECT_EQ(first, second);
    EXPECT_NE(nullptr, first);
}

TEST_F(Threads, BlocksThatShareALineGoHome)
{
    ebbi_heap *mine = ebbi_heap_get(); // before the other thread, so that it gets another lane
    std::vector<void *> blocks;
    in_thread([&] {
        ASSERT_NE(mine->lane, ebbi_heap_get()->lane);
        for (int i = 0; i < 64; i++)
            blocks.push_back(ebb_malloc(48));
    });
    for (void *p : blocks)
        ebb_free(p);
    const unsigned number = ebbi_tray_number(ebbi_tag_of(blocks[0]));
    EXPECT_NE(0U, mine->magazines[number].slots) << "the last of them wait in a tray";
    void *p = ebb_malloc(48);
    for (void *b : blocks)
        EXPECT_NE(b, p);
    ebbi_flush_all(mine);
    EXPECT_EQ(0U, mine->magazines[number].slots);
    EXPECT_EQ(0U, mine->outbox_count);
}

// Slots of the tray that `count` blocks of another thread have gone through.
unsigned tray_after(std::size_t count, std::size_t size)
{
    ebbi_heap *mine = ebbi_heap_get();
    std::vector<void *> blocks;
    in_thread([&] {
        for (std::size_t i = 0; i < count; i++)
            blocks.push_back(ebb_malloc(size));
    });
    const unsigned number = ebbi_tray_number(ebbi_tag_of(blocks[0]));
    for (void *p : blocks)
        ebb_free(p);
    const unsigned slots = mine->magazines[number].slots;
    ebbi_flush_foreign(mine);
    EXPECT_EQ(0U, mine->magazines[number].slots);
    return slots;
}

TEST_F(Threads, ATrayGrowsByItsFills)
{
    EXPECT_EQ(16U, tray_after(4 * 15, 48)) << "and starts small";
    EXPECT_EQ(64U, tray_after(2000, 48));
    EXPECT_EQ(16U, tray_after(40, 48)) << "again";
    EXPECT_EQ(32U, tray_after(2000, 256 - 16)) << "8 KiB of blocks";
    EXPECT_EQ(16U, tray_after(2000, 480)) << "8 KiB of blocks";
}

// Blocks of two bins, of threads of their own, whose trays have one place in the calling thread's heap.
std::vector<void *> rivals(std::size_t count, std::vector<void *> *others)
{
    (void)ebbi_heap_get();
    std::map<unsigned, std::vector<void *>> of_tray;
    std::vector<std::thread> threads;
    std::mutex lock;
    constexpr int most = EBBI_LANES - 1;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, most);
    const auto keep = [&](std::vector<void *> &blocks) {
        std::lock_guard<std::mutex> held(lock);
        std::vector<void *> &first = of_tray[ebbi_tray_number(ebbi_tag_of(blocks[0]))];
        if (first.empty())
            first.swap(blocks);
        else if (others->empty())
            others->swap(blocks);
    };
    for (int t = 0; t < most; t++)
        threads.emplace_back([&] {
            for (std::size_t size = 16; size <= 112; size += 16) {
                std::vector<void *> blocks(count);
                for (void *&p : blocks)
                    p = ebb_malloc(size);
                if (size == 16)
                    pthread_barrier_wait(&barrier); // nobody leaves a heap to another before
                if (size % 64 != 0)                 // 64 bytes go to no tray
                    keep(blocks);
                for (void *p : blocks)
                    ebb_free(p);
            }
        });
    for (std::thread &t : threads)
        t.join();
    pthread_barrier_destroy(&barrier);
    std::vector<void *> first;
    for (auto &[number, blocks] : of_tray)
        if (number == ebbi_tray_number(ebbi_tag_of(others->at(0))))
            first.swap(blocks);
        else
            for (void *p : blocks)
                ebb_free(p);
    ebbi_flush_foreign(ebbi_heap_get());
    return first;
}

TEST_F(Threads, ATrayThatStandsStillLeavesItsPlace)
{
    constexpr std::size_t count = 400;
    std::vector<void *> second, first = rivals(count, &second);
    const unsigned number = ebbi_tray_number(ebbi_tag_of(first[0]));
    ebbi_heap *mine = ebbi_heap_get();
    const auto tray_is_of = [&](void *p) {
        ebbi_magazines_audit(mine);
        return mine->magazines[number].slots != 0 && mine->magazines[number].bin == ebbi_tag_of(p);
    };
    for (std::size_t i = 0; i < 20; i++)
        ebb_free(first[i]);
    ASSERT_TRUE(tray_is_of(first[0]));
    for (std::size_t i = 0; i < 64; i++)
        ebb_free(second[i]);
    EXPECT_TRUE(tray_is_of(first[0])) << "it was in use lately";
    EXPECT_EQ(64U, mine->outbox_count);
    for (std::size_t i = 64; i < 200; i++)
        ebb_free(second[i]);
    EXPECT_TRUE(tray_is_of(second[0]));
    for (std::size_t i = 20; i < count; i++)
        ebb_free(first[i]);
    for (std::size_t i = 200; i < count; i++)
        ebb_free(second[i]);
    ebbi_flush_all(mine);
    EXPECT_EQ(0U, mine->magazines[number].slots);
    ebbi_magazines_audit(mine);
}

TEST_F(Threads, ASecondFreeOfABlockInATrayIsFound)
{
    (void)ebbi_heap_get();
    std::vector<void *> blocks(20);
    in_thread([&] {
        for (void *&p : blocks)
            p = ebb_malloc(48);
    });
    EXPECT_DEATH(
        {
            ebb_free(blocks[0]);
            ebb_free(blocks[0]);
        },
        "ebbtide: .*double free");
    EXPECT_DEATH(
        {
            for (std::size_t i = 0; i < 10; i++)
                ebb_free(blocks[i]);
            ebb_free(blocks[0]);
            ebb_trim();
        },
        "ebbtide: .*double free");
    EXPECT_DEATH(
        {
            for (void *p : blocks) // the first are on their way home
                ebb_free(p);
            ebb_free(blocks[0]);
            ebb_trim();
        },
        "ebbtide: .*double free");
}

TEST_F(Threads, BlocksOfWholeLinesAreReusedWhereTheyWereFreed)
{
    void *p = nullptr;
    in_thread([&] { p = ebb_malloc(256); });
    (void)ebb_malloc(256);
    ebb_free(p);
    EXPECT_EQ(p, ebb_malloc(256));
}

// Sixteen threads at once, each with one block of 1 KiB and a few that share lines.
TEST_F(Threads, WholeLinesComeFromFewDepotsAndSharedLinesFromOneThread)
{
    constexpr int count = 16;
    constexpr std::size_t few = 5;
    std::vector<void *> whole(count);
    std::vector<std::vector<void *>> sharing(count);
    std::vector<std::thread> threads;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, count);
    for (int t = 0; t < count; t++)
        threads.emplace_back([&, t] {
            whole[t] = ebb_malloc(1024);
            for (std::size_t i = 0; i < few; i++)
                sharing[t].push_back(ebb_malloc(48));
            pthread_barrier_wait(&barrier); // nobody leaves a heap to another before
        });
    for (std::thread &t : threads)
        t.join();
    std::set<const ebbi_owner *> depots;
    std::map<std::uintptr_t, int> lines;
    for (int t = 0; t < count; t++) {
        depots.insert(ebbi_slab_of(whole[t])->owner);
        for (void *p : sharing[t])
            for (std::size_t byte : {0, 47}) {
                auto at = lines.emplace((address(p) + byte) / EBBI_CACHE_LINE, t).first;
                EXPECT_EQ(t, at->second) << "two threads were handed one line";
            }
    }
    EXPECT_LE(depots.size(), std::max<std::size_t>(2, ebbi_os_cpus()));
    for (const ebbi_owner *depot : depots)
        EXPECT_TRUE(is_depot(depot));
}

TEST_F(Threads, TheProcessorChoosesTheDepot)
{
    ebb_free(ebb_malloc(64));
    in_thread([] { ebb_free(ebb_malloc(64)); }); // a second heap, hence a second depot
    const ebbi_owner *seen[2];
    for (std::size_t cpu : {0, 1}) {
        fake_os_cpu(cpu);
        ebbi_owner *owner = ebbi_lock_owner(ebbi_heap_get(), ebbi_class_for(64));
        ebbi_unlock_owner(ebbi_heap_get(), owner);
        EXPECT_TRUE(is_depot(owner));
        seen[cpu] = owner;
    }
    EXPECT_NE(seen[0], seen[1]);
    EXPECT_EQ(&ebbi_heap_get()->own, ebbi_lock_owner(ebbi_heap_get(), ebbi_class_for(48)))
        << "blocks that share lines stay with their heap";
    ebbi_unlock_owner(ebbi_heap_get(), &ebbi_heap_get()->own);
}

TEST_F(Threads, AThreadThatMovesTakesItsFreeBlocksAlong)
{
    constexpr std::size_t count = 8000;
    ebb_free(ebb_malloc(64));
    in_thread([] { ebb_free(ebb_malloc(64)); });
    for (std::size_t step : {2, 8, 20}) { // of the last every slab has one free block
        fake_os_cpu(0);
        std::vector<void *> blocks(count);
        for (void *&p : blocks)
            p = ebb_malloc(3072);
        for (std::size_t i = 0; i < count; i += step)
            ebb_free(std::exchange(blocks[i], nullptr));
        ebbi_flush_all(ebbi_heap_get());
        const std::size_t held = held_bytes();
        fake_os_cpu(1);
        for (std::size_t i = 0; i < count; i += step)
            blocks[i] = ebb_malloc(3072);
        EXPECT_LE(held_bytes(), held + 6 * EBBI_GRANULE) << step;
        for (void *p : blocks)
            ebb_free(p);
        ebbi_flush_all(ebbi_heap_get());
    }
}

TEST_F(Threads, ALockedDepotIsPassedBy)
{
    ebb_free(ebb_malloc(64));
    in_thread([] { ebb_free(ebb_malloc(64)); });
    fake_os_cpu(0);
    ebbi_owner *locked = ebbi_lock_owner(ebbi_heap_get(), ebbi_class_for(64));
    in_thread([&] {
        void *p = ebb_malloc(64); // a new magazine: it must refill, and must not wait
        EXPECT_NE(locked, ebbi_slab_of(p)->owner);
        ebb_free(p);
    });
    ebbi_unlock_owner(ebbi_heap_get(), locked);
}

TEST_F(Threads, RemoteFreesComeBackToTheirOwner)
{
    constexpr std::size_t count = 20000;
    fake_os_cpu(0);
    std::vector<void *> blocks(count);
    for (std::size_t bytes : {48, 64, 3000}) {
        for (void *&p : blocks)
            p = ebb_malloc(bytes);
        std::size_t held = held_bytes();
        in_thread([&] {
            for (void *p : blocks)
                ebb_free(p);
        });
        for (void *&p : blocks)
            p = ebb_malloc(bytes);
        EXPECT_LE(held_bytes(), held + MiB) << "the same slabs serve again, " << bytes;
        for (void *p : blocks)
            ebb_free(p);
    }
}

TEST_F(Threads, ManyShortLivedThreadsLeaveNoHeaps)
{
    for (int i = 0; i < 300; i++)
        in_thread([] { ebb_free(ebb_malloc(100)); });
    EXPECT_LE(count_heaps(), 3U);
}

TEST_F(Threads, HeapsThatEmptyAfterTheirThreadsEndAreReturned)
{
    constexpr int count = 60;
    std::vector<void *> blocks(count);
    std::vector<std::thread> threads;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, count);
    for (void *&p : blocks)
        threads.emplace_back([&] {
            p = ebb_malloc(100);
            pthread_barrier_wait(&barrier);
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_GE(count_heaps(), static_cast<std::size_t>(count));
    for (void *p : blocks)
        ebb_free(p);
    ebb_trim();
    constexpr std::size_t spare = 8; // and this thread's
    EXPECT_LE(count_heaps(), spare + 1);
    pthread_barrier_destroy(&barrier);
}

TEST_F(Threads, AThreadWithoutAHeapMayFreeNothingAndNothingElse)
{
    int local = 0;
    in_thread([] {
        for (int i = 0; i < 1000; i++)
            ebb_free(nullptr);
        EXPECT_NE(nullptr, ebb_malloc(10));
    });
    EXPECT_DEATH(in_thread([&] { ebb_free(&local); }), "does not come from this allocator");
}

void *late_block;
void allocate_late(void *) { late_block = ebb_malloc(333); }

TEST_F(Threads, DestructorsMayAllocateInEveryRound)
{
    if (under_tsan)
        GTEST_SKIP() << "the sanitizer ends a thread before its last destructors";
    static pthread_key_t key;
    static int rounds;
    pthread_key_create(&key, [](void *p) {
        allocate_late(nullptr);
        ebb_free(late_block);
        ebb_free(nullptr);
        late_block = ebb_malloc(64);
        if (++rounds < 4)
            pthread_setspecific(key, p);
    });
    in_thread([] {
        pthread_setspecific(key, &rounds);
        ebb_free(ebb_malloc(10));
    });
    EXPECT_EQ(4, rounds);
    ASSERT_NE(nullptr, late_block) << "from a depot";
    ebb_free(late_block);
    pthread_key_delete(key);
}

TEST_F(Threads, TheChildOfAForkAllocatesFreesAndAdopts)
{
    std::vector<void *> theirs;
    std::thread other([&] {
        for (int i = 0; i < 100; i++)
            theirs.push_back(ebb_malloc(48));
    });
    void *mine = ebb_malloc(1000);
    other.join();
    pid_t child = fork();
    if (child == 0) {
        bool good = true;
        for (void *p : theirs)
            ebb_free(p);
        ebb_free(mine);
        in_thread([&] { good = ebb_malloc(500) != nullptr; });
        good = good && ebb_malloc(40 * MiB) != nullptr;
        ebb_trim();
        _exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

// As from a signal handler. The other thread holds a lock that a fork takes earlier, and waits for ours.
TEST_F(Threads, AForkUnderALockOfItsOwnThreadIsToldAndDoesNotWait)
{
    auto fork_amid = [] {
        ebbi_lock *mine = &ebbi_heap_get()->own.lock;
        ebbi_lock_take(mine);
        std::atomic<bool> ready{false};
        std::thread other([&] {
            ebbi_park_lock();
            ready = true;
            ebbi_lock_take(mine);
        });
        while (!ready)
            std::this_thread::yield();
        (void)fork();
    };
    EXPECT_DEATH(fork_amid(), "ebbtide: .*a signal handler called what it had interrupted");
}

TEST_F(Threads, ForksUnderLoadHarmNobody)
{
    if (under_tsan)
        GTEST_SKIP() << "the sanitizer's own locks do not survive a fork of busy threads";
    if (emulated)
        GTEST_SKIP() << "the emulator's own locks do not survive a fork of busy threads";
    std::atomic<bool> stop{false};
    std::vector<std::thread> busy;
    for (int t = 0; t < 2; t++)
        busy.emplace_back([&, t] {
            Random random(static_cast<std::uint64_t>(t) + 1);
            std::vector<void *> live(64);
            while (!stop.load()) {
                void *&p = live[random.below(live.size())];
                ebb_free(p);
                p = ebb_malloc(1 + random.below(random.chance(100) ? 300000 : 3000));
            }
            for (void *p : live)
                ebb_free(p);
        });
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            for (int k = 0; k < 2000; k++)
                ebb_free(ebb_malloc(static_cast<std::size_t>(k)));
            ebb_trim();
            _exit(0);
        }
        int status = -1;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status) << "child " << i;
    }
    stop.store(true);
    for (std::thread &t : busy)
        t.join();
}

} // namespace
