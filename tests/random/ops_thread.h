// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on threads that the model does not follow: what they do, each checks by itself.
#pragma once

#include <sched.h>
#include <threads.h>

#include "ops_process.h"

namespace random_test {

// Blocks of a thread that nobody else has.
inline void use_blocks(std::size_t count, std::size_t size)
{
    std::vector<std::pair<void *, std::uint32_t>> blocks;
    for (std::size_t i = 0; i < count; i++) {
        const std::uint32_t serial = next_serial++;
        void *const p = ebb_malloc(size);
        RANDOM_CHECK(p != nullptr, "%zu bytes", size);
        write_pattern(p, size, serial);
        blocks.emplace_back(p, serial);
    }
    for (const auto &[p, serial] : blocks) {
        check_pattern(p, size, size, serial, "a thread's block");
        ebb_free(p);
    }
}

inline bool follows_all = false; // no threads but those of the run, so that heaps can be counted

// What follows does not look for refusals.
inline bool has_memory(const Worker &w) { return w.run.config.mode != 4; }
inline bool may_begin_threads(const Worker &w) { return has_memory(w) && !follows_all; }

// ---- the last rounds of a thread's end --------------------------------------------------------------

struct Ending {
    pthread_key_t key;
    unsigned rounds; // left
    std::size_t size;
};

inline void retire_late(std::size_t size)
{
    void *const p = ebb_malloc(size), *const q = ebb_malloc(size);
    RANDOM_CHECK(p != nullptr && q != nullptr, "%zu bytes in a late round", size);
    ebb_pin();
    RANDOM_CHECK(ebb_is_pinned(), "pinned in a late round");
    ebb_retire(p);
    std::memset(p, 1, size); // it is still there
    if (ebb_retire_with(
            q, [](void *block, void *) { ebb_free(block); }, nullptr) != 0)
        ebb_free(q);
    ebb_unpin(); // another thread that ends may be pinned: they share a record
}

inline void end_late(void *argument)
{
    Ending *const ending = static_cast<Ending *>(argument);
    use_blocks(3, ending->size);
    retire_late(ending->size);
    ebb_region *const region = ebb_region_open(nullptr);
    RANDOM_CHECK(region != nullptr, "a region in a late round");
    void *const survivor = ebb_region_alloc(region, ending->size);
    RANDOM_CHECK(survivor != nullptr, "%zu bytes of a region in a late round", ending->size);
    if (ending->rounds % 2 == 0) {
        ebb_region_close(region);
        ebb_retire(survivor);
    } else {
        ebb_region_release(region);
    }
    if (ending->rounds-- > 0)
        pthread_setspecific(ending->key, ending);
}

inline void op_end_late(Worker &w, const Record &r)
{
    if (!may_begin_threads(w))
        return;
    had_threads = true;
    Ending ending = {0, r.y() % 5u, 1 + r.size(w.run.config.profile) % 200000};
    pthread_key_create(&ending.key, end_late);
    std::thread([&] {
        if (r.x() % 2 == 0)
            use_blocks(5, ending.size);
        pthread_setspecific(ending.key, &ending);
    }).join();
    pthread_key_delete(ending.key);
}

// ---- many, and odd ones ---------------------------------------------------------------------------

// At once, so that each has a heap of its own. What they leave is too much for those that come.
inline void op_crowd(Worker &w, const Record &r)
{
    if (!may_begin_threads(w) || w.run.crowded.exchange(true))
        return;
    had_threads = true;
    std::vector<std::thread> crowd;
    std::atomic<unsigned> inside{0};
    const unsigned count = 2 + r.y() % 40;
    for (unsigned i = 0; i < count; i++)
        crowd.emplace_back([&, i] {
            use_blocks(1 + i, 100 + i * 400);
            for (inside++; inside.load() < count;)
                std::this_thread::sleep_for(std::chrono::microseconds(100));
        });
    for (std::thread &thread : crowd)
        thread.join();
    w.run.crowded = false;
}

inline int use_some(void *size)
{
    use_blocks(10, reinterpret_cast<std::size_t>(size));
    return 7;
}

inline void op_thread_c11(Worker &w, const Record &r)
{
    if (!may_begin_threads(w))
        return;
    had_threads = true;
    thrd_t thread;
    int result = 0;
    RANDOM_CHECK(thrd_create(&thread, use_some, reinterpret_cast<void *>(1 + r.number() % 5000)) ==
                     thrd_success,
                 "a thread");
    RANDOM_CHECK(thrd_join(thread, &result) == thrd_success && result == 7, "result %d", result);
}

// The kernel lets single threads do more of it: whatever the answer is, it is the kernel's.
inline void op_part(Worker &, const Record &r)
{
    errno = 0;
    if (r.y() % 3 == 0)
        RANDOM_CHECK(unshare(CLONE_FS) == 0 || errno == EPERM, "unshare, errno %d", errno);
    else if (r.y() % 3 == 1)
        RANDOM_CHECK(setns(-1, 0) == -1 && errno == EBADF, "setns, errno %d", errno);
    else
        RANDOM_CHECK(unshare(-1) == -1 && errno == EINVAL, "unshare, errno %d", errno);
}

// ---- more than goes at once -----------------------------------------------------------------------

// A reader holds back what others retire without an end.
inline void op_flood(Worker &w, const Record &r)
{
    if (!has_memory(w) || w.model.bytes() > w.run.config.cap / 2)
        return;
    const std::size_t size = 1 + r.number() % 300;
    const ebb_scope before = ebb_heap_enter();
    const bool reads = r.y() % 2 == 0;
    if (reads)
        ebb_pin();
    for (unsigned i = 0; i < 10u * r.x(); i++) {
        void *const p = ebb_malloc(size);
        RANDOM_CHECK(p != nullptr, "%zu bytes", size);
        if (i % 64 == 63 && ebb_retire_with(
                                p, [](void *block, void *) { ebb_free(block); }, nullptr) == 0)
            continue;
        ebb_retire(p);
    }
    if (reads)
        ebb_unpin();
    ebb_leave(before);
}

inline void op_labels(Worker &w, const Record &r)
{
    if (!has_memory(w))
        return;
    for (unsigned i = 0; i < r.y() % 90u; i++) {
        const std::string label = "random many " + std::to_string(i);
        const ebb_region_options options = {label.c_str(), nullptr, 0, 0, i % 2 != 0};
        ebb_region *const region = ebb_region_open(&options);
        RANDOM_CHECK(region != nullptr && label == ebb_region_label(region), "region %s",
                     label.c_str());
        ebb_free(ebb_region_alloc(region, 100));
        ebb_region_close(region);
    }
}

} // namespace random_test
