// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on pins, on what waits for them, and on hazard pointers.
#pragma once

#include "ops_scope.h"

namespace random_test {

inline bool attach(Worker &w, unsigned number)
{
    Clock &clock = w.clocks[number];
    if (number == 0)
        return true;
    if (number < clock_count)
        clock.collector = w.run.collectors[number];
    if (clock.collector != nullptr && clock.me == nullptr)
        clock.me = ebb_collector_attach(clock.collector);
    RANDOM_CHECK(clock.me != nullptr || clock.collector == nullptr || w.may_be_refused() ||
                     w.may_go_without,
                 "no record");
    return clock.me != nullptr;
}

inline unsigned pick_clock(const Record &r) { return r.x() % 8 < 5 ? 0 : r.x() % 8 - 4; }

inline void announce(Worker &w, unsigned number)
{
    w.clocks[number].serial = w.run.next_pin++;
    if (PinSlot *slot = w.pin_slot(number))
        slot->store(w.clocks[number].serial);
}

// What the pin of this thread held back is free to go.
inline void forget_pin(Worker &w, unsigned number)
{
    Clock *const clock = &w.clocks[number];
    w.model.for_each(
        [=](const Block &b) { return b.state == Block::State::pinned && b.guard == clock; },
        [&](Block *b) {
            Model::check(*b);
            w.model.remove(b);
        });
    if (number == 0) {
        for (const Held &held : w.held)
            held.node->check(held.serial, "a node under a pin");
        w.held.clear();
    }
    for (const Cookie &cookie : w.cookies)
        RANDOM_CHECK(number != 0 || cookie.pin == 0 || cookie.pin != clock->serial ||
                         !ebb_epoch_passed(cookie.value),
                     "epoch %llu passed inside the pin",
                     static_cast<unsigned long long>(cookie.value));
    if (number == 0)
        w.cookies.clear();
    if (PinSlot *slot = w.pin_slot(number))
        slot->store(0);
    clock->serial = 0;
}

inline void op_pin(Worker &w, const Record &r)
{
    const unsigned number = pick_clock(r);
    if (!attach(w, number) || w.clocks[number].depth > 40)
        return;
    for (unsigned deeper = r.y() % 16 == 0 ? 9 : 1; deeper > 0; deeper--) {
        if (number == 0) {
            ebb_pin();
            w.pinned();
        } else
            ebb_participant_pin(w.clocks[number].me);
        if (w.clocks[number].depth++ == 0)
            announce(w, number);
    }
}

inline void unpin(Worker &w, unsigned number)
{
    if (--w.clocks[number].depth == 0)
        forget_pin(w, number);
    if (number == 0)
        ebb_unpin();
    else
        ebb_participant_unpin(w.clocks[number].me);
}

inline void op_unpin(Worker &w, const Record &r)
{
    unsigned number = pick_clock(r);
    for (unsigned i = 0; i < w.clocks.size(); i++, number = (number + 1) % 4)
        if (w.clocks[number].depth > 0)
            return unpin(w, number);
}

inline void op_repin(Worker &w, const Record &r)
{
    const unsigned number = pick_clock(r);
    Clock &clock = w.clocks[number];
    if (clock.depth == 0)
        return;
    if (clock.depth == 1)
        forget_pin(w, number);
    if (number == 0)
        ebb_repin();
    else
        ebb_participant_repin(clock.me);
    if (clock.depth == 1)
        announce(w, number);
}

inline void op_is_pinned(Worker &w, const Record &)
{
    RANDOM_CHECK(w.may_be_refused() || (ebb_is_pinned() != 0) == (w.clocks[0].depth > 0),
                 "depth %u", w.clocks[0].depth);
    for (unsigned i = 1; i < w.clocks.size(); i++)
        RANDOM_CHECK(w.clocks[i].me == nullptr || (ebb_participant_is_pinned(w.clocks[i].me) !=
                                                   0) == (w.clocks[i].depth > 0),
                     "collector %u, depth %u", i, w.clocks[i].depth);
}

// ---- what waits ----------------------------------------------------------------------------------

inline void destroy(void *p, void *context)
{
    Doom *const doom = static_cast<Doom *>(context);
    const int calls = doom->calls.fetch_add(1);
    RANDOM_CHECK(calls == 0, "%d calls before of the destructor of %p", calls, p);
    RANDOM_CHECK(p == doom->at, "destructor called with %p, not %p", p, doom->at);
    for (unsigned i = 0; i < doom->holds; i++)
        RANDOM_CHECK(doom->held[i].first->load() != doom->held[i].second,
                     "%p is destroyed while a pin from before is held", p);
    RANDOM_CHECK(!doom->guarded, "%p is destroyed under a hazard pointer", p);
    RANDOM_CHECK(doom->clock != 0 || !ebb_is_pinned(), "the destructor of %p runs inside a pin", p);
    if (p != nullptr)
        check_pattern(p, doom->size, doom->size, doom->serial, "what was retired");
    doom->over = true;
    if (doom->style % 4 == 1) {
        const ebb_scope before = ebb_heap_enter();
        ebb_free(ebb_malloc(doom->style * 10));
        ebb_leave(before);
    }
    if (doom->style % 4 == 2 && doom->clock == 0) {
        ebb_pin();
        ebb_retire(p);
        ebb_unpin();
        return;
    }
    ebb_free(p);
}

inline Doom *new_doom(Worker &w, unsigned clock, const Record &r)
{
    const std::lock_guard lock(w.run.mutex);
    w.run.dooms.push_back(std::make_unique<Doom>());
    Doom *const doom = w.run.dooms.back().get();
    doom->clock = clock;
    doom->era = w.run.era;
    doom->style = r.y();
    for (unsigned i = 0; clock < clock_count && i < slot_count; i++)
        if (const std::uint64_t serial = w.run.pins[clock][i].load())
            doom->held[doom->holds++] = {&w.run.pins[clock][i], serial};
    return doom;
}

inline int call_retire_with(Worker &w, unsigned clock, void *p, Doom *doom)
{
    errno = 0;
    const int result = clock == 0
                           ? ebb_retire_with(p, destroy, doom)
                           : ebb_participant_retire_with(w.clocks[clock].me, p, destroy, doom);
    RANDOM_CHECK(result == 0 || (w.may_be_refused() && errno == ENOMEM), "%d, errno %d", result,
                 errno);
    if (result != 0)
        doom->at = nullptr; // it never will run
    return result;
}

inline void destroy_hooked(void *p, ebb_hook *hook) { destroy(p, static_cast<Doom *>(hook)); }

// A destructor owns its block, so no release may end it.
inline bool may_be_owned(const Block *block)
{
    return block->region == nullptr || (block->region->closes && !block->region->shared);
}

inline bool retire_with(Worker &w, const Record &r, unsigned clock, Block *block, bool guarded,
                        bool hooked = false)
{
    Doom *const doom = new_doom(w, clock, r);
    doom->at = block->at;
    doom->size = block->usable;
    doom->serial = block->serial;
    doom->guarded = guarded;
    Block *const before = block;
    Model::Owned owned = w.model.remove(block); // its destructor may run in the call
    owned->state = Block::State::doomed;
    owned->doom = doom;
    Region *const region = std::exchange(owned->region, nullptr);
    w.model.insert(std::move(owned));
    if (hooked)
        ebb_retire_hooked(doom, before->at, destroy_hooked);
    if (hooked || call_retire_with(w, clock, before->at, doom) == 0) {
        w.dooms.push_back(doom);
        return true;
    }
    owned = w.model.remove(before);
    owned->state = Block::State::live;
    owned->region = region;
    w.model.insert(std::move(owned));
    return false;
}

inline void op_retire_with(Worker &w, const Record &r)
{
    const unsigned clock = pick_clock(r);
    Block *const block = w.model.pick(r.pick());
    if (block == nullptr || !may_be_owned(block) || !attach(w, clock))
        return;
    Model::check(*block);
    retire_with(w, r, clock, block, false);
}

inline void op_retire_hooked(Worker &w, const Record &r)
{
    Block *const block = w.model.pick(r.pick());
    if (block == nullptr || !may_be_owned(block))
        return;
    Model::check(*block);
    retire_with(w, r, 0, block, false, true);
}

inline bool retire(Worker &w, unsigned clock, Block *block)
{
    errno = 0;
    if (clock == 0)
        ebb_retire(block->at);
    else if (ebb_participant_retire(w.clocks[clock].me, block->at) != 0) {
        RANDOM_CHECK(w.may_be_refused() && errno == ENOMEM, "participant_retire, errno %d", errno);
        return false;
    }
    return true;
}

inline void op_retire(Worker &w, const Record &r)
{
    const unsigned clock = pick_clock(r);
    Block *const block = w.model.pick(r.pick());
    // Only ebb_retire is promised to take blocks of regions that are released before it frees them.
    if (block == nullptr || !attach(w, clock) || (clock != 0 && !may_be_owned(block)))
        return;
    Model::check(*block);
    const bool pinned = w.clocks[clock].depth > 0;
    if (!pinned) { // it may be another thread's before the call is over: not in this thread's map
        const Model::Owned owned = w.model.remove(block);
        if (!retire(w, clock, owned.get()))
            ebb_free(owned->at);
    } else if (retire(w, clock, block)) {
        block->guard = &w.clocks[clock];
        w.model.make_ghost(block, Block::State::pinned);
    }
    ebb_retire(nullptr);
}

// ---- waiting -------------------------------------------------------------------------------------

inline bool may_wait(const Worker &w) { return !w.is_pinned() && !w.is_guarding(); }

inline void require_destroyed(Worker &w, unsigned clock)
{
    std::erase_if(w.dooms, [&](const Doom *doom) {
        if (doom->clock != clock)
            return false;
        RANDOM_CHECK(doom->over || doom->era < w.run.era,
                     "the destructor of %p has not run after a barrier", doom->at);
        return true;
    });
}

inline void op_synchronize(Worker &w, const Record &r)
{
    if (!may_wait(w))
        return;
    const unsigned clock = pick_clock(r) % clock_count;
    const std::uint64_t cookie = ebb_epoch_cookie();
    ebb_collector_synchronize(clock == 0 ? nullptr : w.run.collectors[clock]);
    RANDOM_CHECK(clock != 0 || ebb_epoch_passed(cookie), "epoch %llu",
                 static_cast<unsigned long long>(cookie));
}

inline void op_barrier(Worker &w, const Record &r)
{
    if (!may_wait(w))
        return;
    const unsigned clock = pick_clock(r);
    if (clock == 0)
        r.y() % 2 == 0 ? ebb_barrier() : ebb_collector_barrier(nullptr);
    else if (attach(w, clock))
        ebb_collector_barrier(w.clocks[clock].collector);
    else
        return;
    require_destroyed(w, clock);
}

inline void op_reclaim(Worker &w, const Record &r)
{
    if (!may_wait(w))
        return;
    const unsigned clock = pick_clock(r) % clock_count;
    if (clock == 0)
        ebb_reclaim();
    else if (w.run.collectors[clock] != nullptr)
        ebb_collector_reclaim(w.run.collectors[clock]);
}

inline void op_cookie(Worker &w, const Record &)
{
    if (w.cookies.size() < 20)
        w.cookies.push_back({ebb_epoch_cookie(), w.clocks[0].depth > 0 ? w.clocks[0].serial : 0});
    for (const Cookie &cookie : w.cookies)
        RANDOM_CHECK(!ebb_epoch_passed(cookie.value) || cookie.pin == 0,
                     "epoch %llu passed inside the pin",
                     static_cast<unsigned long long>(cookie.value));
}

inline void op_reclaim_stats(Worker &w, const Record &r)
{
    ebb_reclaim_stats now;
    const unsigned clock = pick_clock(r) % clock_count;
    ebb_reclaim_stats_get(clock == 0 ? nullptr : w.run.collectors[clock], &now);
    RANDOM_CHECK(w.may_be_refused() || now.pinned >= (w.clocks[clock].depth > 0),
                 "pinned %zu, depth %u", now.pinned, w.clocks[clock].depth);
    RANDOM_CHECK(now.pinned <= now.participants || w.may_be_refused(), "pinned %zu of %zu",
                 now.pinned, now.participants);
    RANDOM_CHECK(ebb_collector_is_fenced(nullptr) == 0 || ebb_collector_is_fenced(nullptr) == 1,
                 "fenced");
}

inline void op_limit(Worker &, const Record &r)
{
    static std::atomic<std::size_t> most;
    const auto notify = [](std::size_t bytes, void *context) {
        static_cast<std::atomic<std::size_t> *>(context)->store(bytes);
    };
    ebb_reclaim_set_limit(r.number() * 16, r.x() % 3 == 0 ? nullptr : +notify, &most);
}

// ---- collectors of one thread --------------------------------------------------------------------

inline void end_own_collector(Worker &w)
{
    Clock &clock = w.clocks[own_clock];
    if (clock.collector == nullptr)
        return;
    while (clock.depth > 0)
        unpin(w, own_clock);
    ebb_collector_destroy(clock.collector);
    clock = {};
    require_destroyed(w, own_clock);
}

inline void op_collector(Worker &w, const Record &r)
{
    Clock &clock = w.clocks[own_clock];
    if (clock.collector != nullptr) {
        if (!w.is_guarding() && w.clocks[0].depth == 0) // inside a default pin: an error
            end_own_collector(w);
        return;
    }
    errno = 0;
    clock.collector = ebb_collector_create(r.x() % 2 == 0 ? 0 : EBB_COLLECTOR_FENCED);
    RANDOM_CHECK(clock.collector != nullptr || (w.may_be_refused() && errno == ENOMEM), "errno %d",
                 errno);
    if (clock.collector != nullptr && r.x() % 2 != 0)
        RANDOM_CHECK(ebb_collector_is_fenced(clock.collector) == 1, "not fenced");
    errno = 0;
    RANDOM_CHECK(ebb_collector_create(64) == nullptr && errno == EINVAL, "unknown flags");
    ebb_collector_destroy(nullptr);
}

} // namespace random_test
