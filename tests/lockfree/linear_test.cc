// SPDX-License-Identifier: MIT OR Apache-2.0
// Every block is linearizable in many short races; and the checker rejects what is not: forged
// histories of each kind, and a stack that is wrong on purpose.
#include <deque>
#include <map>

#include <gtest/gtest-spi.h>

#include "ebbtide/deque.h"
#include "ebbtide/map.h"
#include "ebbtide/queue.h"
#include "ebbtide/stack.h"
#include "lockfree/linear.h"
#include "lockfree/support.h"

namespace {

using linear::History;
using linear::Operation;
using linear::Recorder;
using lockfree::item;
using lockfree::number;

enum Kind { PUSH, POP, STEAL, INSERT, REPLACE, FIND, REMOVE };
constexpr std::intptr_t NONE = -1;

// ---- what each block does, one call at a time ----------------------------------------------------

template <bool pops_youngest, bool steals_oldest> struct LineSpec {
    using State = std::vector<std::uintptr_t>;
    static bool apply(State &state, const Operation &operation)
    {
        if (operation.kind == PUSH) {
            state.push_back(operation.argument);
            return true;
        }
        if (state.empty())
            return operation.result == NONE;
        const bool youngest = operation.kind == POP ? pops_youngest : !steals_oldest;
        const auto at = youngest ? state.end() - 1 : state.begin();
        const bool fits = static_cast<std::intptr_t>(*at) == operation.result;
        state.erase(at);
        return fits;
    }
};
using DequeSpec = LineSpec<true, true>;
using StackSpec = LineSpec<true, true>;
using QueueSpec = LineSpec<false, true>;

struct MapSpec {
    using State = std::map<std::uintptr_t, std::uintptr_t>;
    static bool apply(State &state, const Operation &operation)
    {
        const auto found = state.find(operation.key);
        const bool there = found != state.end();
        const std::intptr_t value = there ? static_cast<std::intptr_t>(found->second) : NONE;
        if (operation.kind == INSERT) {
            state.emplace(operation.key, operation.argument);
            return operation.result == (there ? 0 : 1);
        }
        if (operation.kind == REPLACE)
            state[operation.key] = operation.argument;
        if (operation.kind == REMOVE)
            state.erase(operation.key);
        return operation.result == value;
    }
};

// ---- the blocks ----------------------------------------------------------------------------------

struct Deque {
    Deque() : block(ebb_deque_create(0)) {}
    ~Deque() { ebb_deque_destroy(block); }
    ebb_deque *block;
};
struct Queue {
    Queue() : block(ebb_queue_create()) {}
    ~Queue() { ebb_queue_destroy(block); }
    ebb_queue *block;
};
struct Stack {
    Stack() : block(ebb_stack_create()) {}
    ~Stack() { ebb_stack_destroy(block); }
    ebb_stack *block;
};
struct Map {
    explicit Map(const ebb_map_options *options = nullptr) : block(ebb_map_create(options)) {}
    ~Map() { ebb_map_destroy(block); }
    ebb_map *block;
};

// All of its keys have one hash.
const ebb_map_options one_hash = {[](std::uint64_t, void *) { return std::uint64_t{42}; },
                                  [](std::uint64_t a, std::uint64_t b, void *) { return a == b; },
                                  nullptr, nullptr};
struct MapOfOneHash : Map {
    MapOfOneHash() : Map(&one_hash) {}
};

std::intptr_t value_of(bool found, void *got)
{
    return found ? static_cast<std::intptr_t>(number(got)) : NONE;
}

std::uintptr_t fresh_item(unsigned thread, unsigned index) { return thread * 100 + index + 1; }

unsigned choose(unsigned below)
{
    static std::atomic<std::uint64_t> seed{0};
    thread_local support::Random random(seed.fetch_add(1));
    return static_cast<unsigned>(random.below(below));
}

// A steal that lost its race has done nothing: it is tried again within the same call.
std::intptr_t steal(ebb_deque *deque)
{
    void *got = nullptr;
    ebb_steal result;
    do {
        result = ebb_deque_steal(deque, &got);
    } while (result == EBB_STEAL_RETRY);
    return value_of(result == EBB_STEAL_SUCCESS, got);
}

void deque_step(Deque &deque, unsigned thread, unsigned index, Recorder &recorder)
{
    void *got = nullptr;
    if (thread != 0) {
        recorder.record(STEAL, 0, 0, [&] { return steal(deque.block); });
    } else if (choose(2) == 0) {
        const std::uintptr_t value = fresh_item(thread, index);
        recorder.record(PUSH, 0, value, [&] { return ebb_deque_push(deque.block, item(value)); });
    } else {
        recorder.record(POP, 0, 0, [&] {
            const bool found = ebb_deque_pop(deque.block, &got);
            return value_of(found, got);
        });
    }
}

template <typename Block, auto push, auto pop>
void line_step(Block &line, unsigned thread, unsigned index, Recorder &recorder)
{
    void *got = nullptr;
    if (choose(2) == 0) {
        const std::uintptr_t value = fresh_item(thread, index);
        recorder.record(PUSH, 0, value, [&] { return push(line.block, item(value)); });
    } else {
        recorder.record(POP, 0, 0, [&] {
            const bool found = pop(line.block, &got);
            return value_of(found, got);
        });
    }
}

void map_step(Map &map, unsigned thread, unsigned index, Recorder &recorder)
{
    const std::uint64_t key = choose(2);
    const std::uintptr_t value = fresh_item(thread, index);
    void *got = nullptr;
    switch (choose(4)) {
    case 0:
        recorder.record(INSERT, key, value,
                        [&] { return ebb_map_insert(map.block, key, item(value)); });
        break;
    case 1:
        recorder.record(REPLACE, key, value, [&] {
            const bool found = ebb_map_replace(map.block, key, item(value), &got) == 0;
            return value_of(found, got);
        });
        break;
    case 2:
        recorder.record(FIND, key, 0, [&] {
            const bool found = ebb_map_find(map.block, key, &got);
            return value_of(found, got);
        });
        break;
    default:
        recorder.record(REMOVE, key, 0, [&] {
            const bool found = ebb_map_remove(map.block, key, &got);
            return value_of(found, got);
        });
    }
}

constexpr unsigned threads = 3;
constexpr unsigned steps = 4;

std::size_t rounds() { return support::scaled(20000); }

// Without calls that overlap nothing was tested.
void expect_overlap(std::size_t overlapped) { EXPECT_GT(overlapped, 0U); }

TEST(Linearizable, Deque)
{
    expect_overlap(linear::play<DequeSpec, Deque>(rounds(), threads, steps, deque_step));
}

TEST(Linearizable, Queue)
{
    expect_overlap(linear::play<QueueSpec, Queue>(rounds(), threads, steps,
                                                  line_step<Queue, ebb_queue_push, ebb_queue_pop>));
}

TEST(Linearizable, Stack)
{
    expect_overlap(linear::play<StackSpec, Stack>(rounds(), threads, steps,
                                                  line_step<Stack, ebb_stack_push, ebb_stack_pop>));
}

TEST(Linearizable, Map)
{
    expect_overlap(linear::play<MapSpec, Map>(rounds(), threads, steps, map_step));
    expect_overlap(linear::play<MapSpec, MapOfOneHash>(rounds(), threads, steps, map_step));
}

// ---- negative controls ---------------------------------------------------------------------------

// {kind, argument, key, result, called, returned}
TEST(Forged, IsRejected)
{
    const History doubled = {{PUSH, 1, 0, 0, 0, 1}, {POP, 0, 0, 1, 2, 5}, {STEAL, 0, 0, 1, 3, 4}};
    EXPECT_FALSE(linear::is_linearizable<DequeSpec>(doubled));
    EXPECT_FALSE(linear::is_linearizable<QueueSpec>(doubled));
    const History lost = {{PUSH, 1, 0, 0, 0, 1}, {POP, 0, 0, NONE, 2, 3}};
    EXPECT_FALSE(linear::is_linearizable<DequeSpec>(lost));
    EXPECT_FALSE(linear::is_linearizable<QueueSpec>(lost));
    EXPECT_FALSE(linear::is_linearizable<StackSpec>(lost));
    const History pair = {{PUSH, 1, 0, 0, 0, 1}, {PUSH, 2, 0, 0, 2, 3}, {POP, 0, 0, 2, 4, 5}};
    EXPECT_FALSE(linear::is_linearizable<QueueSpec>(pair));
    EXPECT_TRUE(linear::is_linearizable<StackSpec>(pair));
    const History stale = {
        {INSERT, 7, 1, 1, 0, 1}, {REPLACE, 8, 1, 7, 2, 3}, {FIND, 0, 1, 7, 4, 5}};
    EXPECT_FALSE(linear::is_linearizable<MapSpec>(stale));
    const History gap = {
        {INSERT, 7, 1, 1, 0, 1}, {REPLACE, 8, 1, 7, 2, 5}, {FIND, 0, 1, NONE, 3, 4}};
    EXPECT_FALSE(linear::is_linearizable<MapSpec>(gap));
}

TEST(Forged, IsAcceptedWhereTheCallsOverlap)
{
    const History late = {{PUSH, 1, 0, 0, 0, 3}, {POP, 0, 0, NONE, 1, 2}};
    EXPECT_TRUE(linear::is_linearizable<QueueSpec>(late));
    const History either = {
        {INSERT, 7, 1, 1, 0, 1}, {REPLACE, 8, 1, 7, 2, 5}, {FIND, 0, 1, 7, 3, 4}};
    EXPECT_TRUE(linear::is_linearizable<MapSpec>(either));
}

// Reads and writes its top in two steps.
struct TornStack {
    struct Node {
        Node *next;
        std::uintptr_t value;
    };
    std::atomic<Node *> top{nullptr};
    std::array<Node, 32> nodes{};
    std::atomic<unsigned> used{0};

    static std::intptr_t push(TornStack &stack, std::uintptr_t value)
    {
        Node &node = stack.nodes[stack.used.fetch_add(1)];
        node = {stack.top.load(), value};
        std::this_thread::yield();
        stack.top.store(&node);
        return 0;
    }
    static std::intptr_t pop(TornStack &stack)
    {
        Node *node = stack.top.load();
        std::this_thread::yield();
        if (node == nullptr)
            return NONE;
        stack.top.store(node->next);
        return static_cast<std::intptr_t>(node->value);
    }
};

// The recorder's histories, not only forged ones, show the fault.
TEST(Forged, ATornStackIsFoundOut)
{
    auto step = [](TornStack &stack, unsigned thread, unsigned index, Recorder &recorder) {
        const std::uintptr_t value = fresh_item(thread, index);
        if (choose(2) == 0)
            recorder.record(PUSH, 0, value, [&] { return TornStack::push(stack, value); });
        else
            recorder.record(POP, 0, 0, [&] { return TornStack::pop(stack); });
    };
    EXPECT_NONFATAL_FAILURE((linear::play<StackSpec, TornStack>(2000, threads, steps, step)),
                            "is not linearizable");
}

} // namespace
