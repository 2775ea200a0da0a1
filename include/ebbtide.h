// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide: the malloc family under its own names, options and statistics.
//
// A program that is linked with or preloads libebbtide gets malloc, free and the rest of libc's
// allocation functions from it and needs nothing here. These names reach the same heap and are also
// there in builds without the override (libebbtide_core), beside another malloc.
//
// Every function may be called by any thread at any time after fork() too, and in handlers of
// pthread_atfork (in static programs: of those registered behind the first allocation); none is
// async-signal-safe. Sizes are bytes. Unless said otherwise a function that fails returns NULL with
// errno = ENOMEM and has changed nothing; sizes above PTRDIFF_MAX always fail. A pointer into a block,
// or from elsewhere, ends the process by abort() after one line on stderr that starts with "ebbtide: ",
// the program's name and its process: "ebbtide: redis-server[1234]: double free: ...". So does a block
// that is free already when it is freed or resized, as far as ebb_free says (where it is resized in its place, at
// that call or never); or retired, mostly later.
//
// None of them creates a thread, takes a lock of libc, or is a point of cancellation. A signal handler
// that calls one which it has interrupted is told so, in the same way, instead of waiting for itself.
#ifndef EBBTIDE_H
#define EBBTIDE_H

#include <stddef.h>
#include <stdint.h>

#define EBB_VERSION_MAJOR 0
#define EBB_VERSION_MINOR 1
#define EBB_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#define EBB_NOEXCEPT noexcept
#else
#define EBB_NOEXCEPT
#endif

#define EBB_EXPORT __attribute__((visibility("default")))
// Of the n-th parameter the address is all that matters: the block need not have been written to.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11 && !defined(EBB_INSIDE)
#define EBB_ADDRESS_ONLY(n) __attribute__((access(none, n)))
#else
#define EBB_ADDRESS_ONLY(n)
#endif

// At least `bytes` bytes, aligned to 16, not cleared. A size of 0 gives a block of its own, which nobody can read or write.
// O(1) up to 32 KiB but for every n-th call, which refills a magazine.
EBB_EXPORT void *ebb_malloc(size_t bytes) EBB_NOEXCEPT;

// count * size cleared bytes; fails when the product overflows. Memory that the kernel has just
// cleared is not cleared again.
EBB_EXPORT void *ebb_calloc(size_t count, size_t size) EBB_NOEXCEPT;

// The block resized, moved if need be; its contents up to the smaller size are kept. NULL acts as
// malloc; a size of 0 frees p and returns NULL. Large blocks grow into free neighbours or move by
// page tables where they can, and what is zero of them is not touched in new memory. One that
// shrinks by less than a half may keep its size, and any one whose smaller place is refused.
EBB_EXPORT void *ebb_realloc(void *p, size_t bytes) EBB_NOEXCEPT;

// Frees a block; NULL is allowed; keeps errno. A second free of the block ends the process at once if
// it is the calling thread's next call and nobody has been given the block since, if the block is above
// 128 KiB, or in a region; and mostly if the thread has freed at most two others of its size class since
// (not where these flushed its magazine, or the block is of another thread). Else it is found when
// the magazine is flushed, unless malloc has handed the block out before: then it has two owners.
EBB_EXPORT void ebb_free(void *p) EBB_NOEXCEPT;

// As free; the sizes (C23) are those of the allocation and save nothing here: they are not read.
EBB_EXPORT void ebb_free_sized(void *p, size_t bytes) EBB_NOEXCEPT;
EBB_EXPORT void ebb_free_aligned_sized(void *p, size_t align, size_t bytes) EBB_NOEXCEPT;

// Aligned to `align`, any power of two (else EINVAL). aligned_alloc does not ask that bytes be a
// multiple of it.
EBB_EXPORT void *ebb_aligned_alloc(size_t align, size_t bytes) EBB_NOEXCEPT;
EBB_EXPORT void *ebb_memalign(size_t align, size_t bytes) EBB_NOEXCEPT;

// 0, EINVAL (align is no power of two or no multiple of sizeof(void *)) or ENOMEM; on failure *out
// and errno are left as they are.
EBB_EXPORT int ebb_posix_memalign(void **out, size_t align, size_t bytes) EBB_NOEXCEPT;

// Bytes that may be used at p, at least what was asked for and the same for the block's life; 0 for
// NULL. O(1).
EBB_EXPORT size_t ebb_malloc_usable_size(const void *p) EBB_NOEXCEPT EBB_ADDRESS_ONLY(1);

// Returns everything to the OS that is free now, without waiting for the delay, but for what other threads keep in
// their caches for domains (ebbtide/region.h), less than an eighth of a slab where it lies in huge pages, and what nobody has had yet
// where mlockall(MCL_FUTURE) keeps it resident (docs/deploy.md). Where all memory is to
// lie in those (EBB_THP=always, or the machine is set so), slabs give back whole ones only. Returns by how much purged_bytes
// (below) has grown meanwhile, whoever returned it.
EBB_EXPORT size_t ebb_trim(void) EBB_NOEXCEPT;

// Defragmentation, for programs that can move what they hold: after much has been freed, they ask for each block that is
// left. A block is sparse if half of its slab is free or more (what lies in threads' caches is not), unless its class takes blocks
// from that slab just now. Others never are: large objects, blocks of 0 bytes, of regions, of a profile's samples, guarded
// ones, and all with EBB_CHECK=1. p: the caller's, in use; NULL is not sparse. O(1), a lock.
EBB_EXPORT int ebb_is_sparse(const void *p) EBB_NOEXCEPT EBB_ADDRESS_ONLY(1);

// Moves a sparse block into a slab that has been begun, with all of its usable size and its alignment: the new place, to which
// the caller changes its pointers; or p, where it stays, as it does where there is no other slab. Slabs that are left by all
// their blocks end at once, their pages go home after the delay or by ebb_trim. To go over all blocks once is enough,
// mostly; while other threads allocate and free, more often. Thread caches are passed by: an ebb_trim before empties the
// caller's and those of threads that sleep.
// Nobody else may use the block meanwhile, and its old place is free at once: what readers may reach under a pin or a
// hazard pointer is to be copied and retired instead. A sparse block that the thread itself has freed is reported as
// by ebb_free, if it still waits in its cache. O(usable size); never fails.
EBB_EXPORT void *ebb_compact(void *p) EBB_NOEXCEPT;

// Starts the thread that returns memory while the others sleep, for the rest of the process's life. It
// starts by itself at the program's first thread where libebbtide.so is preloaded or linked; in static
// programs, once other threads have allocated, at a call of region.h or reclaim.h that finds memory to
// return. malloc and free never create a thread. For static programs, and for those with one thread. 0, or -1 with errno = EAGAIN: refused, or EBB_PURGE_THREAD=0.
// Not in a child of vfork, and not in an atfork handler.
EBB_EXPORT int ebb_helper_start(void) EBB_NOEXCEPT;

// What the process holds, in bytes unless named otherwise. The resident_* items add up to
// `resident` exactly. Blocks in magazines and on their way to another thread's heap are cached, not
// live; blocks that wait for a grace period are live until it is over, and with EBB_CHECK=1 what is held back is, and all
// that is live by its full size. What running threads do in the meantime may be missed. A page that was only read takes no
// memory, and counts in none; before Linux 6.7, or without /proc, as resident all the same, where the others make up for it.
struct ebb_stats {
    size_t resident; // VmRSS; the sum of our own items where /proc cannot be read
    size_t
        resident_live; // pages' parts under what the program asked for, once did of an object that realloc has cut, or may still want behind one above 128 KiB that realloc has grown: an eighth
    size_t
        resident_rounding; // parts that rounding up to block sizes added (an estimate by sampling), and behind large objects
    size_t resident_cached; // parts under blocks in magazines
    size_t resident_pinned; // parts under free blocks, on pages with others in use or in magazines
    size_t resident_free;   // whole pages that are free, not yet returned
    size_t resident_metadata; // headers, bitmaps, heaps
    size_t
        resident_other; // not ours: code, stacks, files, other mappings; and a huge object's that the OS refused to unmap
    size_t live_bytes;       // blocks and large objects in use, by their usable size
    size_t live_blocks;      // their number
    size_t cached_bytes;     // in magazines, by their full size, on untouched pages too
    size_t slab_bytes;       // address space of slabs, regions' included
    size_t large_bytes;      // spans of large objects, and of sampled blocks
    size_t huge_bytes;       // mappings of huge objects
    size_t committed_bytes;  // arena made usable so far
    size_t reserved_bytes;   // arena address space
    size_t purged_bytes;     // returned to the OS since the start
    size_t heaps;            // number, abandoned ones included
    size_t slabs;            // number
    size_t asked_huge_bytes; // asked for as huge pages and not split since (EBB_THP=auto)
};

// A snapshot. O(slabs), with a system call for each: not for hot paths. Threads whose malloc or free
// needs their heap's lock wait for the end of it. Maps memory of its own for the time, a word a cached
// block; where that is refused, cached blocks are an estimate. Below a filter of system calls that the process has set
// itself all pages in use count as resident, and `resident` is the sum of the others (not with libebbtide.a, which
// does not see that it is set: the filter must allow mincore and ioctl).
EBB_EXPORT void ebb_stats_get(struct ebb_stats *stats) EBB_NOEXCEPT;

// The snapshot as text or as JSON, NUL-terminated, cut to `size`. Returns the length that the whole
// would have, as snprintf does. Does not allocate.
EBB_EXPORT size_t ebb_stats_text(char *out, size_t size) EBB_NOEXCEPT;
EBB_EXPORT size_t ebb_stats_json(char *out, size_t size) EBB_NOEXCEPT;

// Of one size class. Blocks that wait for a grace period are live until it is over.
struct ebb_class_stats {
    size_t
        block_bytes; // size of its blocks; 0: those of malloc(0), which lie in slabs without access
    size_t slabs;    // number
    size_t live_blocks;   // in use
    size_t cached_blocks; // free in magazines
    size_t free_blocks;   // free in slabs
    size_t dirty_bytes;   // in free blocks, not yet returned, as in the snapshot
    size_t pinned_bytes;  // in free blocks, beside blocks in use, as in the snapshot
};

// The accounts of the heap, class by class, in bytes unless named otherwise: what it has handed out, whether the
// program has touched it or not. What ebb_stats says of resident pages it says nothing of, and costs no pause. Samples of a
// profile count as spans, by their bytes; what they take beyond that, up to their page's end, is in no account. Guarded
// blocks have spans of their own, and count as those; with EBB_CHECK=1 what is held back is live. Freed large objects that a
// thread keeps are cached, and spans as well. Slabs of which no page can be free, as few of their blocks are, are not looked
// at; in huge pages, what is free stays until it is an eighth of a slab, and is pinned as well.
#define EBB_SNAPSHOT_CLASSES 96
struct ebb_snapshot {
    uint64_t taken_ms;   // when, CLOCK_MONOTONIC_COARSE
    size_t live_bytes;   // blocks of classes in use, by their full size
    size_t cached_bytes; // blocks in magazines, and freed large objects that a thread keeps
    size_t free_bytes;   // free blocks of slabs
    size_t
        dirty_bytes; // of them, freed since their pages were looked at, if they ever are: see below
    size_t
        pinned_bytes; // of them, at most, left there then, as blocks in use or in caches lie on the same pages
    size_t slab_bytes;       // address space of slabs, regions' not included
    size_t span_bytes;       // other spans: large objects, regions, the allocator's own
    size_t dirty_span_bytes; // free spans and kept mappings, not yet returned
    size_t huge_bytes;       // mappings of huge objects
    size_t huge_count;       // number
    size_t committed_bytes;  // arena made usable so far
    size_t reserved_bytes;   // arena address space
    size_t asked_huge_bytes; // asked for as huge pages and not split since, huge objects included
    size_t purged_bytes;     // returned to the OS since the start
    size_t purges;           // number of calls for that, but for slabs'
    size_t slabs;            // number
    size_t heaps;            // number, abandoned ones included
    size_t class_count;      // rows, the smallest class first
    struct ebb_class_stats classes[EBB_SNAPSHOT_CLASSES]; // by class
};

// O(threads * classes). Each heap is locked for the time that it takes to add it up, some microseconds; none waits for the
// others. So what threads do meanwhile may be counted twice or not at all. Allocates nothing.
EBB_EXPORT void ebb_snapshot_get(struct ebb_snapshot *snapshot) EBB_NOEXCEPT;

// Of a thread that has allocated or freed.
struct ebb_thread_stats {
    uint64_t thread;      // the kernel's number of it, as gettid(2) has it
    size_t cached_bytes;  // in its magazines, and in freed large objects that it keeps
    size_t retired_bytes; // of blocks that it has retired into the default collector, and that wait
    uint64_t
        taken_bytes; // of blocks up to 128 KiB that have come into its magazines since its heap began
};

// Up to `count` threads, in no order. Returns how many there are. What they have for domains is in the classes' figures
// alone. A heap goes from a thread that has ended to one that begins, and its taken_bytes with it: differences of them say
// what the thread allocates, but for what still lay in its magazines. O(threads * classes); each heap is locked for some
// microseconds, one after the other. Allocates nothing.
EBB_EXPORT size_t ebb_threads_get(struct ebb_thread_stats *lines, size_t count) EBB_NOEXCEPT;

// The name of option `index` (0, 1, ...), its value in force (bytes, milliseconds, or the number of
// its word, see docs/options.md) and whether it was set, by the environment, by another process
// (`ebb options`) or by mallopt. NULL past the last.
EBB_EXPORT const char *ebb_option_value(unsigned index, size_t *value, int *is_set) EBB_NOEXCEPT;

// "major.minor.patch".
EBB_EXPORT const char *ebb_version(void) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
