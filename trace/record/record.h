// SPDX-License-Identifier: MIT OR Apache-2.0
// The recorder: a library that is preloaded over glibc's malloc and writes down what a process asks of it.
//
// A block has a header in front of it that names its object: no table of live objects is needed, and what a
// thread frees is known without a lock. A thread writes its events into a slot of the spool, memory shared with a
// file, so that they survive however the process ends. A full slot becomes a block of the recording.
//
//   intercept.c  malloc and its family: headers, and which event a call is
//   events.c     events into the calling thread's slot; marks
//   threads.c    which stream is the calling thread's; threads that have ended
//   store.c      the file and the spool; a recording that cannot go on
//   touched.c    how much of a large block was touched
//   start.c      when a process is recorded; fork
//   lock.c       the two locks: the store's, and that of the list of large blocks, which comes first
//
// No call of malloc takes the store's lock but when a slot is full or a thread makes its first or last event.
// The recorder itself asks for memory by mmap alone.
#ifndef EBB_TRACE_RECORD_H
#define EBB_TRACE_RECORD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/format/coder.h"
#include "trace/format/format.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect((x) != 0, 1)

// In front of a block. The turn is the low half of its chunk's: enough to be compared.
struct header {
    uint32_t check; // tells a block of ours from a foreign one
    uint32_t front; // bytes from the start of libc's block
    uint64_t size;
    uint64_t object;
    uint32_t thread; // TRACE_NO_THREAD: not recorded
    uint32_t turn;
};

// Of a thread that has made an event. Written by it alone, but for `is_over`.
struct stream {
    bool
        is_busy; // an event is being made: a signal handler that interrupts it must not make another
    bool is_over; // the thread's destructors have run
    pid_t tid;
    uint32_t thread;
    uint32_t chunk_events; // since the last mark
    uint64_t ticks;        // when the last event was made
    int64_t net;
    uint64_t lost;
    struct trace_coder coder;
    struct trace_slot *slot;
    struct stream *next; // of all streams, or of those that are free
};

extern HIDDEN __thread struct stream *self __attribute__((tls_model("initial-exec")));

// 0 in the child of a fork, until it has forgotten its parent's recording: the kernel wipes what this points to.
extern HIDDEN uint32_t *is_own_process;

// lock.c
struct lock {
    pthread_mutex_t mutex;
    sigset_t signals; // of the holder, as they were
    int cancel;
};
HIDDEN void take(struct lock *lock);
HIDDEN void give(struct lock *lock);

// start.c
HIDDEN bool is_off(void);          // without the lock: nothing is recorded any more
HIDDEN bool start_recording(void); // under the store's lock: whether this process is recorded
HIDDEN void become_child(void);    // of a fork that ran no handlers
HIDDEN uint64_t idle_ticks(void);  // TRACE_IDLE_NS

// threads.c. NULL: nothing is recorded.
HIDDEN struct stream *attach(void);
HIDDEN void forget_threads(void); // in the child of a fork
HIDDEN bool is_alone(void);
HIDDEN uint32_t first_thread(void); // those below belong to the process that forked this one

// events.c: of the calling thread, whose stream is busy
HIDDEN bool make_room(
    struct stream *stream); // for OPERATION_BYTES; false: the recording has stopped
HIDDEN void open_stream(struct stream *stream);
HIDDEN void note_made(struct stream *stream, enum trace_kind kind, uint64_t size, uint32_t small);
HIDDEN void note_free(struct stream *stream, const struct header *header);
HIDDEN void note_realloc(struct stream *stream, const struct header *header, uint64_t size);
HIDDEN void note_touched(struct stream *stream, const struct header *header, uint64_t pages);

// touched.c: blocks of TRACE_LARGE and more
HIDDEN void large_made(struct header *header);
HIDDEN uint64_t large_ends(struct header *header); // how many of its pages were touched
HIDDEN void note_large_at_exit(struct stream *stream);
HIDDEN void lock_large(void);
HIDDEN void unlock_large(void);
HIDDEN void forget_large_lock(void);

// store.c: under its lock, but for the first two
HIDDEN void lock_store(void);
HIDDEN void unlock_store(void);
HIDDEN bool open_store(const char *base);
HIDDEN void forget_store(void); // in the child of a fork
HIDDEN void forget_store_lock(void);
HIDDEN bool has_stopped(void);
HIDDEN struct trace_slot *take_slot(uint32_t thread); // NULL: the recording has stopped
HIDDEN void drop_slot(struct trace_slot *slot);
HIDDEN void flush_slot(struct trace_slot *slot); // its events stay where they cannot be written
HIDDEN void *map_memory(size_t bytes);           // zeroes, or NULL

// The events of one call: marks, what was touched, what was lost, and the event itself.
enum { OPERATION_BYTES = 8 * TRACE_EVENT_MAX_BYTES };

static inline bool has_room(struct stream *stream)
{
    return LIKELY(stream->slot->bytes <= TRACE_RAW_BYTES - OPERATION_BYTES) || make_room(stream);
}

static inline uint64_t read_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

#endif
