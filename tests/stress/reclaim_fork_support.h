// SPDX-License-Identifier: MIT OR Apache-2.0
// Children of fork() that use all of reclamation. One that hangs is ended by its alarm and so fails the test.
#pragma once

#include <sys/wait.h>

#include "../api/reclaim_support.h"

namespace reclaim {

inline void expect_ends_well(pid_t child)
{
    int status = 0;
    ASSERT_GT(child, 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "the child was ended by signal " << WTERMSIG(status)
                                   << (WTERMSIG(status) == SIGALRM ? ", it hung" : "");
    ASSERT_EQ(WEXITSTATUS(status), 0);
}

// Everything that a program may do, and nothing left in the end.
inline bool use_everything()
{
    std::atomic<int> calls{0};
    for (int i = 0; i < 500; i++) {
        const Pin pin;
        ebb_retire(ebb_malloc(1 + static_cast<std::size_t>(i) * 7));
        ebb_hook *const hook = static_cast<ebb_hook *>(ebb_calloc(1, sizeof(ebb_hook)));
        ebb_retire_hooked(hook, hook, [](void *p, ebb_hook *) { ebb_free(p); });
        if (ebb_retire_with(ebb_malloc(40), count_and_free, &calls) != 0)
            return false;
    }
    ebb_retire(ebb_malloc(support::MiB));
    ebb_synchronize();
    ebb_barrier();
    if (calls.load() != 500)
        return false;
    ebb_collector *collector = ebb_collector_create(0);
    ebb_participant *me = ebb_collector_attach(collector);
    ebb_participant_pin(me);
    if (ebb_participant_retire_with(me, ebb_malloc(40), count_and_free, &calls) != 0)
        return false;
    ebb_participant_unpin(me);
    ebb_collector_destroy(collector);
    return calls.load() == 501 && drain();
}

[[noreturn]] inline void live_as_child(bool with_thread)
{
    alarm(30);
    bool right = use_everything() && stats().pinned == 0 && stats().participants == 1;
    // ASan's own allocator may have been locked at the fork, by a thread that was starting.
    if (with_thread && !support::under_asan)
        std::thread([&right] { right = use_everything() && right; }).join();
    _exit(right && use_everything() ? 0 : 1);
}

inline pid_t fork_child(bool with_thread)
{
    const pid_t child = fork();
    if (child == 0)
        live_as_child(with_thread);
    return child;
}

} // namespace reclaim
