// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer slab: the protocol of remote frees (P3). Each giver is two steps (word, summary) and an
// announcement; the owner is the collect of an announced slab, also in steps. All orders of two and
// three small givers and an owner are tried on a model whose steps are the protocol's; then the
// real functions run under real threads.
#include <atomic>

#include "support/slab_walk.h"

namespace {

using namespace unit;

using Remote = Fake;

std::vector<void *> take_all(ebbi_slab *slab)
{
    std::vector<void *> slots(slab->free_count);
    EXPECT_EQ(slots.size(), ebbi_slab_take(slab, slots.data(), slots.size()));
    return slots;
}

ebbi_slab *make(std::size_t bytes)
{
    unsigned c = ebbi_class_for(bytes);
    return ebbi_slab_create(c, ebbi_class_bin(c, 0), nullptr, EBBI_FILL_UNKNOWN);
}

TEST_F(Remote, OnlyTheFirstGiverAnnounces)
{
    ebbi_slab *slab = make(16);
    take_all(slab);
    EXPECT_TRUE(ebbi_slab_give_remote(slab, 3, 1));
    EXPECT_FALSE(ebbi_slab_give_remote(slab, 3, 6));
    EXPECT_FALSE(ebbi_slab_give_remote(slab, 63, 1));
    EXPECT_EQ(4U, ebbi_slab_collect(slab));
    EXPECT_EQ("", walk_slab(slab));
    EXPECT_TRUE(ebbi_slab_give_remote(slab, 0, 1)) << "announced anew after a collect";
    EXPECT_EQ(1U, ebbi_slab_collect(slab));
    EXPECT_EQ(0U, slab->first_word);
    EXPECT_EQ("", walk_slab(slab));
}

TEST_F(Remote, CollectTakesNothingThatIsNotNamed)
{
    ebbi_slab *slab = make(16);
    take_all(slab);
    ebbi_slab_remote(slab)[5] = 1; // a giver between its two steps
    EXPECT_TRUE(ebbi_slab_give_remote(slab, 2, 1));
    EXPECT_EQ(1U, ebbi_slab_collect(slab));
    EXPECT_EQ(1U, ebbi_slab_remote(slab)[5]);
}

TEST_F(Remote, DoubleFreesDieOnEitherSide)
{
    ebbi_slab *slab = make(64);
    auto blocks = take_all(slab);
    EXPECT_TRUE(ebbi_slab_give_remote(slab, 0, 1));
    EXPECT_DEATH((void)ebbi_slab_give_remote(slab, 0, 3), "ebbtide: .*: double free");
    give_block(slab, reinterpret_cast<void *>(slab->first_block));
    EXPECT_DEATH((void)ebbi_slab_collect(slab), "ebbtide: .*: double free");
}

// The protocol as a machine of single atomic steps.
struct Machine {
    unsigned words[2] = {0, 0};
    unsigned summary = 0;
    bool pending = false;
    unsigned taken = 0, named = 0;
    bool in_collect = false, dead = false, touched_dead = false, announced_twice = false;
};

struct Giver {
    unsigned word, bit, step; // step 0: word, 1: summary, 2: announce, 3: done
};

constexpr unsigned done = 3;

void step_giver(Machine &m, Giver &g)
{
    m.touched_dead |= m.dead;
    if (g.step == 0) {
        unsigned before = m.words[g.word];
        m.words[g.word] |= g.bit;
        g.step = before != 0 ? done : 1;
    } else if (g.step == 1) {
        unsigned before = m.summary;
        m.summary |= 1U << g.word;
        g.step = before != 0 ? done : 2;
    } else {
        m.announced_twice |= m.pending;
        m.pending = true;
        g.step = done;
    }
}

bool owner_can(const Machine &m) { return m.in_collect || m.pending; }

// `all` blocks back: the owner destroys the slab.
void step_owner(Machine &m, unsigned all)
{
    if (!m.in_collect) {
        m.pending = false;
        m.named = m.summary;
        m.summary = 0;
        m.in_collect = true;
    } else if (m.named != 0) {
        unsigned w = (m.named & 1) != 0 ? 0 : 1;
        m.named &= ~(1U << w);
        m.taken += static_cast<unsigned>(__builtin_popcount(m.words[w]));
        m.words[w] = 0;
    } else {
        m.in_collect = false;
        m.dead = m.taken == all;
    }
}

void explore(Machine m, std::vector<Giver> givers, unsigned all, std::size_t &ends)
{
    ASSERT_FALSE(m.touched_dead) << "a giver touched a slab that had died";
    ASSERT_FALSE(m.announced_twice);
    bool moved = false;
    for (std::size_t i = 0; i < givers.size(); i++) {
        if (givers[i].step == done)
            continue;
        Machine next = m;
        std::vector<Giver> after = givers;
        step_giver(next, after[i]);
        explore(next, after, all, ends);
        moved = true;
    }
    if (owner_can(m)) {
        Machine next = m;
        step_owner(next, all);
        explore(next, givers, all, ends);
        moved = true;
    }
    if (!moved) {
        ends++;
        ASSERT_EQ(all, m.taken) << "a block was lost";
        ASSERT_TRUE(m.dead);
    }
}

TEST_F(Remote, NoOrderOfStepsLosesABlockOrTouchesADeadSlab)
{
    std::size_t ends = 0;
    explore({}, {{0, 1, 0}, {0, 2, 0}}, 2, ends);
    explore({}, {{0, 1, 0}, {1, 1, 0}}, 2, ends);
    explore({}, {{0, 1, 0}, {0, 2, 0}, {1, 1, 0}}, 3, ends);
    EXPECT_GT(ends, 100U);
}

// Several threads give every block back, again and again, while the owner collects.
TEST_F(Remote, ThreadsReturnEveryBlockOnce)
{
    constexpr int givers = 3;
    ebbi_slab *slab = make(48);
    for (int round = 0; round < 40; round++) {
        auto blocks = take_all(slab);
        std::atomic<int> announced{0};
        std::atomic<int> running{givers};
        std::vector<std::thread> threads;
        for (int t = 0; t < givers; t++) {
            threads.emplace_back([&, t] {
                for (std::size_t i = static_cast<std::size_t>(t); i < blocks.size(); i += givers) {
                    unsigned b = ebbi_slab_block(slab, blocks[i]);
                    if (ebbi_slab_give_remote(slab, b / 64, std::uint64_t{1} << (b % 64)))
                        announced.fetch_add(1, std::memory_order_release);
                }
                running.fetch_sub(1);
            });
        }
        std::size_t back = 0;
        while (running.load() > 0 || announced.load() > 0) {
            int seen = announced.load(std::memory_order_acquire);
            ASSERT_LE(seen, 1) << "announced once, until it is collected";
            if (seen == 1) {
                announced.store(0);
                back += ebbi_slab_collect(slab);
            }
        }
        for (std::thread &t : threads)
            t.join();
        ASSERT_EQ(blocks.size(), back);
        ASSERT_EQ("", walk_slab(slab));
    }
}

} // namespace
