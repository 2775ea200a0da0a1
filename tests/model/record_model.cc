// SPDX-License-Identifier: MIT OR Apache-2.0
// The record of calls that fills: src/reclaim/record.h as it is, under Relacy. What is done under the lock, and the
// queue, follow src/reclaim/deferred.c and calls.c. A call here is to look at a block that its thread wrote, and
// each has to be made once.
#include "stage.h"

#include <optional>

#include "cells.h"

#define _Static_assert static_assert

#include "reclaim/record.h"

namespace {

using model::Block;

// One thread appends, another one closes what it finds and makes the calls.
struct Record {
    static constexpr rl::thread_id_t threads = 2;
    static constexpr unsigned calls = 5, most = 5;
    struct ebbi_lock lock;
    struct ebbi_deferred deferred = {};
    struct ebbi_calls records[most] = {};
    std::optional<model::Shared<uint32_t>> states[most];
    bool freed[most] = {};
    unsigned opened = 0;
    Block blocks[calls];
    int ran[calls] = {};

    Record() { model::words().count = 0; }
    ~Record()
    {
        for (unsigned i = 0; i < calls; i++) {
            RL_ASSERT(ran[i] == 1);
        }
        for (unsigned i = 0; i < opened; i++) {
            RL_ASSERT(freed[i] || &records[i] == deferred.filling);
        }
    }

    void thread(unsigned index)
    {
        if (index == 0) {
            for (Block &block : blocks) {
                block.fill();
                defer(&block);
            }
            collect();
        } else {
            for (int i = 0; i < 3; i++) {
                collect();
            }
        }
    }

    static Block *block_of(const struct ebbi_call &call) { return static_cast<Block *>(call.p); }

    void defer(Block *block)
    {
        struct ebbi_call call = {nullptr, block, nullptr};
        if (model::is_mutant("append_by_store") ? append_by_store(call)
                                                : ebbi_defer_append(&deferred, call, 0)) {
            return;
        }
        ebbi_lock_take(&lock);
        if (deferred.filling == nullptr || !ebbi_record_is_open(deferred.filling)) {
            leave();
            open();
        }
        struct ebbi_calls *filling = deferred.filling;
        uint32_t count = ebbi_load_relaxed(&filling->state);
        filling->calls[count] = call;
        ebbi_store_relaxed(&filling->state, count + 1);
        ebbi_lock_drop(&lock);
    }

    // Who closes meanwhile is not seen.
    bool append_by_store(struct ebbi_call call)
    {
        struct ebbi_calls *filling = deferred.filling;
        uint32_t count = filling != nullptr ? ebbi_load_relaxed(&filling->state) : 0;
        if (count == 0 || count >= EBBI_CALLS_CLOSED) {
            return false;
        }
        filling->calls[count] = call;
        ebbi_store_release(&filling->state, count + 1);
        return true;
    }

    void open()
    {
        RL_ASSERT(opened < most);
        deferred.filling = &records[opened];
        states[opened].emplace(&records[opened].state);
        opened++;
    }

    void leave()
    {
        struct ebbi_calls *closed = deferred.filling;
        if (closed != nullptr &&
            (model::is_mutant("leaves_last") || ebbi_record_let_go(closed, EBBI_CALLS_LEFT))) {
            end(closed);
        }
    }

    void collect()
    {
        struct ebbi_calls *taken = nullptr;
        ebbi_lock_take(&lock);
        uint32_t count = ebbi_record_count(deferred.filling);
        for (unsigned i = 0; i < count; i++) { // as those who count what waits
            block_of(deferred.filling->calls[i])->read();
        }
        if (count > 0) {
            taken = deferred.filling;
            ebbi_record_close(taken);
        }
        ebbi_lock_drop(&lock);
        if (taken == nullptr) {
            return;
        }
        for (unsigned i = 0; i < taken->count; i++) {
            Block *block = block_of(taken->calls[i]);
            block->read();
            block->reuse();
            ran[block - blocks]++;
        }
        if (model::is_mutant("done_is_last") || ebbi_record_let_go(taken, EBBI_CALLS_DONE)) {
            end(taken);
        }
    }

    void end(struct ebbi_calls *record)
    {
        unsigned number = static_cast<unsigned>(record - records);
        RL_ASSERT(!freed[number]);
        freed[number] = true;
        states[number]->die();
    }
};

const model::Scenario scenarios[] = {
    {"record", rl::simulate<model::Suite<Record>>},
};

} // namespace

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
