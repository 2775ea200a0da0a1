// SPDX-License-Identifier: MIT OR Apache-2.0
// Hazard pointers: src/reclaim/hazard.c and ebbtide/detail/hazard.h as they are, under Relacy. The
// readers are not pinned: the clock runs past them, and only the hazards hold the blocks.
#include "stage.h"

#define EBBI_HAZARDS_A_ROW 2 // so that one more makes another
#include "reclaim/hazard.c"

namespace {

struct Places {
    alignas(64) unsigned char places[4][sizeof(struct ebbi_hazards)];
    size_t used;
};
Places rows;

} // namespace

struct ebbi_hazards *ebbi_own_alloc(size_t bytes)
{
    RL_ASSERT(alignof(struct ebbi_hazards) <= 64 && bytes == sizeof(struct ebbi_hazards));
    RL_ASSERT(rows.used < 4);
    return new (rows.places[rows.used++]) ebbi_hazards;
}

namespace {

using model::Block;

struct Hazards {
    model::Clock clock{model::FENCED}; // nobody pins
    Block blocks[3];
    model::Atomic<void *> link{&blocks[0]};

    Hazards()
    {
        blocks[0].fill();
        rows.used = 0;
    }
    ~Hazards()
    {
        for (size_t i = 0; i < rows.used; i++) {
            reinterpret_cast<ebbi_hazards *>(rows.places[i])->~ebbi_hazards();
        }
    }
    void read(struct ebb_hazard *hazard)
    {
        const Block *block = static_cast<Block *>(ebb_hazard_protect(hazard, &link));
        block->read();
        model::pause();
        block->read();
    }
    // As the queues do: what is protected waits with a new stamp.
    bool retire(Block *block)
    {
        for (int tries = 0; tries < 2; tries++) {
            if (clock.passes(clock.stamp()) && !ebbi_hazard_protects(block, sizeof *block)) {
                block->reuse();
                return true;
            }
        }
        return false;
    }
    bool replace(Block *old, Block *fresh)
    {
        fresh->fill();
        ebbi_store_release(&link, fresh);
        return retire(old);
    }
    // The first block comes back where it was, if it can.
    void replace_all()
    {
        bool back = replace(&blocks[0], &blocks[1]);
        (void)replace(&blocks[1], &blocks[back ? 0 : 2]);
    }
};

// Hazards that stay open: set over one another, and cleared at the end.
struct Protect : Hazards {
    static constexpr rl::thread_id_t threads = 3;
    struct ebb_hazard *hazards[2] = {ebbi_hazard_open(this), ebbi_hazard_open(this)};

    void thread(unsigned index)
    {
        if (index == 0) {
            replace_all();
            return;
        }
        read(hazards[index - 1]);
        read(hazards[index - 1]);
        ebb_hazard_clear(hazards[index - 1]);
    }
};

// Hazards that are opened, closed and used again meanwhile: the list grows, the count comes and goes.
struct OpenClose : Hazards {
    static constexpr rl::thread_id_t threads = 3;

    void thread(unsigned index)
    {
        if (index == 0) {
            replace_all();
            return;
        }
        for (int i = 0; i < 2; i++) {
            struct ebb_hazard *hazard = ebbi_hazard_open(this);
            read(hazard);
            ebbi_hazard_close(hazard);
        }
    }
};

// The first row is full: another one comes beside the look.
struct Rows : OpenClose {
    struct ebb_hazard *hazards[2] = {ebbi_hazard_open(this), ebbi_hazard_open(this)};
};

const model::Scenario scenarios[] = {
    {"hazard_protect", rl::simulate<model::Suite<Protect>>},
    {"hazard_open_close", rl::simulate<model::Suite<OpenClose>>},
    {"hazard_rows", rl::simulate<model::Suite<Rows>>},
};

} // namespace

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
