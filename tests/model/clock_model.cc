// SPDX-License-Identifier: MIT OR Apache-2.0
// The epoch clock: src/epoch/clock.c and ebbtide/detail/pin.h as they are, under Relacy, fenced and
// biased.
#include "stage.h"

namespace {

using model::Block;
using model::Clock;
using model::Link;
using model::Member;
using model::Mode;

// One thread replaces the linked block twice; two read.
template <Mode mode> struct OneWriter {
    static constexpr rl::thread_id_t threads = 3;
    Clock clock{mode};
    Member readers[2]{Member(&clock), Member(&clock)};
    Block blocks[3];
    Link link{&blocks[0]};

    void thread(unsigned index)
    {
        if (index > 0) {
            readers[index - 1].read(link);
            readers[index - 1].read(link);
            return;
        }
        for (int i = 0; i < 2; i++) {
            link.replace(&blocks[i + 1]);
            clock.retire(&blocks[i]);
        }
    }
};

// Two threads replace the linked block, and read what they unlink under their own pin.
template <Mode mode> struct TwoWriters {
    static constexpr rl::thread_id_t threads = 3;
    Clock clock{mode};
    Member members[3]{Member(&clock), Member(&clock), Member(&clock)};
    Block first, fresh[2];
    Link link{&first};

    void thread(unsigned index)
    {
        Member &me = members[index];
        if (index == 2) {
            me.read(link);
            return;
        }
        me.pin();
        fresh[index].fill();
        Block *old = ebbi_exchange_acq_rel(&link, &fresh[index]);
        old->read();
        bool early = rl::rand(2) == 0;
        uint64_t stamp = early ? clock.stamp() : 0; // inside of the pin or behind it
        me.unpin();
        if (clock.passes(early ? stamp : clock.stamp())) {
            old->reuse();
        }
    }
};

// The reader goes on reading after an inner pin has ended.
template <Mode mode> struct Nested {
    static constexpr rl::thread_id_t threads = 2;
    Clock clock{mode};
    Member reader{&clock};
    Block blocks[3];
    Link link{&blocks[0]};

    void thread(unsigned index)
    {
        if (index == 0) {
            for (int i = 0; i < 2; i++) {
                link.replace(&blocks[i + 1]);
                clock.retire(&blocks[i]);
            }
            return;
        }
        reader.pin();
        const Block *block = Member::look_at(link);
        reader.pin();
        Member::look_at(link);
        reader.unpin();
        block->read();
        reader.unpin();
    }
};

// The reader renews its pin between the blocks.
template <Mode mode> struct Repin {
    static constexpr rl::thread_id_t threads = 2;
    Clock clock{mode};
    Member reader{&clock};
    Block blocks[4];
    Link link{&blocks[0]};

    void thread(unsigned index)
    {
        if (index == 0) {
            for (int i = 0; i < 3; i++) {
                link.replace(&blocks[i + 1]);
                clock.retire(&blocks[i]);
            }
            return;
        }
        reader.pin();
        for (int i = 0; i < 3; i++) {
            Member::look_at(link);
            reader.repin();
        }
        Member::look_at(link);
        reader.unpin();
    }
};

// A thread ends, perhaps inside its pin, and leaves a retired block to the others.
template <Mode mode> struct Leave {
    static constexpr rl::thread_id_t threads = 3;
    Clock clock{mode};
    Member reader{&clock}, leaver{&clock};
    Block blocks[2], next[2];
    Link links[2]{Link(&blocks[0]), Link(&blocks[1])};
    struct ebbi_lock lock;
    Block *orphan = nullptr; // under the lock
    uint64_t orphan_stamp = 0;

    void thread(unsigned index)
    {
        if (index == 0) {
            links[0].replace(&next[0]);
            clock.retire(&blocks[0]);
            adopt();
        } else if (index == 1) {
            leave();
        } else {
            reader.read(links[1]);
            reader.read(links[0]);
        }
    }

    void leave()
    {
        leaver.pin();
        Member::look_at(links[0]);
        links[1].replace(&next[1]);
        if (rl::rand(2) == 0) {
            leaver.unpin();
        }
        if (model::is_mutant("free_at_exit")) {
            blocks[1].reuse();
        } else {
            ebbi_lock_take(&lock);
            orphan_stamp = clock.stamp();
            orphan = &blocks[1];
            ebbi_lock_drop(&lock);
        }
        leaver.end();
    }

    void adopt()
    {
        for (int tries = 0; tries < 3; tries++) {
            (void)model::advance(&clock, true);
            ebbi_lock_take(&lock);
            if (orphan != nullptr && ebbi_clock_passed(&clock, orphan_stamp)) {
                std::exchange(orphan, nullptr)->reuse();
            }
            ebbi_lock_drop(&lock);
        }
    }
};

// Threads that begin while the clock goes on.
template <Mode mode> struct Join {
    static constexpr rl::thread_id_t threads = 3;
    Clock clock{mode};
    Block blocks[3];
    Link link{&blocks[0]};

    void thread(unsigned index)
    {
        if (index == 0) {
            for (int i = 0; i < 2; i++) {
                link.replace(&blocks[i + 1]);
                clock.retire(&blocks[i]);
            }
            return;
        }
        Member me(&clock);
        me.read(link);
    }
};

// A signal handler pins, anywhere within the pins, the repin and the unpins of its thread.
template <Mode mode> struct Signal {
    static constexpr rl::thread_id_t threads = 2;
    Clock clock{mode};
    Member reader{&clock};
    Block blocks[4];
    Link link{&blocks[0]};

    Signal() { reader.announce(); }
    static void handle(void *context)
    {
        auto *world = static_cast<Signal *>(context);
        world->reader.read(world->link);
    }
    void thread(unsigned index)
    {
        if (index == 0) {
            for (int i = 0; i < 3; i++) {
                link.replace(&blocks[i + 1]);
                clock.retire(&blocks[i]);
            }
            return;
        }
        for (int i = 0; i < 2; i++) {
            model::interrupt() = {index, handle, this};
            reader.pin();
            Member::look_at(link);
            reader.repin();
            Member::look_at(link);
            reader.unpin();
            reader.read(link);
        }
        model::interrupt().handler = nullptr;
    }
};

const model::Scenario scenarios[] = {
    {"one_writer", rl::simulate<model::Suite<OneWriter<model::FENCED>>>},
    {"one_writer_biased", rl::simulate<model::Suite<OneWriter<model::BIASED>>>},
    {"two_writers", rl::simulate<model::Suite<TwoWriters<model::FENCED>>>},
    {"two_writers_biased", rl::simulate<model::Suite<TwoWriters<model::BIASED>>>},
    {"nested", rl::simulate<model::Suite<Nested<model::FENCED>>>},
    {"nested_biased", rl::simulate<model::Suite<Nested<model::BIASED>>>},
    {"repin", rl::simulate<model::Suite<Repin<model::FENCED>>>},
    {"repin_biased", rl::simulate<model::Suite<Repin<model::BIASED>>>},
    {"leave", rl::simulate<model::Suite<Leave<model::FENCED>>>},
    {"leave_biased", rl::simulate<model::Suite<Leave<model::BIASED>>>},
    {"join", rl::simulate<model::Suite<Join<model::FENCED>>>},
    {"join_biased", rl::simulate<model::Suite<Join<model::BIASED>>>},
    {"signal", rl::simulate<model::Suite<Signal<model::FENCED>>>},
    {"signal_biased", rl::simulate<model::Suite<Signal<model::BIASED>>>},
};

} // namespace

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
