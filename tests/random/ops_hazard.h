// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on hazard pointers, and on links: what threads read of each other while it is replaced.
#pragma once

#include "ops_reclaim.h"

namespace random_test {

inline Guard *pick_guard(Worker &w, const Record &r, bool busy)
{
    Guard &guard = w.guards[r.x() % w.guards.size()];
    if (guard.busy() != busy)
        return nullptr;
    if (guard.hazard == nullptr) {
        errno = 0;
        guard.hazard = ebb_hazard_open();
        RANDOM_CHECK(guard.hazard != nullptr || (w.may_be_refused() && errno == ENOMEM), "errno %d",
                     errno);
    }
    return guard.hazard == nullptr ? nullptr : &guard;
}

// Protects a block that can be reached, then retires it: it stays until the protection ends.
inline void op_guard(Worker &w, const Record &r)
{
    Block *const block = w.model.pick(r.pick());
    Guard *const guard = block == nullptr ? nullptr : pick_guard(w, r, false);
    if (guard == nullptr)
        return;
    Model::check(*block);
    const bool by_destructor = r.y() % 3 == 0 && may_be_owned(block);
    // What goes to a destructor need not be a block: nobody knows where it ends.
    const bool inside = !by_destructor && r.y() % 2 != 0 && block->size > 0;
    ebb_hazard_set(guard->hazard, block->at + (inside ? r.number() % block->size : 0));
    if (by_destructor) {
        if (!retire_with(w, r, 0, block, true)) {
            ebb_hazard_clear(guard->hazard);
            return;
        }
    } else {
        ebb_retire(block->at);
        w.model.make_ghost(block, Block::State::guarded);
    }
    guard->block = block;
}

inline void end_guard(Worker &w, Guard &guard, bool close)
{
    if (guard.node.node != nullptr)
        guard.node.node->check(guard.node.serial, "a node under a hazard pointer");
    if (Block *block = guard.block) {
        check_pattern(block->at, block->usable, block->usable, block->serial, "a protected block");
        if (block->state == Block::State::doomed)
            block->doom->guarded = false;
        else
            w.model.remove(block);
    }
    guard.block = nullptr;
    guard.node = {};
    if (close)
        ebb_hazard_close(std::exchange(guard.hazard, nullptr));
    else if (guard.hazard != nullptr)
        ebb_hazard_clear(guard.hazard);
}

inline void op_unguard(Worker &w, const Record &r)
{
    if (Guard *guard = pick_guard(w, r, true))
        end_guard(w, *guard, r.y() % 3 == 0);
}

// ---- links ---------------------------------------------------------------------------------------

inline Node *new_node(Worker &w, std::size_t size)
{
    const ebb_scope before = ebb_heap_enter(); // no region may end it
    void *const p = ebb_malloc(Node::header + size);
    ebb_leave(before);
    RANDOM_CHECK(p != nullptr || w.may_be_refused(), "a node of %zu bytes", size);
    if (p == nullptr)
        return nullptr;
    Node *const node = static_cast<Node *>(p);
    node->fill(size);
    return node;
}

inline void replace_link(Worker &w, const Record &r, Node *fresh)
{
    Node *const old = static_cast<Node *>(
        __atomic_exchange_n(&w.run.links[r.x() % link_count], fresh, __ATOMIC_ACQ_REL));
    if (old == nullptr)
        return;
    if (r.y() % 3 != 0)
        return ebb_retire(old);
    Doom *const doom = new_doom(w, 0, r);
    doom->at = old;
    if (call_retire_with(w, 0, old, doom) == 0)
        w.dooms.push_back(doom);
    else
        ebb_retire(old);
}

inline void op_link(Worker &w, const Record &r)
{
    Node *const fresh = r.y() % 4 == 0 ? nullptr : new_node(w, r.number() % 900);
    replace_link(w, r, fresh);
}

inline void op_read(Worker &w, const Record &r)
{
    void *const *const link = &w.run.links[r.x() % link_count];
    ebb_pin();
    Node *const node = static_cast<Node *>(__atomic_load_n(link, __ATOMIC_ACQUIRE));
    if (node != nullptr) {
        node->check(node->serial, "a node under a pin");
        if (w.clocks[0].depth > 0 && w.held.size() < 20)
            w.held.push_back({node, node->serial, w.clocks[0].serial});
    }
    ebb_unpin();
}

inline void op_protect(Worker &w, const Record &r)
{
    Guard *const guard = pick_guard(w, r, false);
    if (guard == nullptr)
        return;
    Node *const node =
        static_cast<Node *>(ebb_hazard_protect(guard->hazard, &w.run.links[r.y() % link_count]));
    if (node == nullptr)
        return ebb_hazard_clear(guard->hazard);
    guard->node = {node, node->serial, 0};
    node->check(node->serial, "a node under a hazard pointer");
}

} // namespace random_test
