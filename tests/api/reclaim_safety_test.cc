// SPDX-License-Identifier: MIT OR Apache-2.0
// Misuse of pin and retire: each ends in an abort with one line that starts with "ebbtide: ". A
// small block retired twice may be found late, so these tests drive retirement on.
#include <csetjmp>
#include <functional>

#include "ebbtide/region.h"
#include "reclaim_support.h"

namespace {

using namespace reclaim;
using support::KiB;
using support::MiB;

const char *const our_line = "^ebbtide: .*: ";

struct ReclaimDeathTest : testing::Test {
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "fast"; }
};

// More of the same class comes and goes until every bag of it has been filled, sealed and emptied.
void drive(std::size_t bytes)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < (bytes < 64 * KiB ? 1000 : 8); i++)
            ebb_retire(ebb_malloc(bytes));
        push_on();
    }
    std::vector<void *> blocks(bytes < 64 * KiB ? 2000 : 8);
    for (void *&block : blocks)
        block = ebb_malloc(bytes);
    for (void *block : blocks)
        ebb_free(block);
    ebb_trim();
}

void expect_death(const char *what, const std::function<void()> &misuse,
                  const std::string &line = our_line)
{
    EXPECT_DEATH(
        {
            alarm(30);
            misuse();
            _exit(0);
        },
        line)
        << what;
}

std::string line_about(const void *pointer)
{
    char text[64];
    std::snprintf(text, sizeof text, "^ebbtide: .*: [^\n]*0x0*%zx",
                  static_cast<std::size_t>(support::address(pointer)));
    return text;
}

const std::size_t sizes[] = {16, 40, 64, 200, 1024, 5000, 32768, 100 * KiB, MiB, 40 * MiB};

TEST_F(ReclaimDeathTest, UnpinWithoutPin)
{
    expect_death("at once", [] { ebb_unpin(); });
    expect_death("of a thread that never pinned", [] { in_thread([] { ebb_unpin(); }); });
    expect_death("once too often", [] {
        ebb_pin();
        ebb_pin();
        ebb_unpin();
        ebb_unpin();
        ebb_unpin();
    });
    expect_death("with destructors waiting", [] {
        std::atomic<int> calls{0};
        ebb_retire_with(nullptr, count_call, &calls);
        ebb_unpin();
    });
    expect_death("by a pin of another collector", [] {
        ebb_collector *other = ebb_collector_create(0);
        ebb_participant_pin(ebb_collector_attach(other));
        ebb_unpin();
    });
    expect_death("of another collector", [] {
        ebb_participant *me = ebb_collector_attach(ebb_collector_create(0));
        ebb_pin();
        ebb_participant_unpin(me);
    });
}

TEST_F(ReclaimDeathTest, PinsNestedTooDeeply)
{
    expect_death("one more than the header says", [] {
        for (int depth = 0; depth < 32767; depth++)
            ebb_pin();
    });
    expect_death("in a collector, with destructors waiting", [] {
        std::atomic<int> calls{0};
        ebb_participant *me = ebb_collector_attach(ebb_collector_create(0));
        ebb_participant_retire_with(me, nullptr, count_call, &calls);
        for (int depth = 0; depth < 32767; depth++)
            ebb_participant_pin(me);
    });
}

TEST_F(ReclaimDeathTest, RetireOfForeignPointers)
{
    static int in_data;
    int on_stack = 0;
    void *mapped =
        mmap(nullptr, 256 * KiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    ebb_collector *other = ebb_collector_create(0);
    for (void *p : {static_cast<void *>(&in_data), static_cast<void *>(&on_stack), mapped,
                    reinterpret_cast<void *>(std::uintptr_t{16})}) {
        expect_death(
            "at once", [=] { ebb_retire(p); }, line_about(p));
        expect_death(
            "in a pin", [=] { (ebb_pin(), ebb_retire(p)); }, line_about(p));
        expect_death(
            "by a new thread", [=] { in_thread([=] { ebb_retire(p); }); }, line_about(p));
        expect_death(
            "into a collector",
            [=] {
                ebb_participant_retire(ebb_collector_attach(other), p);
                ebb_collector_destroy(other);
            },
            line_about(p));
    }
    munmap(mapped, 256 * KiB);
    ebb_collector_destroy(other);
}

void expect_interior_found(std::size_t bytes, std::size_t offset)
{
    auto *block = static_cast<char *>(ebb_malloc(bytes));
    char *inside = block + offset;
    expect_death((std::to_string(offset) + " into " + std::to_string(bytes)).c_str(),
                 [=] {
                     ebb_retire(inside);
                     drive(bytes);
                 },
                 line_about(inside));
    ebb_free(block);
}

TEST_F(ReclaimDeathTest, RetireOfTheInteriorOfABlock)
{
    for (std::size_t bytes : sizes)
        expect_interior_found(bytes, bytes / 2);
    for (std::size_t bytes : {48, 80, 112, 144, 208, 320, 448, 1280, 5120, 20000, 80000})
        for (std::size_t offset : {16, 32, 64}) // as a block of the class may be aligned
            if (offset < bytes)
                expect_interior_found(bytes, offset);
}

TEST_F(ReclaimDeathTest, RetireTwiceInARow)
{
    for (std::size_t bytes : sizes) {
        void *block = ebb_malloc(bytes);
        expect_death(
            std::to_string(bytes).c_str(),
            [=] {
                ebb_retire(block);
                ebb_retire(block);
                drive(bytes);
            },
            line_about(block));
        ebb_free(block);
    }
}

// The first of the two ends the block's slab.
TEST_F(ReclaimDeathTest, RetireTwiceOfTheLastBlockOfAClosedRegion)
{
    ebb_region *region = ebb_region_open(nullptr);
    void *block = ebb_region_alloc(region, 100);
    ebb_region_close(region);
    expect_death(
        "twice",
        [=] {
            ebb_retire(block);
            ebb_retire(block);
            drive(100);
            ebb_barrier();
        },
        "double retire: ");
    ebb_free(block);
}

TEST_F(ReclaimDeathTest, RetireTwiceWithABagBetween)
{
    for (std::size_t bytes : sizes) {
        void *block = ebb_malloc(bytes);
        expect_death(
            std::to_string(bytes).c_str(),
            [=] {
                Staller reader;
                ebb_retire(block);
                for (int i = 0; i < 300; i++)
                    ebb_retire(ebb_malloc(bytes < 64 * KiB ? bytes : 64));
                ebb_retire(block);
                reader.let_go();
                drive(bytes);
            },
            line_about(block));
        ebb_free(block);
    }
}

TEST_F(ReclaimDeathTest, RetireByTwoThreads)
{
    if (support::under_tsan)
        GTEST_SKIP() << "the misuse is a race, and TSan says so first";
    for (std::size_t bytes : sizes) {
        void *block = ebb_malloc(bytes);
        expect_death(
            std::to_string(bytes).c_str(),
            [=] {
                Staller reader;
                std::thread first([=] { ebb_retire(block); });
                std::thread second([=] { ebb_retire(block); });
                first.join();
                second.join();
                reader.let_go();
                drive(bytes);
            },
            line_about(block));
        ebb_free(block);
    }
}

TEST_F(ReclaimDeathTest, RetireOfAFreedBlock)
{
    for (std::size_t bytes : sizes) {
        void *block = ebb_malloc(bytes);
        expect_death(
            std::to_string(bytes).c_str(),
            [=] {
                ebb_free(block);
                ebb_retire(block);
                drive(bytes);
            },
            line_about(block));
        ebb_free(block);
    }
}

TEST_F(ReclaimDeathTest, FreeOfARetiredBlock)
{
    for (std::size_t bytes : sizes) {
        void *block = ebb_malloc(bytes);
        expect_death(
            std::to_string(bytes).c_str(),
            [=] {
                ebb_retire(block);
                ebb_free(block);
                drive(bytes);
            },
            line_about(block));
        ebb_free(block);
    }
}

TEST_F(ReclaimDeathTest, ReallocOfARetiredObject)
{
    for (const std::size_t bytes : {200 * KiB, 3 * MiB, 40 * MiB})
        for (const std::size_t to : {bytes - 100, bytes + 100, bytes * 2})
            expect_death(
                "realloc of a retired object",
                [=] {
                    void *p = ebb_malloc(bytes);
                    ebb_pin();
                    ebb_retire(p);
                    (void)ebb_realloc(p, to);
                    ebb_unpin();
                },
                "has been retired");
}

TEST_F(ReclaimDeathTest, WaitingInsideAPin)
{
    expect_death("synchronize", [] { (ebb_pin(), ebb_synchronize()); });
    expect_death("barrier", [] { (ebb_pin(), ebb_barrier()); });
    expect_death("reclaim", [] { (ebb_pin(), (void)ebb_reclaim()); });
    expect_death("nested", [] { (ebb_pin(), ebb_pin(), ebb_unpin(), ebb_synchronize()); });
    const auto in_pin_of = [](void (*wait)(ebb_collector *)) {
        ebb_collector *other = ebb_collector_create(0);
        ebb_participant_pin(ebb_collector_attach(other));
        wait(other);
    };
    expect_death("collector_synchronize", [=] { in_pin_of(ebb_collector_synchronize); });
    expect_death("collector_barrier", [=] { in_pin_of(ebb_collector_barrier); });
    expect_death("collector_reclaim",
                 [=] { in_pin_of([](ebb_collector *c) { (void)ebb_collector_reclaim(c); }); });
    expect_death("of the default one by its other name",
                 [] { (ebb_pin(), ebb_collector_synchronize(nullptr)); });
}

TEST_F(ReclaimDeathTest, BarrierInADestructor)
{
    const auto wait = [](void *, void *) { ebb_barrier(); };
    expect_death("run by the barrier", [=] {
        ebb_retire_with(nullptr, wait, nullptr);
        ebb_barrier();
    });
    expect_death("run by an unpin", [=] {
        for (;;) { // the alarm ends a test that waits in vain
            const Pin pin;
            ebb_retire_with(nullptr, wait, nullptr);
        }
    });
    expect_death("run by reclaim", [=] {
        ebb_retire_with(nullptr, wait, nullptr);
        push_on();
    });
}

TEST_F(ReclaimDeathTest, CollectorDestroyedWhilePinned)
{
    expect_death("by another thread", [] {
        ebb_collector *doomed = ebb_collector_create(0);
        Staller reader(doomed);
        ebb_collector_destroy(doomed);
    });
    expect_death("by this thread", [] {
        ebb_collector *doomed = ebb_collector_create(EBB_COLLECTOR_FENCED);
        ebb_participant_pin(ebb_collector_attach(doomed));
        ebb_collector_destroy(doomed);
    });
}

TEST_F(ReclaimDeathTest, CollectorThatIsNone)
{
    const char *const line = "^ebbtide: .*: 0x[0-9a-f]+ is no collector, or was destroyed before";
    const auto destroyed = [] {
        ebb_collector *gone = ebb_collector_create(0);
        ebb_collector_attach(gone);
        ebb_collector_destroy(gone);
        return gone;
    };
    expect_death(
        "destroyed twice", [=] { ebb_collector_destroy(destroyed()); }, line);
    expect_death(
        "never was one",
        [] { ebb_collector_destroy(static_cast<ebb_collector *>(ebb_malloc(200))); }, line);
    expect_death(
        "attach", [=] { ebb_collector_attach(destroyed()); }, line);
    expect_death(
        "synchronize", [=] { ebb_collector_synchronize(destroyed()); }, line);
    expect_death(
        "barrier", [=] { ebb_collector_barrier(destroyed()); }, line);
    expect_death(
        "reclaim", [=] { ebb_collector_reclaim(destroyed()); }, line);
}

TEST_F(ReclaimDeathTest, DestructorsOfACollectorInsideAPinOfTheDefaultOne)
{
    const auto in_pin = [](void (*end)(ebb_collector *)) {
        ebb_collector *other = ebb_collector_create(0);
        ebb_participant_retire(ebb_collector_attach(other), ebb_malloc(64));
        ebb_pin();
        end(other);
    };
    const char *const line = "^ebbtide: .*: [^\n]*inside a pin of the default";
    expect_death(
        "barrier", [=] { in_pin(ebb_collector_barrier); }, line);
    expect_death(
        "destroy", [=] { in_pin(ebb_collector_destroy); }, line);
}

std::jmp_buf way_out;

TEST_F(ReclaimDeathTest, DestructorLeftByLongjmp)
{
    const char *const line = "^ebbtide: .*: a destructor was left by longjmp or an exception";
    const auto leave_from = [](void (*run)()) {
        ebb_retire_with(
            nullptr, [](void *, void *) { std::longjmp(way_out, 1); }, nullptr);
        if (setjmp(way_out) == 0)
            run();
        ebb_barrier();
    };
    expect_death(
        "run by a barrier", [=] { leave_from(ebb_barrier); }, line);
    expect_death(
        "run by reclaim", [=] { leave_from([] { push_on(); }); }, line);
}

// ---- what is defined, though odd -----------------------------------------------------------------

TEST(ReclaimOdd, AThreadThatEndsPinnedHoldsUpNobody)
{
    ebb_collector *other = ebb_collector_create(0);
    const std::size_t pinned = stats().pinned;
    for (int i = 0; i < 50; i++)
        in_thread([=] {
            ebb_pin();
            ebb_pin();
            ebb_retire(ebb_malloc(64));
            ebb_participant_pin(ebb_collector_attach(other));
        });
    EXPECT_EQ(pinned, stats().pinned);
    ebb_synchronize();
    ebb_collector_synchronize(other);
    EXPECT_TRUE(drain());
    ebb_collector_destroy(other);
}

std::atomic<int> late_calls;

struct LateRetirer {
    ~LateRetirer()
    {
        const Pin pin;
        ebb_retire(ebb_malloc(300));
        ebb_retire(ebb_malloc(MiB));
        EXPECT_EQ(0, ebb_retire_with(ebb_malloc(50), count_and_free, &late_calls));
    }
    int used = 0;
};

TEST(ReclaimOdd, ThreadLocalDestructorsMayPinAndRetire)
{
    const ebb_stats before = heap_stats();
    for (int i = 0; i < 100; i++)
        in_thread([] {
            static thread_local LateRetirer retirer;
            retirer.used++;
        });
    EXPECT_TRUE(drain());
    EXPECT_EQ(100, late_calls.load());
    EXPECT_LE(heap_stats().live_bytes, before.live_bytes + MiB);
}

pthread_key_t late_key;
std::atomic<int> late_rounds;
// TSan ends its own record of a thread in the last round and may be called no more after it.
constexpr int rounds_per_thread = support::under_tsan ? 3 : 4;

// Also behind the allocator's own destructor, where the thread has no heap any more.
void pin_late(void *round)
{
    {
        const Pin pin;
        const Pin inner;
        EXPECT_TRUE(ebb_is_pinned());
        ebb_retire(ebb_malloc(64));
        ebb_retire(ebb_malloc(200 * KiB));
        EXPECT_EQ(0, ebb_retire_with(ebb_malloc(50), count_and_free, &late_calls));
    }
    EXPECT_FALSE(ebb_is_pinned());
    late_rounds.fetch_add(1);
    const auto left = support::address(round) - 1;
    if (left > 0)
        pthread_setspecific(late_key, reinterpret_cast<void *>(left));
}

TEST(ReclaimOdd, LateDestructorsMayPinAndRetireInEveryRound)
{
    late_calls.store(0);
    ASSERT_EQ(0, pthread_key_create(&late_key, pin_late));
    constexpr int threads = 100, all = threads * rounds_per_thread;
    for (int i = 0; i < threads; i++)
        in_thread([] {
            pthread_setspecific(late_key,
                                reinterpret_cast<void *>(std::uintptr_t{rounds_per_thread}));
            const Pin pin;
        });
    EXPECT_EQ(all, late_rounds.load());
    EXPECT_TRUE(drain());
    EXPECT_EQ(all, late_calls.load());
    pthread_key_delete(late_key);
}

// The first call of the thread is in its destructor, and it ends pinned there.
TEST(ReclaimOdd, AThreadMayEndPinnedInALateDestructor)
{
    pthread_key_t key;
    ASSERT_EQ(0, pthread_key_create(&key, [](void *) { ebb_pin(); }));
    for (int i = 0; i < 20; i++)
        in_thread([=] { pthread_setspecific(key, &late_calls); });
    EXPECT_EQ(0U, stats().pinned);
    ebb_synchronize();
    ebb_retire(ebb_malloc(64));
    EXPECT_TRUE(drain());
    pthread_key_delete(key);
}

} // namespace
