// SPDX-License-Identifier: MIT OR Apache-2.0
// Parking: src/heap/park.c and the fast malloc and free as they are, under Relacy. Threads allocate,
// write and free while passes park them and send home what their magazines hold. Who has a block writes
// into it, so a block with two owners is a data race; at the end every block is in one place.
#include "park_stage.h"

#include "heap/park.c"

#define ebbi_cursor_take(cursor, bytes) ((bytes), nullptr) // of regions
struct ebb_region {
    int own;
};
#include "front/fast.h"

namespace {

constexpr unsigned heaps_count = 2, blocks_count = 3, room = 6;

struct Block {
    rl::var<int> contents;
    int places = 0; // where it lies, at the end
    bool kept = false;
    void write() { contents($) = 1; }
};

struct Place {
    struct ebbi_heap heap;
    Own<struct ebbi_fast *> source;
    ebbi_slot slots[room + 2]; // free looks at what lies below the sentinel
    Block blocks[blocks_count];
};

struct Stage;
Stage *the_stage;

struct Stage {
    const unsigned passers; // the first threads; those behind have heaps
    Place places[heaps_count];
    ebbi_slot nothing[4];
    Block *home[heaps_count * blocks_count];
    unsigned home_count = 0;

    Stage(unsigned passers_count, unsigned heaps) : passers(passers_count)
    {
        the_stage = this;
        for (auto bin = 0; bin < EBBI_TAG_COUNT; bin++) {
            ebbi_heap_parked.top[bin] = ebbi_heap_parked.limit[bin] = &nothing[3];
        }
        for (Place &place : places) {
            set(place);
        }
        for (unsigned i = heaps; i < heaps_count; i++) {
            places[i].heap.slot = nullptr; // nobody's
        }
    }
    static void set(Place &place)
    {
        struct ebbi_heap &heap = place.heap;
        ebbi_slot *base = &place.slots[2];
        heap.magazines[1] = {base, room, 0, 0, 1};
        for (unsigned i = 0; i < blocks_count; i++) {
            place.blocks[i].write();
            base[1 + i] = &place.blocks[i];
        }
        heap.fast.top[1] = base + 1 + blocks_count;
        heap.fast.limit[1] = base + room;
        heap.charged($) = 1;
        heap.lends($) = 0;
        heap.slot = &place.source;
        place.source = &heap.fast;
    }
    // A block that a thread has kept is in no other place.
    ~Stage()
    {
        for (unsigned i = 0; i < home_count; i++) {
            home[i]->places++;
        }
        for (Place &place : places) {
            const struct ebbi_magazine &m = place.heap.magazines[1];
            for (ebbi_slot *at = m.base + 1 + m.stolen; at < place.heap.fast.top[1]; at++) {
                static_cast<Block *>(static_cast<void *>(*at))->places++;
            }
        }
        for (Place &place : places) {
            for (Block &block : place.blocks) {
                RL_ASSERT(block.places == (block.kept ? 0 : 1));
            }
        }
    }
    Place &mine() { return places[rl::thread_index() - passers]; }
};

// The pop believes its first look at the source.
void *malloc_with_one_look(size_t bytes)
{
    struct ebbi_fast *heap = ebbi_source_now();
    ebbi_slot *top = heap->top[1];
    void *block = top[-1];
    if (block == NULL) {
        return ebbi_malloc_empty(bytes, 0);
    }
    ebbi_store_relaxed(&heap->top[1], top - 1);
    return block;
}

// It takes what it may no more have, and lets nobody know.
void *malloc_that_keeps(size_t bytes)
{
    struct ebbi_fast *heap = ebbi_source_now();
    void *block = malloc_with_one_look(bytes);
    if (ebbi_source_now() != heap) {
        return ebbi_malloc_empty(bytes, 0);
    }
    return block;
}

void *malloc_as_it_is(size_t bytes) { return ebbi_malloc(bytes, EBBI_BY_MALLOC); }

void *take()
{
    static const auto chosen = model::is_mutant("malloc_with_one_look") ? malloc_with_one_look
                               : model::is_mutant("malloc_that_keeps")  ? malloc_that_keeps
                                                                        : malloc_as_it_is;
    auto *block = static_cast<Block *>(chosen(16));
    if (block != nullptr) {
        block->write();
    }
    return block;
}

void keep(void *block)
{
    if (block != nullptr) {
        static_cast<Block *>(block)->kept = true;
    }
}

void give(void *block)
{
    if (block != nullptr) {
        static_cast<Block *>(block)->write();
        ebbi_free(block, EBBI_BY_MALLOC);
    }
}

void pass()
{
    size_t came_home = 0;
    (void)(model::is_mutant("passes_meet") ? park_pass : ebbi_park_pass)(&came_home);
    model::reclaimed() += came_home / 16;
}

// One call at the time when its heap is parked, or emptied.
struct Under : Stage {
    static constexpr rl::thread_id_t threads = 2;
    void *held[2];

    // Two blocks are taken; the last to be taken comes back first, into another slot.
    explicit Under(bool free) : Stage(1, 1), held{}
    {
        Place &place = places[0];
        for (unsigned i = 0; free && i < 2; i++) {
            ebbi_slot *top = place.heap.fast.top[1];
            held[i] = top[-1];
            keep(i == 0 ? nullptr : held[i]);
            place.heap.fast.top[1] = top - 1;
        }
    }
    void thread(unsigned index)
    {
        if (index == 0) {
            pass();
            pass();
        } else if (held[0] == nullptr) {
            keep(take());
        } else {
            give(held[0]);
            keep(take());
        }
    }
};

struct UnderMalloc : Under {
    UnderMalloc() : Under(false) {}
};

struct UnderFree : Under {
    UnderFree() : Under(true) {}
};

// A slow call that began before.
struct UnderSlow : Under {
    UnderSlow() : Under(false) {}
    void thread(unsigned index)
    {
        if (index == 0) {
            pass();
            pass();
        } else {
            keep(ebbi_malloc_empty(16, 0));
        }
    }
};

// Threads that come and go beside two passes and a half.
struct Sleeper : Stage {
    static constexpr rl::thread_id_t threads = 3;
    Sleeper() : Stage(1, 2) {}
    void thread(unsigned index)
    {
        if (index == 0) {
            pass();
            pass();
            pass();
        } else if (index == 1) {
            void *block = take();
            give(block);
            block = take();
            give(block);
        } else {
            void *first = take();
            void *second = take();
            give(first);
            give(second);
        }
    }
};

// The helper's passes, and those of a trim.
struct TwoPasses : Stage {
    static constexpr rl::thread_id_t threads = 3;
    TwoPasses() : Stage(2, 1) {}
    void thread(unsigned index)
    {
        if (index < 2) {
            pass();
            pass();
        } else {
            void *block = take();
            void *other = take();
            give(block);
            give(other);
        }
    }
};

const model::Scenario scenarios[] = {
    {"park_under_malloc", rl::simulate<model::Suite<UnderMalloc>>},
    {"park_under_free", rl::simulate<model::Suite<UnderFree>>},
    {"park_under_slow", rl::simulate<model::Suite<UnderSlow>>},
    {"park_sleeper", rl::simulate<model::Suite<Sleeper>>},
    {"park_two_passes", rl::simulate<model::Suite<TwoPasses>>},
};

} // namespace

struct ebbi_fast *ebbi_current(void) { return &the_stage->mine().heap.fast; }
Own<struct ebbi_fast *> &source_of_thread() { return the_stage->mine().source; }

// As an array that changes its size.
static void charge(struct ebbi_heap *heap)
{
    RL_ASSERT(heap->lends($) == 0);
    heap->charged($) += 1;
}

void *ebbi_malloc_empty(size_t, ebbi_site)
{
    struct ebbi_heap *heap = ebbi_inside();
    charge(heap);
    ebbi_slot *top = heap->fast.top[1];
    void *block = top[-1];
    if (block != NULL) {
        ebbi_store_relaxed(&heap->fast.top[1], top - 1);
    }
    ebbi_outside(heap);
    return block;
}

void ebbi_free_slow(void *p, ebbi_site)
{
    struct ebbi_heap *heap = ebbi_inside();
    charge(heap);
    ebbi_slot *top = heap->fast.top[1];
    RL_ASSERT(top < heap->magazines[1].base + room);
    ebbi_store_relaxed(top, p);
    ebbi_store_relaxed(&heap->fast.top[1], top + 1);
    ebbi_outside(heap);
}

void ebbi_give_blocks(struct ebbi_owner *, ebbi_slot *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        auto *block = static_cast<Block *>(static_cast<void *>(blocks[i]));
        block->write();
        the_stage->home[the_stage->home_count++] = block;
    }
}

// All of an array, or nothing.
void ebbi_flush_quiet(struct ebbi_heap *heap)
{
    if (rl::rand(2) == 0) {
        ebbi_lock_take(&heap->own.lock);
        ebbi_slot *first = heap->magazines[1].base + 1, *top = heap->fast.top[1];
        ebbi_give_blocks(NULL, first, static_cast<size_t>(top - first));
        ebbi_store_relaxed(&heap->fast.top[1], first);
        ebbi_lock_drop(&heap->own.lock);
    }
}

// The second walk of a pass takes what lies below the top now.
static void note_late(struct ebbi_heap *heap)
{
    struct ebbi_magazine *m = &heap->magazines[1];
    ebbi_slot *top = ebbi_load_relaxed(&heap->fast.top[1]);
    m->noted = static_cast<uint16_t>(top - (m->base + 1));
}

void ebbi_heaps_each(void (*visit)(struct ebbi_heap *heap, void *context), void *context)
{
    for (Place &place : the_stage->places) {
        ebbi_lock_take(&place.heap.own.lock);
        if (visit == empty && model::is_mutant("noted_late")) {
            note_late(&place.heap);
        }
        visit(&place.heap, context);
        ebbi_lock_drop(&place.heap.own.lock);
    }
}

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
