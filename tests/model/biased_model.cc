// SPDX-License-Identifier: MIT OR Apache-2.0
// What only a biased clock does, under Relacy: pins without a fence, membarriers that land between
// any two operations of a reader, participants that are released and come back.
#include "stage.h"

namespace {

using model::Block;
using model::Clock;
using model::Link;
using model::Member;

// Readers that have announced the first epoch, and the block that they read.
template <unsigned readers_count> struct Stage {
    Clock clock{model::BIASED};
    Member readers[readers_count];
    Block blocks[4];
    Link link{&blocks[0]};

    template <typename... Each> explicit Stage(Each... each) : readers{Member(each)...}
    {
        for (Member &reader : readers) {
            reader.announce();
        }
    }
    void replace_and_retire(int times)
    {
        for (int i = 0; i < times; i++) {
            link.replace(&blocks[i + 1]);
            clock.retire(&blocks[i]);
        }
    }
};

struct OneReader : Stage<1> {
    static constexpr rl::thread_id_t threads = 2;
    OneReader() : Stage(&clock) {}
};

// One pin without a fence. The second block is retired when the clock may have left it behind.
struct EveryPoint : OneReader {
    void thread(unsigned index)
    {
        if (index == 0) {
            replace_and_retire(2);
        } else {
            readers[0].read(link);
        }
    }
};

// The reader pins again and again, and never asks for an epoch of its own accord.
struct Again : OneReader {
    void thread(unsigned index)
    {
        if (index == 0) {
            replace_and_retire(3);
            return;
        }
        for (int i = 0; i < 4; i++) {
            readers[0].read(link);
        }
    }
};

// The reader was idle for long, and released more than once. It comes back, announces anew, and
// then pins without a fence again.
struct ComesBack : OneReader {
    ComesBack()
    {
        for (int i = 0; i < 3; i++) {
            (void)model::advance(&clock, true);
        }
    }
    void thread(unsigned index)
    {
        if (index == 0) {
            replace_and_retire(2);
            return;
        }
        for (int i = 0; i < 3; i++) {
            readers[0].read(link);
        }
    }
};

// A nested pin, and a pin renewed, behind a pin without a fence.
struct Deeper : OneReader {
    void thread(unsigned index)
    {
        if (index == 0) {
            replace_and_retire(2);
            return;
        }
        readers[0].pin();
        const Block *block = Member::look_at(link);
        readers[0].read(link);
        block->read();
        readers[0].repin();
        Member::look_at(link);
        readers[0].unpin();
        readers[0].read(link);
    }
};

// Two that press at the same time, each for a block of its own.
struct TwoPress : Stage<1> {
    static constexpr rl::thread_id_t threads = 3;
    Block more[2];
    Link other{&more[0]};

    TwoPress() : Stage(&clock) {}
    void thread(unsigned index)
    {
        if (index == 0) {
            replace_and_retire(2);
        } else if (index == 1) {
            other.replace(&more[1]);
            clock.retire(&more[0]);
        } else {
            readers[0].read(link);
            readers[0].read(other);
            readers[0].read(link);
        }
    }
};

// Two readers: a membarrier reaches them at different moments.
struct TwoReaders : Stage<2> {
    static constexpr rl::thread_id_t threads = 3;

    TwoReaders() : Stage(&clock, &clock) {}
    void thread(unsigned index)
    {
        if (index == 0) {
            replace_and_retire(2);
            return;
        }
        readers[index - 1].read(link);
        readers[index - 1].read(link);
    }
};

// A reader that advances and retires too, between its own pins without a fence.
struct ReaderPresses : Stage<2> {
    static constexpr rl::thread_id_t threads = 2;

    ReaderPresses() : Stage(&clock, &clock) {}
    void thread(unsigned index)
    {
        Member &me = readers[index];
        me.read(link);
        me.pin();
        blocks[index + 1].fill();
        Block *old = ebbi_exchange_acq_rel(&link, &blocks[index + 1]);
        old->read();
        uint64_t stamp = clock.stamp();
        me.unpin();
        if (clock.passes(stamp)) {
            old->reuse();
        }
        me.read(link);
    }
};

// The kernel refuses membarriers from some time on: the clock becomes fenced beside the reader's pins.
struct Refused : OneReader {
    void thread(unsigned index)
    {
        if (index == 0) {
            for (int i = 0; i < 3; i++) {
                model::the_system().refuses |= rl::rand(2) == 0;
                link.replace(&blocks[i + 1]);
                clock.retire_in_time(&blocks[i]);
            }
            return;
        }
        for (int i = 0; i < 4; i++) {
            readers[0].read(link);
        }
    }
};

// Two that retire: one may find the clock that the other has turned.
struct RefusedTwo : TwoPress {
    void thread(unsigned index)
    {
        model::the_system().refuses = true;
        if (index == 0) {
            link.replace(&blocks[1]);
            clock.retire_in_time(&blocks[0]);
        } else if (index == 1) {
            other.replace(&more[1]);
            clock.retire_in_time(&more[0]);
        } else {
            readers[0].read(link);
            readers[0].read(other);
            readers[0].read(link);
        }
    }
};

const model::Scenario scenarios[] = {
    {"every_point", rl::simulate<model::Suite<EveryPoint>>},
    {"again", rl::simulate<model::Suite<Again>>},
    {"comes_back", rl::simulate<model::Suite<ComesBack>>},
    {"deeper", rl::simulate<model::Suite<Deeper>>},
    {"two_press", rl::simulate<model::Suite<TwoPress>>},
    {"two_readers", rl::simulate<model::Suite<TwoReaders>>},
    {"reader_presses", rl::simulate<model::Suite<ReaderPresses>>},
    {"refused", rl::simulate<model::Suite<Refused>>},
    {"refused_two", rl::simulate<model::Suite<RefusedTwo>>},
};

} // namespace

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
