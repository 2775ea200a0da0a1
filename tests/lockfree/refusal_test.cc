// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory refused: -1 with ENOMEM, nothing changed, and all well again afterwards. The linker sends the
// blocks' calls (--wrap) through the functions here, which refuse from the n-th call on.
#include <cerrno>

#include "ebbtide/lockfree.hpp"
#include "lockfree/support.h"

namespace {

constexpr std::size_t never = SIZE_MAX;
std::size_t calls_left = never;

bool refuse()
{
    if (calls_left == never)
        return false;
    if (calls_left > 0) {
        calls_left--;
        return false;
    }
    errno = ENOMEM;
    return true;
}

} // namespace

extern "C" {
void *__real_ebb_malloc(std::size_t bytes);
void *__real_ebb_calloc(std::size_t count, std::size_t size);
void *__real_ebb_aligned_alloc(std::size_t align, std::size_t bytes);
int __real_ebb_retire_with(void *p, void (*destroy)(void *, void *), void *context);

void *__wrap_ebb_malloc(std::size_t bytes) { return refuse() ? nullptr : __real_ebb_malloc(bytes); }
void *__wrap_ebb_calloc(std::size_t count, std::size_t size)
{
    return refuse() ? nullptr : __real_ebb_calloc(count, size);
}
void *__wrap_ebb_aligned_alloc(std::size_t align, std::size_t bytes)
{
    return refuse() ? nullptr : __real_ebb_aligned_alloc(align, bytes);
}
int __wrap_ebb_retire_with(void *p, void (*destroy)(void *, void *), void *context)
{
    return refuse() ? -1 : __real_ebb_retire_with(p, destroy, context);
}
}

namespace {

using lockfree::item;
using lockfree::number;

class Refusal : public testing::Test {
protected:
    ~Refusal() override { calls_left = never; }
};

// Refuses the first, the second ... call of a creation until it succeeds; each time nothing is left.
template <typename Create, typename Destroy>
void expect_creation_refused(std::size_t calls, Create create, Destroy destroy)
{
    for (std::size_t n = 0; n < calls; n++) {
        calls_left = n;
        errno = 0;
        EXPECT_EQ(create(), nullptr) << "at call " << n;
        EXPECT_EQ(errno, ENOMEM);
    }
    calls_left = calls;
    auto *created = create();
    EXPECT_NE(created, nullptr);
    destroy(created);
}

TEST_F(Refusal, OfCreation)
{
    expect_creation_refused(
        2, [] { return ebb_deque_create(0); }, ebb_deque_destroy);
    expect_creation_refused(2, ebb_queue_create, ebb_queue_destroy);
    expect_creation_refused(1, ebb_stack_create, ebb_stack_destroy);
    expect_creation_refused(
        2, [] { return ebb_map_create(nullptr); }, ebb_map_destroy);
}

TEST_F(Refusal, LeavesTheDequeAsItWas)
{
    ebb_deque *deque = ebb_deque_create(32);
    void *got;
    for (std::uintptr_t i = 0; i < 32; i++)
        ASSERT_EQ(ebb_deque_push(deque, item(i)), 0);
    calls_left = 0;
    errno = 0;
    EXPECT_EQ(ebb_deque_push(deque, item(99)), -1);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(ebb_deque_size(deque), 32U);
    ASSERT_EQ(ebb_deque_steal(deque, &got), EBB_STEAL_SUCCESS);
    EXPECT_EQ(got, item(0));
    EXPECT_EQ(ebb_deque_push(deque, item(32)), 0); // there is room again
    calls_left = never;
    EXPECT_EQ(ebb_deque_push(deque, item(33)), 0);
    calls_left = 0;
    for (std::uintptr_t i = 33; i >= 1; i--) {
        ASSERT_TRUE(ebb_deque_pop(deque, &got));
        ASSERT_EQ(got, item(i));
    }
    EXPECT_EQ(ebb_deque_shrink(deque), -1);
    EXPECT_EQ(ebb_deque_push(deque, item(1)), 0);
    ebb_deque_destroy(deque);
}

TEST_F(Refusal, LeavesTheQueueAsItWas)
{
    ebb_queue *queue = ebb_queue_create();
    std::uintptr_t pushed = 0;
    calls_left = 0;
    while (ebb_queue_push(queue, item(pushed)) == 0)
        pushed++;
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_GT(pushed, 0U);
    EXPECT_EQ(ebb_queue_size(queue), pushed);
    EXPECT_EQ(ebb_queue_push(queue, item(pushed)), -1);
    calls_left = never;
    ASSERT_EQ(ebb_queue_push(queue, item(pushed++)), 0);
    void *got;
    for (std::uintptr_t i = 0; i < pushed; i++) {
        ASSERT_TRUE(ebb_queue_pop(queue, &got));
        ASSERT_EQ(got, item(i));
    }
    EXPECT_FALSE(ebb_queue_pop(queue, &got));
    ebb_queue_destroy(queue);
}

TEST_F(Refusal, LeavesTheStackAsItWas)
{
    ebb_stack *stack = ebb_stack_create();
    ASSERT_EQ(ebb_stack_push(stack, item(1)), 0);
    calls_left = 0;
    EXPECT_EQ(ebb_stack_push(stack, item(2)), -1);
    EXPECT_EQ(errno, ENOMEM);
    calls_left = never;
    void *got;
    ASSERT_TRUE(ebb_stack_pop(stack, &got));
    EXPECT_EQ(got, item(1));
    EXPECT_TRUE(ebb_stack_is_empty(stack));
    ebb_stack_destroy(stack);
}

// Entries need memory; tables and bucket nodes are only for speed.
TEST_F(Refusal, LeavesTheMapAsItWas)
{
    ebb_map *map = ebb_map_create(nullptr);
    for (std::uint64_t key = 0; key < 1000; key++) {
        calls_left = 0;
        errno = 0;
        ASSERT_EQ(ebb_map_insert(map, key, item(key)), -1);
        ASSERT_EQ(ebb_map_replace(map, key, item(key), nullptr), -1);
        ASSERT_EQ(errno, ENOMEM);
        ASSERT_FALSE(ebb_map_find(map, key, nullptr));
        calls_left = 1;
        errno = 0;
        ASSERT_EQ(ebb_map_insert(map, key, item(key)), 1);
    }
    EXPECT_EQ(ebb_map_size(map), 1000U);
    calls_left = 0;
    void *got;
    for (std::uint64_t key = 0; key < 1000; key++) {
        ASSERT_TRUE(ebb_map_find(map, key, &got));
        ASSERT_EQ(got, item(key));
    }
    calls_left = never;
    for (std::uint64_t key = 0; key < 2000; key++)
        ASSERT_EQ(ebb_map_replace(map, key, item(key), nullptr), key < 1000 ? 0 : 1);
    ebb_map_destroy(map);
}

// The C++ faces: a value's own block is allowed, the next one is refused. The first pushes may do without.
template <typename Push> void expect_value_back(Push push)
{
    for (int i = 0; i < 1000; i++) {
        auto value = std::make_unique<int>(i);
        int *const held = value.get();
        calls_left = static_cast<std::size_t>(i % 2);
        bool refused = false;
        try {
            push(i, std::move(value));
        } catch (const std::bad_alloc &) {
            refused = true;
        }
        const bool was_first = calls_left == 0 && i % 2 == 0;
        calls_left = never;
        ASSERT_EQ(refused ? held : nullptr, value.get()) << i;
        ASSERT_TRUE(refused || !was_first) << i;
        if (refused && i % 2 == 1)
            return;
    }
    ADD_FAILURE() << "nothing but values' own blocks was refused";
}

TEST_F(Refusal, GivesBackWhatWasMovedIn)
{
    using Value = std::unique_ptr<int>;
    ebb::deque<Value> deque;
    expect_value_back([&](int, Value &&value) { deque.push(std::move(value)); });
    ebb::queue<Value> queue;
    expect_value_back([&](int, Value &&value) { queue.push(std::move(value)); });
    ebb::stack<Value> stack;
    expect_value_back([&](int, Value &&value) { stack.push(std::move(value)); });
    ebb::map<int, Value> map;
    expect_value_back([&](int i, Value &&value) { map.insert(i, std::move(value)); });
    expect_value_back([&](int i, Value &&value) { map.insert_or_assign(-i, std::move(value)); });
    map.insert(5000, std::make_unique<int>(1));
    auto second = std::make_unique<int>(2);
    EXPECT_FALSE(map.insert(5000, std::move(second)));
    ASSERT_NE(nullptr, second);
    EXPECT_FALSE(map.insert_or_assign(5000, std::move(second)));
    EXPECT_EQ(nullptr, second);
    EXPECT_TRUE(map.visit(5000, [](const Value &value) { EXPECT_EQ(2, *value); }));
}

void add_value(std::uint64_t, void *value, void *context)
{
    *static_cast<std::uintptr_t *>(context) += number(value);
}

TEST_F(Refusal, OfADestructorsRecordOnlyDelaysIt)
{
    std::uintptr_t sum = 0;
    ebb_map_options options = {nullptr, nullptr, add_value, &sum};
    ebb_map *map = ebb_map_create(&options);
    for (std::uint64_t key = 1; key <= 4; key++)
        ASSERT_EQ(ebb_map_insert(map, key, item(key)), 1);
    calls_left = 0;
    ASSERT_TRUE(ebb_map_remove(map, 1, nullptr));
    ASSERT_TRUE(ebb_map_remove(map, 2, nullptr));
    calls_left = never;
    ebb_barrier();
    EXPECT_EQ(sum, 0U);
    ASSERT_TRUE(ebb_map_remove(map, 3, nullptr)); // takes the two with it
    ebb_barrier();
    EXPECT_EQ(sum, 6U);
    calls_left = 0;
    ASSERT_TRUE(ebb_map_remove(map, 4, nullptr));
    ebb_map_destroy(map);
    EXPECT_EQ(sum, 10U);
}

} // namespace
