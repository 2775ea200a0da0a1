// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: the orchestras, which visit every subsystem: start-up, threads as they come and go, fork, the
// helper, the pass over all memory.
#ifndef EBB_PROCESS_PROCESS_H
#define EBB_PROCESS_PROCESS_H

#include <ebbtide.h>

#include "heap/heap.h"
#include "os/lock.h"

// ---- attach.c ------------------------------------------------------------------------------------
int ebbi_start(void); // idempotent; 0 or -ENOMEM
// The calling thread's heap, attached now if need be; NULL: none to be had.
struct ebbi_heap *ebbi_heap_get(void);
// The one that malloc and free work on: the thread's, or its current domain's. NULL as above.
struct ebbi_heap *ebbi_source_get(void);
// The same for a free, which is no reason to give a thread a heap whose end would not be seen.
struct ebbi_heap *ebbi_source_for_free(void);
void ebbi_thread_begins(void); // a new thread of the program, counted by ebbi_threads_more
// As ebbi_os_start_thread; what libc allocates for it is in no region that is current.
uintptr_t ebbi_thread_make(const struct ebbi_os_thread *thread);
bool ebbi_thread_forked(void); // in the child: whether its thread is one of those that are counted

// ---- fork.c --------------------------------------------------------------------------------------
extern EBBI_HIDDEN struct ebbi_lock ebbi_start_lock;
void ebbi_fork_watch(void); // once, by pthread_atfork, which may allocate
void ebbi_fork_abort(void); // this thread is on its way to abort()

// ---- pass.c --------------------------------------------------------------------------------------
struct ebbi_pass {
    size_t delay_ms; // in: how long memory must have been free
    bool parks;      // in: magazines of threads that sleep are emptied
    // in: the caller may run destructors of ebb_retire_with, and gets its heap for them by this; or NULL
    struct ebbi_heap *(*heap_for_calls)(void);
    bool more;                   // out: a queue was not looked at to its end
    bool waiting;                // out: something is too young yet
    struct ebbi_expired expired; // on its way home
};
void ebbi_purge_pass(
    struct ebbi_pass *pass); // over all owners and the arena, until nothing more is old enough
// Gives back all that is free, with `parks` also what lies in sleeping threads' magazines: bytes.
size_t ebbi_trim(struct ebbi_heap *heap, bool parks);
void ebbi_pass_serve(void); // makes the pass that is wanted (os/wake.h), if nobody is faster

// ---- asked.c -------------------------------------------------------------------------------------
int ebbi_profile_switch(size_t mean); // on, or 0: off; for a process that has started. 0 or -ENOMEM
void ebbi_profile_lapse(void);        // off, if the time that was asked for is over
void ebbi_asked_serve(bool helper);   // does what another process has asked for, if nobody does
void ebbi_asked_forget(void);         // in the child of a fork

// ---- snapshot.c ----------------------------------------------------------------------------------
void ebbi_snapshot_take(struct ebb_snapshot *s);
size_t ebbi_threads_account(struct ebb_thread_stats *lines, size_t count); // ebb_threads_get
// What another process has asked for (os/control.h), and reads by the board.
#define EBBI_PUBLISHED_THREADS 1024
struct ebbi_published {
    uint64_t turn; // odd while it is being written, 0 before the first question; atomic
    struct ebb_snapshot taken;
    uint64_t unsealed_bytes; // ebbi_limbo_unsealed
    uint64_t thread_count;   // that there are
    struct ebb_thread_stats threads[EBBI_PUBLISHED_THREADS];
};
extern EBBI_HIDDEN struct ebbi_published ebbi_published;
void ebbi_snapshot_publish(void); // one thread at a time

// ---- metrics.c -----------------------------------------------------------------------------------
extern EBBI_HIDDEN uint64_t ebbi_metrics_due_ms; // the next write; 0: none; atomic
void ebbi_metrics_lapse(bool helper);            // writes them, if it is time and nobody does
void ebbi_metrics_begin(void);                   // the first, and those that follow
void ebbi_metrics_forget(void);                  // in the child of a fork, which writes none

// ---- helper.c: any thread ------------------------------------------------------------------------
bool ebbi_helper_is_me(void);
void ebbi_helper_start(void);  // creates it, if it is not there; not from malloc or free
void ebbi_helper_look(void);   // the same where it is needed
bool ebbi_helper_keep(void);   // creates it, for the whole life of the process; false: refused
void ebbi_helper_resume(void); // after a stop: there are threads, so it begins anew
void ebbi_helper_stop(void);   // waits until its thread has ended; not from malloc or free
// So that the kernel finds no thread but the calling one, if that is the program's only one.
void ebbi_helper_make_way(void);
void ebbi_helper_forget(bool counted); // in the child of a fork, whose thread is counted or not
void ebbi_threads_see(void); // from now on each thread is counted when the program creates it
bool ebbi_threads_are_seen(void);
bool ebbi_threads_any(void); // besides the first one, of the program
void ebbi_threads_more(void);
void ebbi_threads_less(void);
void ebbi_threads_first_ends(void);
// True: certainly no other thread uses the heap, nor does the helper until ebbi_threads_go_on.
bool ebbi_threads_hold(void);
// Waits before, for a tenth of a second at most, where there may be none but one on its last steps, or the helper in a pass.
bool ebbi_threads_await(void);
void ebbi_threads_go_on(void);
// A destructor ends this thread: another helper may start, if it is one.
void ebbi_helper_abandon(void);
// Behind that, and what was put back: another one is wanted, and nobody else may come by to start it.
void ebbi_helper_hand_on(void);

#endif
