// SPDX-License-Identifier: MIT OR Apache-2.0
// The work-stealing deque: ebbtide/deque.h and lockfree/deque.c as they are, under Relacy, their old
// buffers retired by the library's clock. Every item is to be taken once, by somebody who sees what
// the owner wrote into it.
#include "stage.h"

#include <memory>

#include "lockfree/deque.c"

namespace {

using model::Block;
using model::Clock;
using model::Member;

using Slot = model::Atomic<void *>;

// The memory of one buffer, with its slots made and destroyed as objects.
struct Memory {
    Slot *slots = nullptr;
    size_t count = 0;
    alignas(64) unsigned char place[sizeof(struct ebb_deque_buffer) + 32 * sizeof(Slot)];

    void *make(size_t bytes)
    {
        count = (bytes - sizeof(struct ebb_deque_buffer)) / sizeof(Slot);
        RL_ASSERT(slots == nullptr && count <= 32);
        slots = reinterpret_cast<Slot *>(place + sizeof(struct ebb_deque_buffer));
        for (size_t i = 0; i < count; i++) {
            new (&slots[i]) Slot;
        }
        return new (place) ebb_deque_buffer;
    }
    void end()
    {
        std::destroy_n(slots, count);
        count = 0;
        slots = nullptr;
        model::reclaimed()++;
    }
};

struct Deque {
    static constexpr rl::thread_id_t threads = 3;
    static constexpr unsigned items = 6;
    Clock clock;
    Member members[threads]{Member(&clock), Member(&clock), Member(&clock)};
    Memory buffers[4];
    Block blocks[items];
    unsigned pushed = 0, taken[items] = {};
    alignas(128) unsigned char place[sizeof(struct ebb_deque)];
    struct ebb_deque *deque;

    static Deque *&current()
    {
        static Deque *deque = nullptr;
        return deque;
    }
    static Member &self() { return current()->members[rl::thread_index()]; }

    explicit Deque(model::Mode mode) : clock(mode)
    {
        current() = this;
        deque = ebb_deque_create(1);
        (void)resize(deque, 0, 0, 2); // small, so that it grows soon
    }
    ~Deque()
    {
        while (pop()) {
        }
        for (unsigned i = 0; i < pushed; i++) {
            RL_ASSERT(taken[i] == 1);
        }
        ebb_deque_destroy(deque);
        for (Memory &buffer : buffers) {
            if (buffer.slots != nullptr) {
                buffer.end(); // still waits for its time
            }
        }
    }

    void push()
    {
        blocks[pushed].fill();
        (void)ebb_deque_push(deque, &blocks[pushed++]);
    }
    bool pop()
    {
        void *item = nullptr;
        return ebb_deque_pop(deque, &item) && take(item);
    }
    void steal()
    {
        void *item = nullptr;
        for (int tries = 0; tries < 2; tries++) {
            enum ebb_steal result = ebb_deque_steal(deque, &item);
            if (result != EBB_STEAL_RETRY) {
                (void)(result == EBB_STEAL_SUCCESS && take(item));
                return;
            }
        }
    }
    bool take(void *item)
    {
        auto *block = static_cast<Block *>(item);
        block->read();
        RL_ASSERT(++taken[block - blocks] == 1);
        block->reuse();
        return true;
    }
};

// Two items for their owner and two thieves, then one.
template <model::Mode mode> struct LastItem : Deque {
    LastItem() : Deque(mode)
    {
        push();
        push();
    }
    void thread(unsigned index)
    {
        if (index == 0) {
            (void)pop();
            (void)pop();
            push();
            (void)pop();
        } else {
            steal();
            steal();
        }
    }
};

// The buffer of two slots grows, twice perhaps, while the thieves are at it.
template <model::Mode mode> struct Growth : Deque {
    Growth() : Deque(mode) { push(); }
    void thread(unsigned index)
    {
        if (index > 0) {
            steal();
            steal();
            return;
        }
        for (int i = 0; i < 4; i++) {
            push();
        }
        (void)pop();
        push();
    }
};

const model::Scenario scenarios[] = {
    {"deque_last_item", rl::simulate<model::Suite<LastItem<model::FENCED>>>},
    {"deque_growth", rl::simulate<model::Suite<Growth<model::FENCED>>>},
    {"deque_growth_biased", rl::simulate<model::Suite<Growth<model::BIASED>>>},
};

} // namespace

void ebb_pin(void) { Deque::self().pin(); }
void ebb_unpin(void) { Deque::self().unpin(); }

void ebb_retire(void *p)
{
    Deque &world = *Deque::current();
    for (Memory &buffer : world.buffers) {
        if (buffer.place == p &&
            (model::is_mutant("growth_frees_at_once") || world.clock.passes(world.clock.stamp()))) {
            buffer.end();
        }
    }
}

void *ebb_malloc(size_t bytes)
{
    for (Memory &buffer : Deque::current()->buffers) {
        if (buffer.slots == nullptr) {
            return buffer.make(bytes);
        }
    }
    return nullptr;
}

void *ebb_aligned_alloc(size_t, size_t) { return new (Deque::current()->place) ebb_deque; }

void ebb_free(void *p)
{
    Deque &world = *Deque::current();
    if (p == world.place) {
        world.deque->~ebb_deque();
    }
    for (Memory &buffer : world.buffers) {
        if (buffer.place == p) {
            buffer.end();
        }
    }
}

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
