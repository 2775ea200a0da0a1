// SPDX-License-Identifier: MIT OR Apache-2.0
// Replay of a compiled recording (format/program.h): the same calls, by as many threads, in an order that the turns
// allow. Links to libc alone; the allocator under test is preloaded.
//
// What the replay itself needs is shared memory and page cache, so that the process's own anonymous memory is
// the allocator's: slots, buffers and samples are mapped MAP_SHARED, the program is read by pread.
//
//   main.c     arguments, start and end
//   program.c  the program's chunks
//   threads.c  the loop over a thread's operations; damage that it finds
//   order.c    turns: who may go on
//   memory.c   samples of memory
//   report.c   JSON
#ifndef EBB_TRACE_REPLAY_H
#define EBB_TRACE_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/format/program.h"

struct slot {
    void *block; // NULL: empty. Atomic where threads hand over.
    uint64_t size;
};

struct sample {
    uint64_t events, live_bytes, anonymous_bytes, time_us;
};

// What went wrong, first of each; the counts are of all.
struct damage {
    _Atomic uint64_t
        contents; // a block was not as it was left, or its memory not aligned, or calloc's not zero
    _Atomic uint64_t sums;    // bytes at a mark differ from those of the recording
    _Atomic uint64_t refused; // NULL
    _Atomic uint64_t refused_bytes;
};

struct replay {
    int fd;
    struct program_head head;
    const struct program_chunk *chunks;
    const uint64_t *first_chunk; // of each thread, and one more
    struct slot *slots;
    struct sample *samples;
    uint64_t sample_count; // under sampling
    struct damage damage;
    _Atomic uint64_t sampling_ns; // CPU time that samples took
    uint64_t start_us;
    // options
    bool is_serial, is_paced, is_floor, has_samples;
    uint64_t settle_ms;
};

extern struct replay replay;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *map_shared(size_t bytes);
void read_program(void *to, uint64_t bytes, uint64_t at);

// program.c
void open_program(const char *path);

// threads.c
void run_first_thread(void);
void await_threads(void);

// order.c
void order_open(void);
void wait_for_turn(uint64_t turn); // and takes it
void pass_turn(uint64_t next);     // serial: the chunk has ended

// memory.c
void memory_open(void);
void take_sample(uint64_t events, uint64_t live_bytes);
uint64_t anonymous_bytes(void);
uint64_t now_us(void);

// report.c
struct spent {
    double wall_s, cpu_s;
    long minor_faults;
};
void spent_start(struct spent *spent);
void spent_stop(struct spent *spent);
int report(const struct spent *spent, uint64_t end_bytes, uint64_t settled_bytes);

#endif
