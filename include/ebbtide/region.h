// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide: lifetimes. Memory that is freed together: regions and domains.
//
// A region is a group of allocations with one end. Blocks are laid out in the order in which they
// were asked for (bump allocation, 16-byte units), and either everything goes at once,
//
//     struct ebb_region *r = ebb_region_open(NULL);       // release: only what was allocated in
//     struct node *n = ebb_region_alloc(r, sizeof *n);    // the region by name, so that the caller
//     ...                                                 // knows that nothing escaped
//     ebb_region_release(r);
//
// or the region is closed: nobody allocates there any more, and its blocks leave by ebb_free (free,
// under the override), in any order, from any thread.
//
// A domain is a named stream of epochs for memory that plain malloc returns. A worker that brackets
// its unit of work
//
//     struct ebb_scope before = ebb_domain_enter(requests);
//     serve(request);                                     // plain malloc and free in here
//     ebb_leave(before);
//
// has its blocks in slabs that hold nothing else, at malloc's speed; the policy says when an epoch
// ends. An epoch that ends is closed: nothing is freed that the program has not freed, but what it
// has freed returns to the slabs, and what is left is counted as pinned under the domain's name.
//
// Blocks of regions and domains are ordinary blocks: ebb_free, ebb_realloc, ebb_malloc_usable_size and
// ebb_retire take them, from any thread, whether the region is open or closed. After a release they
// are gone, and a free of one is an error. docs/lifetimes.md says when to use which.
// With EBB_REGION_DEBUG in the environment, a use of one is reported with the region's label and the
// stacks of allocation and release; each allocation then takes about a microsecond, none in place.
//
// Threads: every function may be called by any thread, and a region may be used by several at once.
// The thread that opened a region allocates from it and frees into it without locks until it leaves or
// detaches it; then the thread that has it current does. All others take the region's lock.
// A handle ends with its region's release or close and must not be used after: where its memory has not
// been used again this is found and ends the process by abort() after one line on stderr, as do the
// other errors that are named below. In the child of a fork() regions and domains go on; those that
// were another thread's own have no owner then, blocks that it was just allocating are lost, and one that
// it was just freeing may stay counted. As nobody can know what such a thread was doing, the 64 KiB or more
// that it was allocating from last as long as the region, or for ever once that is closed, with a block more
// in its count. A closed region that only threads of the parent were in has ended in the child.
// Where the kernel refuses membarrier (old ones, some seccomp filters; after PR_SET_NO_NEW_PRIVS nobody
// tries), a region that another thread than its owner closes ends a second later, without a wait for
// anybody but who releases its parent meanwhile; from then on no region has an owner.
#ifndef EBBTIDE_REGION_H
#define EBBTIDE_REGION_H

#include <ebbtide.h>
#include <stdint.h>

#include "ebbtide/detail/region.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ebb_region;
struct ebb_domain;

#define EBB_LABEL_BYTES 32 // of a label that are kept, with the NUL

// ---- regions: opening and ending -----------------------------------------------------------------

struct ebb_region_options {
    const char *label; // regions of one label share a line of the statistics; NULL: "region". A
                       // label stays for the life of the process: it names a kind of region
    struct ebb_region *parent; // this region ends before its parent; NULL: no parent
    size_t soft_limit; // bytes held; above it the region looks for drained memory before it grows,
                       // and growth is counted; 0: none
    size_t hard_limit; // bytes held; an allocation that needs more fails with ENOMEM; 0: none
    int closes;        // not 0: the region will be closed; to release or reset it is an error then.
                       // While survivors of the label's closed regions pin more than 1 MiB,
                       // allocations fall back to the size-class allocator, where blocks lie
                       // denser; ebb_region_of does not know them, and limits do not count them
};

// A region takes the first 64 KiB with its first block, or has them at hand where one that this thread
// opened was released lately, and more as it grows, in steps of up to 1 MiB. NULL as options: all zero. Limits are for the region alone, without its children.
// NULL with errno = ENOMEM when memory is refused, EINVAL when the parent is closed. O(labels in use).
EBB_EXPORT struct ebb_region *ebb_region_open(const struct ebb_region_options *options)
    EBB_NOEXCEPT;

// Runs the cleanups in reverse order, then gives everything back that is left in the region, in time
// O(slabs), and ends the handle; in a process without the library's helper thread also O(open regions) once
// in a purge delay. (The thread that opened it keeps the first 64 KiB of up to 8 regions for its next ones
// until the purge delay; they are counted under the label.) Children are released first, newest first.
// Where threads use ebb_pin, the memory itself waits for the grace period; while more than 128 slabs do, a
// release gives up its time slice as ebb_retire does, above 1,024 also for a millisecond. The region, or a
// child, being current in any thread is an error. NULL is allowed.
EBB_EXPORT void ebb_region_release(struct ebb_region *region) EBB_NOEXCEPT;

// As release, but the region stays open, with its first memory at hand for what comes next.
EBB_EXPORT void ebb_region_reset(struct ebb_region *region) EBB_NOEXCEPT;

// Runs the cleanups in reverse order; then the handle ends, and the blocks that are left live on until
// they are freed one by one. Memory whose blocks have all been freed is free again at once, and wholly free pages of memory
// that survivors pin after the purge delay. Children are closed first. NULL is allowed.
// A thread in which the region is current goes on: what it allocates comes from the parent, or from
// the heap, and is counted; the handle ends when the last thread has left it and its children. But where another thread than the
// owner closes the region, blocks that fit go on coming from the 64 KiB at most that the owner is filling, uncounted,
// until one does not: they live on as the others do.
EBB_EXPORT void ebb_region_close(struct ebb_region *region) EBB_NOEXCEPT;

// Calls call(argument) at the region's release, reset or close, newest first, in the thread that ends
// it, with no lock held. What is kept for it is a block of the region. It may free blocks of the region and allocate in its parent, but not in the
// region. 0, or -1 with errno = ENOMEM, or EINVAL when the region is closed.
EBB_EXPORT int ebb_region_cleanup(struct ebb_region *region, void (*call)(void *argument),
                                  void *argument) EBB_NOEXCEPT;

// ---- regions: allocating -------------------------------------------------------------------------
// As ebb_malloc and its family, in a region: 16-byte aligned, sizes up to PTRDIFF_MAX, NULL with
// errno = ENOMEM when memory is refused or the hard limit is reached. A region that is closed while it
// is still current somewhere allocates from its parent, or from the heap (as ebb_region_close says). Blocks above 128 KiB have
// memory of their own, which is part of the region. O(1) but for calls that need more memory.
EBB_EXPORT void *ebb_region_alloc(struct ebb_region *region, size_t bytes) EBB_NOEXCEPT;
EBB_EXPORT void *ebb_region_calloc(struct ebb_region *region, size_t count,
                                   size_t size) EBB_NOEXCEPT;
// align: a power of two, else EINVAL.
EBB_EXPORT void *ebb_region_aligned_alloc(struct ebb_region *region, size_t align,
                                          size_t bytes) EBB_NOEXCEPT;
// p: a block, in this region or not; the result is in the region. In place where the block is the
// region's newest, there is room and the calling thread owns the region. A size of 0 frees p and returns NULL; where p is
// NULL it is ebb_region_alloc, of 0 bytes too.
EBB_EXPORT void *ebb_region_realloc(struct ebb_region *region, void *p, size_t bytes) EBB_NOEXCEPT;

// A copy of the block p (its whole usable size) in another region, or in the heap for NULL: takes a
// result out of a region that is about to end. p itself stays. NULL with ENOMEM. A pointer that is no
// block is an error.
EBB_EXPORT void *ebb_region_promote(const void *p, struct ebb_region *to) EBB_NOEXCEPT;

#ifndef EBB_REGION_NO_INLINE
// The same function inline, where the caller owns the region and there is room; its address is the library's.
EBBI_INLINED void *ebb_region_alloc(struct ebb_region *region, size_t bytes) EBB_NOEXCEPT
{
    return ebbi_region_bump(region, bytes);
}
#endif

// The region that holds the block p, if its handle lives: open, or closed and still current in some
// thread, itself or a child of it. NULL for everything else.
EBB_EXPORT struct ebb_region *ebb_region_of(const void *p) EBB_NOEXCEPT EBB_ADDRESS_ONLY(1);

// ---- domains -------------------------------------------------------------------------------------

enum ebb_domain_policy {
    EBB_DOMAIN_NEVER,  // one epoch for ever
    EBB_DOMAIN_SCOPES, // every n scopes of a thread (outermost enter to leave)
    EBB_DOMAIN_BYTES, // when a thread's epoch has taken n bytes from its slabs, looked at on leaving;
                      // blocks that are freed and used again meanwhile count once
    EBB_DOMAIN_MS,    // when a thread's epoch is n milliseconds old, looked at on leaving
    EBB_DOMAIN_MANUAL, // by ebb_domain_advance
};

// The domain of that name, made at the first call with policy NEVER; it lasts as long as the process.
// EINVAL for NULL or an empty name; ENOMEM.
EBB_EXPORT struct ebb_domain *ebb_domain_open(const char *label) EBB_NOEXCEPT;
// For the epochs that begin from now on. 0, or -1 with EINVAL: unknown policy, or n = 0 with SCOPES,
// BYTES or MS. (n is ignored for the others.)
EBB_EXPORT int ebb_domain_set_policy(struct ebb_domain *domain, enum ebb_domain_policy policy,
                                     size_t n) EBB_NOEXCEPT;
// Ends the current epochs of all threads: the calling thread's now, the others' when they next leave
// or enter the domain.
EBB_EXPORT void ebb_domain_advance(struct ebb_domain *domain) EBB_NOEXCEPT;

// The calling thread has ended a unit of work and is about to wait: for event loops and workers that know
// no scopes. The first call puts it into the domain named "thread", for good, if nothing is current; each
// one ends its epoch there, and what it has taken since its last flush returns to its slabs if it is 64 KiB or more.
// Nothing happens in a thread that is in a region or another domain by its own choice (ebb_heap_enter counts
// as no scope). Keeps errno. Not for signal handlers. O(1), and O(free blocks of the thread) when they return. libebbtide_wait.so calls it
// before each wait of a program that is not changed.
EBB_EXPORT void ebb_thread_idle(void) EBB_NOEXCEPT;

// ---- what is current -----------------------------------------------------------------------------
// In each thread plain malloc comes from the heap, or from the region or domain that is current.
// Entering and leaving are O(1) and take no lock (a thread's first entry into a domain does); they nest,
// and an asynchronous task may enter its region at each poll, in whichever thread, and leave it after.

struct ebb_scope {
    uintptr_t before; // what was current; opaque
};

// Makes the region current: plain malloc is ebb_region_alloc until ebb_leave. For regions that will
// be closed: to release one, the caller must know that nothing allocated meanwhile is still wanted. What libc allocates for
// a thread is no part of it where libebbtide.so sees pthread_create; beside libebbtide.a create threads outside.
// Where the thread has no heap of its own because memory for it was refused, or has given it up (from the third round
// of its pthread_key destructors on), nothing changes: what it allocates until ebb_leave comes from the heap of all. One
// that was refused gets one as soon as memory is given, but not if the call was ebb_pin: then it goes without.
EBB_EXPORT struct ebb_scope ebb_region_enter(struct ebb_region *region) EBB_NOEXCEPT;
// Makes the calling thread's epoch of the domain current. When memory for it is refused, or the thread has given up its
// heap (as above), nothing changes, and the scope is not counted.
EBB_EXPORT struct ebb_scope ebb_domain_enter(struct ebb_domain *domain) EBB_NOEXCEPT;
// Makes the heap current again: what is to outlive the phase.
EBB_EXPORT struct ebb_scope ebb_heap_enter(void) EBB_NOEXCEPT;
// Ends the innermost enter of the calling thread, whose result is passed.
EBB_EXPORT void ebb_leave(struct ebb_scope before) EBB_NOEXCEPT;

// The calling thread is not the region's owner any more (see the top), so that another may be.
EBB_EXPORT void ebb_region_detach(struct ebb_region *region) EBB_NOEXCEPT;

// ---- who holds memory ----------------------------------------------------------------------------

struct ebb_region_stats {
    uint64_t id;           // of this region alone, from 1, never used again
    size_t live_blocks;    // allocated and not freed
    size_t held_bytes;     // address space of its slabs and large blocks
    size_t peak_bytes;     // held at most
    size_t resident_bytes; // of it in memory
    size_t slabs;
    size_t large_blocks;
    size_t late;      // allocations after the close, from elsewhere
    size_t refused;   // by the hard limit
    size_t pressed;   // times that it grew beyond the soft limit
    uint64_t open_ms; // since it was opened
};

// One label: all its regions, or a domain. As of each thread's last slow call: of a thread that does something just then, the
// counts of events may be a little behind for a moment, and a sum be less than it was. With EBB_CHECK=1 what is freed and
// held back is live, and keeps an epoch from having drained; blocks on pages of their own are in no domain's line then. With a
// profile on, each sampled block counts with its usable size, a page at least.
struct ebb_lifetime_stats {
    char label[EBB_LABEL_BYTES];
    int is_domain;
    size_t
        live_bytes; // in blocks in use; of a released region with retired ones, up to whole slabs until their grace period is over and a pass of the helper or ebb_trim has come by
    size_t live_blocks;
    size_t held_bytes;     // address space of slabs and large blocks
    size_t peak_bytes;     // held at most
    size_t resident_bytes; // of it in memory
    size_t pinned_bytes;   // resident, not under blocks in use
    size_t slabs;
    size_t demoted;   // slabs of closed regions, pinned by survivors
    size_t open;      // regions open, or threads that have an epoch
    uint64_t opened;  // regions, or scopes, since the start
    uint64_t closed;  // regions, or epochs
    uint64_t drained; // of them left no slab: the drain share; a domain's large blocks do not count
    uint64_t released;  // regions, resets included
    uint64_t late;      // allocations after a close, from elsewhere
    uint64_t refused;   // by hard limits
    uint64_t oldest_ms; // age of the oldest slab that is still in use: no survivor is older
};

EBB_EXPORT void ebb_region_stats_get(struct ebb_region *region,
                                     struct ebb_region_stats *stats) EBB_NOEXCEPT;
EBB_EXPORT void ebb_domain_stats_get(struct ebb_domain *domain,
                                     struct ebb_lifetime_stats *stats) EBB_NOEXCEPT;
// Up to `count` lines, in the order of the labels' first use. Returns how many there are. O(slabs, heaps
// and labels), with a system call for each slab of regions and domains: not for hot paths. As with ebb_stats_get threads
// wait for the end of it, those that begin or end as well; so they do with the one before.
EBB_EXPORT size_t ebb_lifetimes_get(struct ebb_lifetime_stats *lines, size_t count) EBB_NOEXCEPT;
EBB_EXPORT const char *ebb_region_label(const struct ebb_region *region) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
