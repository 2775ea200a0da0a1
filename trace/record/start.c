// SPDX-License-Identifier: MIT OR Apache-2.0
// When a process is recorded: EBB_RECORD names the beginning of its file's path, and EBB_RECORD_ONLY, if it is set,
// the program. A child of a fork starts anew with its first event.
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "trace/record/record.h"
#include "trace/record/text.h"

static enum { UNKNOWN, RECORDED, NOT_RECORDED } state; // under the store's lock; atomic for a look
static uint64_t ticks_of_idle;
static uint32_t always = 1; // where the kernel cannot wipe
uint32_t *is_own_process = &always;

bool is_off(void)
{
    return __atomic_load_n(&state, __ATOMIC_RELAXED) == NOT_RECORDED || has_stopped(); // a hint
}

uint64_t idle_ticks(void) { return ticks_of_idle; }

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

// Over a fifth of a millisecond, which is exact enough for what is long.
static void calibrate(void)
{
    uint64_t ticks = read_ticks(), start = now_ns(), now = start;
    while (now - start < 200000) {
        now = now_ns();
    }
    ticks_of_idle = (read_ticks() - ticks) * TRACE_IDLE_NS / (now - start);
}

static void before_fork(void)
{
    lock_large();
    lock_store();
}

static void after_fork(void)
{
    unlock_store();
    unlock_large();
}

static void forget_parent(void)
{
    forget_store();
    forget_threads();
    state = UNKNOWN;
    *is_own_process = 1;
}

static void in_child(void)
{
    forget_parent();
    unlock_store();
    unlock_large();
}

// Without the handlers nobody has held the locks: this thread is the child's only one.
void become_child(void)
{
    forget_large_lock();
    forget_store_lock();
    forget_parent();
}

// Each large block is mapped anew, in small pages: what the kernel holds of it was touched by its owner.
static void ask_for_fresh_pages(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, TRACE_LARGE);
    (void)mallopt(M_MMAP_MAX, INT_MAX);
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

static void notice_forks(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t *wiped = map_memory(page);
    if (wiped != NULL && madvise(wiped, page, MADV_WIPEONFORK) == 0) {
        *wiped = 1;
        is_own_process = wiped;
    }
}

static void prepare_once(void)
{
    if (ticks_of_idle == 0) {
        notice_forks();
        calibrate();
        ask_for_fresh_pages();
    }
}

static bool is_asked_for(void)
{
    const char *only = getenv("EBB_RECORD_ONLY");
    return only == NULL || is_program(only);
}

bool start_recording(void)
{
    if (state == UNKNOWN && environ != NULL) { // libc has it before the first constructor
        const char *base = getenv("EBB_RECORD");
        bool is_wanted = base != NULL && *base != '\0' && is_asked_for();
        if (is_wanted) {
            prepare_once();
        }
        bool is_recorded = is_wanted && open_store(base);
        __atomic_store_n(&state, is_recorded ? RECORDED : NOT_RECORDED, __ATOMIC_RELAXED);
    }
    return state == RECORDED && !has_stopped();
}

__attribute__((constructor)) static void handle_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

__attribute__((destructor)) static void process_ends(void)
{
    struct stream *stream = self;
    if (stream != NULL && *is_own_process != 0 && !stream->is_busy) {
        stream->is_busy = true;
        note_large_at_exit(stream);
        stream->is_busy = false;
    }
}
