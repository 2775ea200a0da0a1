// SPDX-License-Identifier: MIT OR Apache-2.0
// Where a request's memory comes from: the only file of the server that knows Ebbtide. A phase is one
// request; what is allocated in it leaves at its end, in the way that --policy says:
//
//   malloc        block by block, from whatever malloc the process has
//   domain        the same calls, between ebb_domain_enter and ebb_leave; each request ends an epoch
//   domain-N      the same, every N requests of a worker end one (N from 1)
//   domain-never  the same, one epoch for ever
//   region        from a region by name, opened and released for each request
//   region-reset  from a region by name, one for each worker, reset after each request
//
// Ebbtide's functions are looked up in the running process, so one program runs under any allocator.
#ifndef EBB_BENCH_HTTP_MEMORY_H
#define EBB_BENCH_HTTP_MEMORY_H

#include <ebbtide/region.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The phases of one worker; only its thread uses it.
struct phase {
    struct ebb_region *region;
    struct ebb_scope before;
    uint64_t allocations;
    uint64_t bytes;
    uint64_t failed;
    uint64_t failed_before; // the phase that is running
};

// Before any thread. 0, or -1 after a line on stderr: no such policy, or one that wants Ebbtide in a
// process that does not have it.
int memory_choose(const char *policy);
// Whether blocks leave one by one; otherwise they leave with the phase, and phase_free does nothing.
bool memory_frees_blocks(void);

// In the worker's thread, at its start and end.
void phase_open(struct phase *phase);
void phase_close(struct phase *phase);

// 0, or -1 when memory is refused: then there is no phase. Phases do not nest.
int phase_begin(struct phase *phase);
void phase_end(struct phase *phase);

// In the calling thread's phase, which must have begun. NULL when memory is refused, which is counted.
void *phase_alloc(size_t bytes);
void phase_free(void *p);
// Whether one was refused since the phase began: a library may tell it as another error.
bool phase_has_failed(void);

// Between them plain malloc is that of the whole process: for what is to outlive the phase.
struct ebb_scope phase_leave_for_heap(void);
void phase_return(struct ebb_scope before);

#endif
