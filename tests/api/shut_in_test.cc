// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that shut themselves in after their start, and threads that are cancelled.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "ebbtide.h"
#include "support.h"
extern "C" {
#define _Static_assert static_assert
#include "os/os.h"
#undef _Static_assert
}

namespace {

#if !defined(EBBTEST_EMULATED) && !defined(EBBTEST_SANITIZED)
void open_no_more()
{
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
#ifdef SYS_open
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 0, 1),
#else
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        _exit(0); // no filters here
}

void allocate_and_free()
{
    std::vector<void *> blocks(20000);
    for (std::size_t bytes : {64, 1000, 300000}) {
        for (void *&p : blocks)
            p = ebb_malloc(bytes);
        for (void *p : blocks)
            ebb_free(p);
    }
}

TEST(ShutIn, NothingIsOpenedAfterTheStart)
{
    const auto run = [] {
        open_no_more();
        allocate_and_free();
        std::thread(allocate_and_free).join();
        ebb_trim();
        _exit(0);
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^$");
}
#endif

// A cancelled thread goes on until it comes to a cancellation point: the library has none.
void *ask_while_cancelled(void *done)
{
    ebb_stats stats;
    support::cancel_myself();
    ebb_stats_get(&stats);
    ebbi_os_write(-1, "text", 4);
    (void)ebb_trim();
    *static_cast<bool *>(done) = stats.resident != 0;
    pthread_testcancel();
    return nullptr;
}

TEST(Cancelled, StatisticsAndMessagesAreNoCancellationPoints)
{
    pthread_t thread;
    bool done = false;
    void *result = nullptr;
    ASSERT_EQ(0, pthread_create(&thread, nullptr, ask_while_cancelled, &done));
    ASSERT_EQ(0, pthread_join(thread, &result));
    EXPECT_EQ(PTHREAD_CANCELED, result);
    EXPECT_TRUE(done);
}

} // namespace
