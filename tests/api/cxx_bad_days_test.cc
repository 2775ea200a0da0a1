// SPDX-License-Identifier: MIT OR Apache-2.0
// The C++ faces on bad days: constructors that throw, static and thread-local objects at their end, threads
// that come and go, forks amid all of it.
#include <array>
#include <mutex>

#include <sys/wait.h>

#include "reclaim_support.h"

#include "ebbtide.hpp"

namespace {

using namespace reclaim;

std::atomic<int> alive{0};

struct Counted {
    Counted() { alive++; }
    Counted(const Counted &) = delete;
    Counted &operator=(const Counted &) = delete;
    ~Counted() { alive--; }
};
struct Rcu : Counted, ebb::rcu_obj_base<Rcu> {};
struct Hazardous : Counted, ebb::hazard_pointer_obj_base<Hazardous> {};
struct Both : Counted, ebb::rcu_obj_base<Both>, ebb::hazard_pointer_obj_base<Both> {};

class BadDays : public testing::Test {
protected:
    void SetUp() override { alive = 0; }
    void TearDown() override
    {
        EXPECT_TRUE(drain());
        ebb::rcu_barrier(); // the helper may have some in hand, which do not wait any more
        EXPECT_EQ(0, alive.load());
    }
};

// ---- exceptions ------------------------------------------------------------------------------------

struct alignas(256) ThrowsAmidPins {
    explicit ThrowsAmidPins(int when) : pinned(), part(), other(ebb::make<Rcu>())
    {
        const ebb::guard more;
        ebb::rcu_retire(new Counted);
        if (when == 0)
            throw 1;
        ebb::destroy(other);
    }
    ~ThrowsAmidPins() = default;
    ebb::guard pinned;
    Counted part;
    Rcu *other;
};

TEST_F(BadDays, ConstructorsThatThrowAmidPins)
{
    const std::size_t before = heap_stats().live_bytes;
    for (int i = 0; i < 2000; i++) {
        Rcu *left = nullptr;
        try {
            ebb::make<ThrowsAmidPins>(0);
            ADD_FAILURE() << "it did not throw";
        } catch (int) {
        }
        EXPECT_FALSE(ebb_is_pinned());
        ebb::destroy(left);
    }
    // What the constructor has made by itself and not given back is its own affair.
    EXPECT_LE(heap_stats().live_bytes, before + 2000 * 64 + support::MiB);
    alive -= 2000;
}

TEST_F(BadDays, FlagsThatThereAreNotAreInvalid)
{
    EXPECT_THROW(const ebb::collector wrong(99), std::invalid_argument);
    EXPECT_NO_THROW(const ebb::collector fenced(EBB_COLLECTOR_FENCED));
}

TEST_F(BadDays, AnExceptionEndsPinsAndProtections)
{
    const std::size_t open = stats().hazards;
    Hazardous *const held = new Hazardous;
    try {
        const std::scoped_lock reader(ebb::rcu_default_domain());
        ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
        hazard.reset_protection(held);
        held->retire();
        throw 1;
    } catch (int) {
    }
    EXPECT_FALSE(ebb_is_pinned());
    EXPECT_EQ(open, stats().hazards);
}

TEST_F(BadDays, AnObjectOfBothKinds)
{
    for (int i = 0; i < 2; i++) {
        Both *const both = new Both;
        ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
        hazard.reset_protection(both);
        if (i == 0)
            both->rcu_obj_base<Both>::retire();
        else
            both->hazard_pointer_obj_base<Both>::retire();
        push_on();
        EXPECT_EQ(1, alive.load()) << "a hazard pointer holds back both";
        hazard = {};
        push_on();
        EXPECT_EQ(0, alive.load());
    }
}

TEST_F(BadDays, MovesInContainers)
{
    std::vector<ebb::hazard_pointer> many;
    std::vector<Hazardous *> held;
    for (int i = 0; i < 300; i++) { // the vector grows and moves them
        many.push_back(ebb::make_hazard_pointer());
        held.push_back(new Hazardous);
        many.back().reset_protection(held.back());
    }
    for (Hazardous *p : held)
        p->retire();
    std::reverse(many.begin(), many.end());
    std::rotate(many.begin(), many.begin() + 7, many.end());
    push_on();
    EXPECT_EQ(300, alive.load());
    many.erase(many.begin(), many.begin() + 100);
    push_on();
    EXPECT_EQ(200, alive.load());
}

// ---- threads ---------------------------------------------------------------------------------------

TEST_F(BadDays, ThousandsOfThreadsComeAndGo)
{
    const std::size_t rounds = support::scaled(625);
    std::atomic<Rcu *> shared{new Rcu};
    std::atomic<Hazardous *> other{new Hazardous};
    ebb::hazard_pointer kept; // goes from thread to thread
    std::mutex keeps;
    for (std::size_t round = 0; round < rounds; round++) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 16; t++)
            threads.emplace_back([&] {
                {
                    const std::scoped_lock reader(ebb::rcu_default_domain());
                    EXPECT_NE(nullptr, shared.load());
                    shared.exchange(new Rcu)->retire();
                }
                ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
                hazard.protect(other);
                other.exchange(new Hazardous)->retire();
                const std::scoped_lock lock(keeps);
                kept.swap(hazard); // ends the protection of an older one
            });
        for (std::thread &thread : threads)
            thread.join();
    }
    kept = {};
    EXPECT_EQ(0U, stats().hazards);
    ebb::rcu_barrier();
    EXPECT_EQ(2, alive.load());
    shared.exchange(nullptr)->retire();
    other.exchange(nullptr)->retire();
    EXPECT_LE(heap_stats().live_bytes, 4 * support::MiB);
}

struct AtTheEnd {
    ~AtTheEnd()
    {
        const std::scoped_lock reader(ebb::rcu_default_domain());
        (new Rcu)->retire();
        (new Hazardous)->retire();
        ebb::rcu_retire(new Counted);
        ebb::rcu_retire(new Counted, [text = std::string(100, 'x')](Counted *p) { delete p; });
        hazard.reset_protection(static_cast<Counted *>(nullptr));
    }
    ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
};

TEST_F(BadDays, ThreadLocalObjectsRetireAtTheirEnd)
{
    for (int i = 0; i < 100; i++)
        in_thread([] {
            static thread_local AtTheEnd end;
            EXPECT_FALSE(end.hazard.empty());
        });
    EXPECT_EQ(0U, stats().hazards);
}

// ---- the end of the process -----------------------------------------------------------------------

int exit_code_of(void (*run)())
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        run();
        exit(0);
    }
    int status = 0;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST_F(BadDays, StaticObjectsRetireAtExit)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    const auto leave = [] { static AtTheEnd end; };
    if (!support::under_asan) { // which tells of what waits in the end
        EXPECT_EQ(0, exit_code_of(leave));
    }
    EXPECT_EQ(7, exit_code_of([] {
                  static struct Last {
                      ~Last()
                      {
                          ebb::rcu_barrier(); // of all that static objects made later have retired
                          _exit(alive.load() == 0 ? 7 : 8);
                      }
                  } last;
                  static AtTheEnd end;
              }));
}

TEST_F(BadDays, StaticObjectsRetireAtExitBesideThreads)
{
    if (support::under_sanitizer)
        GTEST_SKIP() << "they tell of threads that run, and of what waits, at exit";
    for (int i = 0; i < 20; i++)
        EXPECT_EQ(0, exit_code_of([] {
                      static AtTheEnd end;
                      for (int t = 0; t < 2; t++)
                          std::thread([] {
                              for (;;) {
                                  const std::scoped_lock reader(ebb::rcu_default_domain());
                                  (new Rcu)->retire();
                                  (new Hazardous)->retire();
                              }
                          }).detach();
                      while (alive < 1000)
                          std::this_thread::yield();
                  }));
}

TEST_F(BadDays, ForksAmidReadersAndWriters)
{
    if (support::under_tsan)
        GTEST_SKIP() << "TSan ends a child forked from several threads";
    if (support::under_asan)
        GTEST_SKIP() << "ASan's allocator has no fork handlers";
    std::atomic<bool> stop{false};
    static std::atomic<Hazardous *> shared;
    shared = new Hazardous;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
        threads.emplace_back([&] {
            ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
            while (!stop) {
                hazard.protect(shared);
                shared.exchange(new Hazardous)->retire();
                (new Rcu)->retire();
            }
        });
    ebb::hazard_pointer mine = ebb::make_hazard_pointer();
    for (std::size_t i = 0; i < support::scaled(100); i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            alive = 0;
            (new Rcu)->retire();
            Hazardous *const held = new Hazardous;
            mine.reset_protection(held);
            held->retire();
            ebb::rcu_barrier();
            mine.reset_protection();
            ebb_reclaim();
            _exit(stats().destructors == 0 ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << std::hex << status;
    }
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    shared.exchange(nullptr)->retire();
}

} // namespace
