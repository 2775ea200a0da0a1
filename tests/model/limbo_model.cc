// SPDX-License-Identifier: MIT OR Apache-2.0
// Limbo: bags that are sealed with a stamp, queue under a lock and refill the allocator or go home by
// another thread's hand, and the blocks for which no bag could be had. The clock is the library's;
// the bags are small ones of the model, which follow src/reclaim/retire.c, bags.c and stranded.c.
#include "stage.h"

namespace {

using model::Block;
using model::Clock;
using model::Link;
using model::Member;

struct Bag {
    Block *blocks[6] = {};
    unsigned count = 0;
    uint64_t stamp = 0;

    void push(Block *block) { blocks[count++] = block; }
    bool take_from(Bag *other)
    {
        for (unsigned i = 0; i < other->count; i++) {
            other->blocks[i]->reuse();
            push(other->blocks[i]);
        }
        other->count = 0;
        return true;
    }
};

// One thread retires and allocates, one reads, one collects for the first.
template <model::Mode mode> struct Limbo {
    static constexpr rl::thread_id_t threads = 3;
    static constexpr unsigned room = 2, rounds = 5;
    Clock clock{mode};
    Member reader{&clock};
    Block blocks[rounds + 1];
    unsigned unused = 1;
    Link link{&blocks[0]};
    Bag filling, magazine, home; // of the writer, of the writer, of the collector
    struct ebbi_lock lock;
    Bag queue[3], stranded; // under the lock
    unsigned first = 0, last = 0;

    void thread(unsigned index)
    {
        if (index == 0) {
            write();
        } else if (index == 1) {
            reader.read(link);
            reader.read(link);
        } else {
            for (int i = 0; i < 4; i++) {
                (void)model::advance(&clock, true);
                (void)take_passed(&home);
                (void)take_stranded(&home);
            }
        }
    }

    void write()
    {
        Block *linked = &blocks[0];
        for (unsigned i = 0; i < rounds; i++) {
            Block *fresh = allocate();
            link.replace(fresh);
            retire(std::exchange(linked, fresh));
        }
    }

    Block *allocate()
    {
        if (magazine.count == 0 && !take_passed(&magazine)) {
            return &blocks[unused++];
        }
        return magazine.blocks[--magazine.count];
    }

    void retire(Block *block)
    {
        if (model::is_mutant("bucket_modulo")) {
            retire_by_epoch(block);
        } else if (filling.count == 0 && (last == 3 || rl::rand(4) == 0)) {
            strand(block); // no memory for a bag
        } else {
            filling.push(block);
            if (filling.count == room) {
                seal();
            }
        }
        (void)model::advance(&clock, true);
    }

    void seal()
    {
        ebbi_lock_take(&lock);
        filling.stamp = clock.stamp();
        queue[last++] = std::exchange(filling, Bag());
        ebbi_lock_drop(&lock);
    }

    void strand(Block *block)
    {
        if (model::is_mutant("free_on_no_memory")) {
            block->reuse();
            return;
        }
        ebbi_lock_take(&lock);
        stranded.push(block);
        stranded.stamp = clock.stamp();
        ebbi_lock_drop(&lock);
    }

    // A bag for each epoch modulo three, whose stamp is that of the first block in it.
    void retire_by_epoch(Block *block)
    {
        ebbi_lock_take(&lock);
        uint64_t stamp = clock.stamp();
        Bag &bag = queue[(stamp >> EBB_PIN_SHIFT) % 3];
        if (bag.count == 0) {
            bag.stamp = stamp;
        }
        bag.push(block);
        last = 3;
        ebbi_lock_drop(&lock);
    }

    bool take_passed(Bag *to)
    {
        bool taken = false;
        ebbi_lock_take(&lock);
        if (model::is_mutant("bucket_modulo")) {
            first = rl::rand(3);
        }
        if (first < last && queue[first].count > 0 &&
            ebbi_clock_passed(&clock, queue[first].stamp)) {
            taken = to->take_from(&queue[first++]);
        }
        ebbi_lock_drop(&lock);
        return taken;
    }

    bool take_stranded(Bag *to)
    {
        ebbi_lock_take(&lock);
        bool taken = stranded.count > 0 && ebbi_clock_passed(&clock, stranded.stamp) &&
                     to->take_from(&stranded);
        ebbi_lock_drop(&lock);
        return taken;
    }
};

const model::Scenario scenarios[] = {
    {"limbo", rl::simulate<model::Suite<Limbo<model::FENCED>>>},
    {"limbo_biased", rl::simulate<model::Suite<Limbo<model::BIASED>>>},
};

} // namespace

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
