// SPDX-License-Identifier: MIT OR Apache-2.0
// When a process is recorded: EBB_RECORD names the beginning of its file's path, and EBB_RECORD_ONLY, if it is set,
// the program. A child of a fork starts anew with its first event.
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "trace/record/record.h"
#include "trace/record/text.h"

static enum { UNKNOWN, RECORDED, NOT_RECORDED } state; // under the store's lock
static uint64_t ticks_of_idle;

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

static void in_child(void)
{
    forget_store();
    unlock_large();
    forget_threads();
    state = UNKNOWN;
}

// Each large block is mapped anew, in small pages: what the kernel holds of it was touched by its owner.
static void ask_for_fresh_pages(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, TRACE_LARGE);
    (void)mallopt(M_MMAP_MAX, INT_MAX);
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

static void prepare_once(void)
{
    if (ticks_of_idle == 0) {
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
        state = NOT_RECORDED;
        if (base != NULL && is_asked_for()) {
            prepare_once();
            state = open_store(base) ? RECORDED : NOT_RECORDED;
        }
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
    if (stream != NULL && !stream->is_busy) {
        stream->is_busy = true;
        note_large_at_exit(stream);
        stream->is_busy = false;
    }
}
