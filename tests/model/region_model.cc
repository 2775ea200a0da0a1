// SPDX-License-Identifier: MIT OR Apache-2.0
// Regions under Relacy: how the last block of a sheet gives it back, how its owner's rights are taken
// away, how the last one to leave ends a region, and how ownership is handed over.
#include "region_stage.h"

namespace {

using model::OneSheet;
using model::RegionWords;
using model::Shared;
using model::Stage;
using model::start_late;

// The owner closes while two others free. `left`: one more block stays, and the sheet ends with it.
template <unsigned left> struct OwnerCloses : OneSheet<0, 3 + left> {
    ~OwnerCloses() { this->is_over(left); }
    void thread(unsigned index)
    {
        start_late();
        this->use_and_free(index);
        if (index == 0) {
            ebbi_region_close(this->region);
        }
    }
};

// One that does not own the region closes it, while the owner and a third one free.
template <unsigned left> struct OtherCloses : OneSheet<1, 3 + left> {
    ~OtherCloses() { this->is_over(left); }
    void thread(unsigned index)
    {
        start_late();
        if (index == 0) {
            ebbi_region_close(this->region);
        } else if (index == 1) {
            this->use_and_free(0);
            this->use_and_free(1);
        } else {
            this->use_and_free(2);
        }
    }
};

// The owner's thread frees and ends, while another one closes.
struct OwnerExits : OneSheet<1, 4> {
    ~OwnerExits() { is_over(1); }
    void thread(unsigned index)
    {
        start_late();
        if (index == 0) {
            ebbi_region_close(region);
            return;
        }
        use_and_free(index);
        if (index == 1) {
            use_and_free(0);
            model::disown(region);
        }
    }
};

// A sheet of an open region is full, and its two blocks are freed beside a purge. The third block has
// a sheet of its own.
struct Purged : OneSheet<1, 3, 480> {
    ~Purged()
    {
        model::purge(region);
        RL_ASSERT(destroyed == 1);
    }
    void thread(unsigned index)
    {
        start_late();
        if (index == 0) {
            model::purge(region);
            model::purge(region);
        } else {
            use_and_free(index - 1);
        }
    }
};

// The pass over orphans beside the frees of the last blocks of one: it ends once, and not under the pass.
struct Passed : OneSheet<0, 3> {
    struct Closed {
        Closed(Passed *stage)
        {
            stage->act_as(0);
            ebbi_region_close(stage->region);
            stage->act_as(-1);
        }
    } closed{this};

    ~Passed() { is_over(0); }
    void thread(unsigned index)
    {
        start_late();
        if (index == 0) {
            model::pass_over_orphans();
            model::pass_over_orphans();
        } else {
            use_and_free(index - 1);
            if (index == 2) {
                use_and_free(2);
            }
        }
    }
};

// Two leave while the opener closes; what they did in the region is plain memory.
struct LastLeaves : Stage {
    static constexpr rl::thread_id_t threads = 3;
    struct Opened {
        Opened(LastLeaves *stage)
        {
            stage->open(0, 0);
            stage->detach(0);
            stage->enter(1, stage->region);
            stage->enter(2, stage->region);
        }
    } opened{this};
    Shared<uint32_t> busy{model::busy_of(model::self_of(0))};
    RegionWords region_words{region};

    ~LastLeaves() { RL_ASSERT(ended[0] == 1); }
    void thread(unsigned index)
    {
        start_late();
        blocks[index].fill();
        if (index == 0) {
            ebbi_region_close(region);
        } else {
            model::leave(region);
        }
    }
    void on_end(struct ebb_region *) override
    {
        for (unsigned i = 0; i < threads; i++) {
            blocks[i].read();
            blocks[i].reuse();
        }
    }
};

// A child and its parent are closed, each current in another thread: the last one to leave the child
// may end both.
struct ChildLeaves : Stage {
    static constexpr rl::thread_id_t threads = 3;
    struct ebb_region *child = nullptr;
    struct Opened {
        Opened(ChildLeaves *stage)
        {
            stage->open(0, 0);
            stage->act_as(0);
            stage->child = ebbi_region_open(stage->region, "model", 0, 0);
            stage->enter(1, stage->child);
            stage->enter(2, stage->region);
        }
    } opened{this};
    Shared<uint32_t> busy{model::busy_of(model::self_of(0))};
    RegionWords region_words{region}, child_words{child};

    ~ChildLeaves() { RL_ASSERT(ended[0] == 1 && ended[1] == 1); }
    void thread(unsigned index)
    {
        start_late();
        blocks[index].fill();
        if (index == 0) {
            ebbi_region_close(child);
            ebbi_region_close(region);
        } else {
            model::leave(index == 1 ? child : region);
        }
    }
    void on_end(struct ebb_region *which) override
    {
        blocks[0].read();
        blocks[1].read();
        if (which == region) {
            RL_ASSERT(ended[1] == 1);
            blocks[2].read();
            blocks[2].reuse();
        }
    }
};

// Nobody's region: who enters becomes the owner, if nobody is; it allocates, frees and leaves.
struct HandedOver : OneSheet<0, 1> {
    static constexpr rl::thread_id_t threads = 2;

    struct Left {
        Left(HandedOver *stage) { stage->detach(0); }
    } left{this};
    Shared<uint32_t> other_busy{model::busy_of(model::self_of(0))};

    ~HandedOver()
    {
        for (unsigned i = 1; i < taken; i++) {
            for (unsigned j = 0; j < i; j++) {
                RL_ASSERT(places[i] != places[j]);
            }
        }
        ebbi_region_close(region);
        RL_ASSERT(destroyed == 0);
        use_and_free(0);
        is_over(0);
    }
    void thread(unsigned)
    {
        start_late();
        for (int i = 0; i < 2; i++) {
            ebbi_region_enter(region);
            use_and_free(take());
            if (i == 0) {
                ebbi_region_detach(region);
            }
            model::leave(region);
        }
    }
};

const model::Scenario scenarios[] = {
    {"sheet_ends", rl::simulate<model::Suite<OwnerCloses<0>>>},
    {"sheet_stays", rl::simulate<model::Suite<OwnerCloses<1>>>},
    {"taken_away", rl::simulate<model::Suite<OtherCloses<0>>>},
    {"taken_stays", rl::simulate<model::Suite<OtherCloses<1>>>},
    {"owner_exits", rl::simulate<model::Suite<OwnerExits>>},
    {"purged", rl::simulate<model::Suite<Purged>>},
    {"passed", rl::simulate<model::Suite<Passed>>},
    {"last_leaves", rl::simulate<model::Suite<LastLeaves>>},
    {"child_leaves", rl::simulate<model::Suite<ChildLeaves>>},
    {"handed_over", rl::simulate<model::Suite<HandedOver>>},
};

} // namespace

int main(int argc, char **argv)
{
    model::threads_start_late = argc > 2 && !model::Search(argv[2]).is_bound;
    return model::main(scenarios, argc, argv);
}
