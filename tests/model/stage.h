// SPDX-License-Identifier: MIT OR Apache-2.0
// What the scenarios of the clock share: a clock with its participants, and readers and writers that
// use it as the library does.
#ifndef EBB_MODEL_STAGE_H
#define EBB_MODEL_STAGE_H

#include "mutants.h"

namespace model {

enum Mode { FENCED, BIASED };

// Where readers find the block.
struct Link : Atomic<Block *> {
    explicit Link(Block *first) : Atomic<Block *>(first) { first->fill(); }
    void replace(Block *fresh)
    {
        fresh->fill();
        ebbi_store_release(this, fresh);
    }
};

// Decided by the first pin, as the library's own clock is.
struct Clock : ebbi_clock {
    const bool fenced;
    Atomic<bool> decided_shadow{false};

    explicit Clock(Mode mode) : ebbi_clock{}, fenced(mode == FENCED)
    {
        ebbi_store_relaxed(&now, EBBI_CLOCK_FIRST);
        shadow() = {&decided, &decided_shadow};
    }
    static Clock *of(const struct ebb_participant *me)
    {
        auto *now = const_cast<Atomic<uint64_t> *>(me->now);
        return static_cast<Clock *>(reinterpret_cast<struct ebbi_clock *>(now)); // its first member
    }
    uint64_t stamp()
    {
        // A stamp that is one epoch too old makes a grace of one epoch.
        return ebbi_clock_stamp(this) - (is_mutant("grace_of_one") ? EBB_EPOCH_ONE : 0);
    }
    // As a thread that retires: moves on when it can, gives up when somebody is in the way.
    bool passes(uint64_t stamp)
    {
        for (int tries = 0; tries < 3 && !ebbi_clock_passed(this, stamp); tries++) {
            (void)advance(this, true);
        }
        return ebbi_clock_passed(this, stamp);
    }
    void retire(Block *block)
    {
        if (passes(stamp())) {
            block->reuse();
        }
    }
    // As one that waits.
    void retire_in_time(Block *block);
};

// What epoch/clock.h assumes of the machine: what any thread has stored before some point within this
// second is visible afterwards, and what it loads behind that point is what this thread stored before.
inline void second_passes()
{
    unsigned threads = rl::ctx().get_thread_count(), first = rl::rand(threads);
    fence(false, $);
    for (unsigned i = 0; i < threads; i++) {
        unsigned other = (first + i) % threads;
        if (other != rl::thread_index()) {
            pause();
            fence_in()(other);
        }
    }
    the_system().now_ms += EBBI_CLOCK_TURN_MS;
}

inline void Clock::retire_in_time(Block *block)
{
    uint64_t t = stamp();
    for (int tries = 0; tries < 5 && !ebbi_clock_passed(this, t); tries++) {
        if (!advance(this, true) && rl::rand(2) == 0) {
            second_passes();
        }
    }
    if (ebbi_clock_passed(this, t)) {
        block->reuse();
    }
}

// A participant in memory of its own, which is gone as soon as end() returns.
class Member {
public:
    explicit Member(struct ebbi_clock *clock) : clock_(clock)
    {
        me_ = new (place_) ebb_participant;
        ebbi_clock_join(clock_, me_, ebbi_os_thread_number());
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
    void pin() { model::pin(me_); }
    void repin() { ebbi_repin(me_); }
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
    // Announces the present epoch: in a biased clock the next pins may do without a fence.
    void announce()
    {
        pin();
        unpin();
    }
    static const Block *look_at(const Link &link)
    {
        const Block *block = ebbi_load_acquire(&link); // the program's own
        block->read();
        pause();
        block->read();
        return block;
    }

private:
    struct ebbi_clock *clock_;
    struct ebb_participant *me_;
    alignas(64) unsigned char place_[sizeof(struct ebb_participant)];
};

} // namespace model

// The first pin, as in src/reclaim/pin.c. No scenario nests too deep, or leaves work to the last unpin.
inline void ebb_pin_slow(struct ebb_participant *me)
{
    RL_ASSERT(ebbi_load_relaxed(&me->state) == EBB_PIN_ATTENTION);
    model::Clock *clock = model::Clock::of(me);
    ebbi_clock_decide(clock, clock->fenced);
    ebbi_announce(me, 0);
}
inline void ebb_unpin_slow(struct ebb_participant *) { RL_ASSERT(!"unpin_slow"); }

#endif
