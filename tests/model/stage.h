// SPDX-License-Identifier: MIT OR Apache-2.0
// What the scenarios of the clock share: a clock with its participants, readers and writers that use
// it as the library does, and the queue in which retired blocks wait.
#ifndef EBB_MODEL_STAGE_H
#define EBB_MODEL_STAGE_H

#include "model.h"

#include "epoch/clock.h"

namespace model {

// Where readers find the block.
struct Link : Atomic<Block *> {
    explicit Link(Block *first) : Atomic<Block *>(first) { first->fill(); }
    void replace(Block *fresh)
    {
        fresh->fill();
        ebbi_store_release(this, fresh);
    }
};

// A participant in memory of its own, which is gone as soon as end() returns.
class Member {
public:
    explicit Member(struct ebbi_clock *clock) : clock_(clock)
    {
        me_ = new (place_) ebb_participant;
        ebbi_clock_join(clock_, me_);
    }
    ~Member() { end(); }
    void end()
    {
        if (me_ == nullptr) {
            return;
        }
        if (is_mutant("left_linked")) {
            ebbi_store_release(&me_->state, uint64_t(0));
        } else {
            ebbi_clock_leave(clock_, me_);
        }
        std::exchange(me_, nullptr)->~ebb_participant();
    }
    void pin() { ebbi_pin(me_, me_->light); }
    void repin() { ebbi_repin(me_, me_->light); }
    void unpin()
    {
        if (is_mutant("unpin_deactivates")) {
            ebbi_store_release(&me_->state, uint64_t(0));
        } else {
            ebbi_unpin(me_);
        }
    }
    void read(const Link &link)
    {
        pin();
        look_at(link);
        unpin();
    }
    static const Block *look_at(const Link &link)
    {
        const Block *block = ebbi_load_acquire(&link); // the program's own
        block->read();
        rl::yield(1, $); // others may come between
        block->read();
        return block;
    }

private:
    struct ebbi_clock *clock_;
    struct ebb_participant *me_;
    alignas(64) unsigned char place_[sizeof(struct ebb_participant)];
};

struct Clock : ebbi_clock {
    explicit Clock(bool is_light = false) : ebbi_clock{}
    {
        ebbi_store_relaxed(&now, EBBI_CLOCK_FIRST);
        light = is_light;
    }
    uint64_t tag()
    {
        // A tag that is one epoch too old makes a grace of one epoch.
        return ebbi_clock_tag(this) - (is_mutant("grace_of_one") ? EBB_EPOCH_ONE : 0);
    }
    // As a thread that retires: moves on when it can, gives up when somebody is in the way.
    bool passes(uint64_t tag)
    {
        for (int tries = 0; tries < 3 && !ebbi_clock_passed(this, tag); tries++) {
            (void)ebbi_clock_advance(this);
        }
        return ebbi_clock_passed(this, tag);
    }
    void retire(Block *block)
    {
        if (passes(tag())) {
            block->reuse();
        }
    }
};

} // namespace model

#endif
