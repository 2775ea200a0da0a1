// SPDX-License-Identifier: MIT OR Apache-2.0
// Streams of threads. A thread is found to have ended when its destructors have run and the kernel knows no such thread:
// destructors that run behind ours still make events. Whoever makes the next stream closes such a one.
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trace/record/record.h"

__thread struct stream *self;

static struct stream *streams, *spare; // under the store's lock
static uint32_t next_thread, first;
static uint32_t live; // atomic for a look
static pthread_key_t key;
static bool has_key;

bool is_alone(void) { return __atomic_load_n(&live, __ATOMIC_RELAXED) == 1; } // relaxed: a hint
uint32_t first_thread(void) { return first; }

static void thread_is_over(void *stream) { ((struct stream *)stream)->is_over = true; }

static bool is_gone(const struct stream *stream)
{
    return stream->is_over && syscall(SYS_tgkill, getpid(), stream->tid, 0) != 0 && errno == ESRCH;
}

static void close_stream(struct stream *stream)
{
    stream->slot->ends = 1;
    flush_slot(stream->slot);
    if (!has_stopped()) {
        drop_slot(stream->slot);
    }
    __atomic_store_n(&live, live - 1, __ATOMIC_RELAXED); // relaxed: under the lock
}

static void close_gone(void)
{
    for (struct stream **at = &streams; *at != NULL;) {
        struct stream *stream = *at;
        if (!is_gone(stream)) {
            at = &stream->next;
            continue;
        }
        close_stream(stream);
        *at = stream->next;
        stream->next = spare;
        spare = stream;
    }
}

static struct stream *new_stream(void)
{
    close_gone();
    struct stream *stream = spare;
    if (stream == NULL) {
        return map_memory(sizeof *stream);
    }
    spare = stream->next;
    *stream = (struct stream){0};
    return stream;
}

static struct stream *add_stream(void)
{
    struct stream *stream = new_stream();
    if (stream == NULL || (stream->slot = take_slot(next_thread)) == NULL) {
        return NULL;
    }
    stream->thread = next_thread++;
    stream->tid = (pid_t)syscall(SYS_gettid);
    stream->is_busy = true;
    stream->next = streams;
    streams = stream;
    __atomic_store_n(&live, live + 1, __ATOMIC_RELAXED); // relaxed: under the lock
    return stream;
}

// Its own call of malloc, which glibc makes for the key's second level, is nobody's.
static void await_end(struct stream *stream)
{
    has_key = has_key || pthread_key_create(&key, thread_is_over) == 0;
    if (has_key) {
        (void)pthread_setspecific(key, stream);
    }
    stream->lost = 0;
}

static struct stream *attach_quietly(void)
{
    lock_store();
    struct stream *stream = start_recording() ? add_stream() : NULL;
    unlock_store();
    if (stream == NULL) {
        return NULL;
    }
    self = stream;
    open_stream(stream);
    await_end(stream);
    return stream;
}

// A signal handler that came in between would find no stream, and wait for the lock that its own thread holds.
struct stream *attach(void)
{
    if (is_off()) {
        return NULL;
    }
    int saved = errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct stream *stream = attach_quietly();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return stream;
}

// The spool is the parent's: the child writes none of it.
void forget_threads(void)
{
    self = NULL;
    streams = NULL;
    spare = NULL;
    live = 0;
    first = next_thread;
}
