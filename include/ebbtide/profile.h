// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide: a sampled heap profile of the running process: by which stacks the memory in use was allocated, and all that
// was allocated since the profile began. `EBB_PROFILE=524288,FILE` does the same from a program's start to its end
// without a change to it.
//
// Of all bytes that malloc and the like hand out, points are chosen at random, one in `mean` bytes on the
// average, and the allocations that they fall into are the samples (a Poisson process, as tcmalloc and jemalloc
// have it). Each stands for 1 / (1 - exp(-size / mean)) allocations of its size: the sums by stack are without bias, and
// of n samples their standard error is about 1 / sqrt(n).
//
// While it is off, malloc and free of up to 32 KiB pay nothing, larger and aligned ones a dozen instructions at most.
// While it is on, a malloc takes 20 instructions more, some 2 ns; a free costs the same as ever. A sample takes
// 0.6 to 1.8 us for stacks of 7 to 66 calls, and has a span of its own until it is freed: 64 KiB of address space, of which the pages that
// it touches are resident, or all of it where memory lies in huge pages. At the default mean recordings of real programs
// had up to 8 % more memory, one of 16 MB 3 MB more; with a mean of 4 KiB it is many times what is in use. Sums and
// stacks: up to 73 MiB of address space, 168 bytes a stack, 8 a call, and 40 a sample in use. That is room for 131,071
// stacks of 32 calls on the average; the samples of others count under a stack without calls. With EBB_CHECK=1 each
// sample lies between pages without access; while 8,192 blocks do, those of up to 128 KiB are no samples.
//
// Stacks are found by the call frame information that compilers write for exceptions (.eh_frame), and by frame pointers
// where there is none: code made at run time, assembler, libraries built without it, as musl itself is. A stack
// that cannot be followed further ends there, and one of more than 64 calls is cut after the innermost 64. A program
// linked by -static needs -Wl,--eh-frame-hdr, which `pkg-config --static --libs ebbtide` and CMake's target name: without
// it its stacks are empty.
//
// A realloc counts as a free and an allocation of the new size, whether or not the block moves. A block that is retired
// is in use until it is freed, after its grace period.
//
// Not sampled: what regions allocate, or leave to the heap once they are closed, what Ebbtide needs for itself, and
// allocations before the profile began, although they may be in use. Everything is thread-safe, and none of it is for signal
// handlers. The child of a fork() goes on with the profile, but where another thread was in dlopen or dlclose at the fork it must not
// write one: the loader's lock is never free there again.
#ifndef EBBTIDE_PROFILE_H
#define EBBTIDE_PROFILE_H

#include <ebbtide.h>

#ifdef __cplusplus
extern "C" {
#endif

// From now on, in all threads. `mean`: bytes from one sample to the next on the average, from 1 to 2^40; 0: 512 KiB. When it is
// on already, it goes on with this mean. 0; or -1 with errno: EINVAL; ENOMEM, its memory was
// refused. O(threads); takes a lock that
// threads take as they come and go.
EBB_EXPORT int ebb_profile_start(size_t mean) EBB_NOEXCEPT;
// No more samples. Those that have been taken stay known, and leave what is in use when they are freed; a later
// start goes on from there. O(threads).
EBB_EXPORT void ebb_profile_stop(void) EBB_NOEXCEPT;

// Writes what is known to a file, new or in place of what it held (of two at once one, or neither): pprof's profile.proto,
// not compressed, in whose names a byte that is no UTF-8 is a ?, which
// `go tool pprof`, Grafana, Parca and speedscope read. Five values a stack: alloc_objects, alloc_space,
// inuse_objects, inuse_space, and pinned_space: bytes of free memory that what is in use keeps from going back, since it
// lies on the same pages (of blocks up to 16 KiB, in no domain, not with EBB_CHECK). They are split by pprof's
// labels: what is in use by `thread` (which allocated it: its number, and its name if it still runs), `label` (of the
// domain that it is of) and `age`; what was freed by `lifetime`, from its allocation to its free. Both are lengths of
// time: <1ms, <10ms, <100ms, <1s, <10s, <1min, <1h, >=1h. Beyond 524,287 samples in use, what is in use more has none of
// these, nor has what came meanwhile. Functions have no names in it: whoever reads it finds them in the programs and
// libraries, whose build ids are in it (of a library that has been closed meanwhile it does not). Other threads go on
// meanwhile, and what they change may be in it. An empty profile before the first start. 0; or -1 with errno: ENOMEM,
// EFAULT for NULL, ENXIO for a FIFO that nobody reads, or as open(2) and write(2) say. No point of cancellation. O(stacks and samples in use).
EBB_EXPORT int ebb_profile_write(const char *file) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
