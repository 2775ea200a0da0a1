// SPDX-License-Identifier: MIT OR Apache-2.0
// The file of a recording: what a process asked of malloc, thread by thread.
//
//   file    = "EBBTRACE" version(u32) length(u32) text block* [trailer]
//   text    = lines of name=value (command, pid, page_bytes, first_thread, libc)
//   block   = struct trace_block, payload: events of one thread, compressed by zstd if that is shorter
//   trailer = a block of thread TRACE_NO_THREAD: the recording was finished, not cut off
//
// All numbers are little-endian. The events of a thread are one stream, cut into blocks between events;
// its coder (coder.h) goes on from block to block. Blocks of different threads mix in any order.
//
// Objects. Each malloc, calloc, aligned allocation and realloc of thread T makes object (T, n), where n counts
// T's own; a realloc also ends the object that it was given. Threads have numbers in the order of their first event;
// numbers below first_thread belong to the process that forked this one: their objects are inherited.
//
// Order. The first event of a stream, and one in at most TRACE_CHUNK_EVENTS after it, is a mark: it takes the next
// turn of a counter that all threads share. Events between two marks of a stream are a chunk.
// P1  turns are unique; those of one stream grow.
// P2  a thread ends an object of another thread in a chunk whose turn is above that of the chunk that made it.
// P3  hence the chunks, one after the other by turn, are an order in which every object is made before it ends, and
//     which no thread contradicts.
// P4  the blocks of a thread follow one another: each begins at the offset where the one before it ended.
// P5  the sum of `net` over a stream's marks is, at each mark, the bytes that the thread made less those that it ended.
#ifndef EBB_TRACE_FORMAT_H
#define EBB_TRACE_FORMAT_H

#include <stdint.h>

#define TRACE_MAGIC "EBBTRACE"

enum {
    TRACE_VERSION = 1,
    TRACE_TEXT_MAX = 65536,
    TRACE_BLOCK_MAGIC = 0x314b4245, // "EBK1"
    TRACE_RAW_BYTES = 1 << 16,      // a block's payload before compression, at most
    TRACE_EVENT_MAX_BYTES = 64,     // one event, at most
    TRACE_CHUNK_EVENTS = 128,       // while there are several threads
    TRACE_CHUNK_EVENTS_ALONE = 4096,
    TRACE_IDLE_NS = 1000000,  // a thread that was away for so long marks its return
    TRACE_LARGE = 128 * 1024, // from here on it is recorded how much of a block was touched
};

#define TRACE_NO_THREAD UINT32_MAX

struct trace_start {
    char magic[8];
    uint32_t version;
    uint32_t text_bytes;
};

struct trace_block {
    uint32_t magic;
    uint32_t thread;
    uint64_t offset;       // of its first event in the thread's stream, in bytes before compression
    uint32_t raw_bytes;    // of the events
    uint32_t stored_bytes; // of the payload; equal to raw_bytes: not compressed
    uint32_t check;        // block_check, with zero here
    uint32_t ends;         // 1: the thread has ended, this is its last block
};

// Beside the file, while the process runs: the events that are not in a block yet, in memory that the process shares
// with a file, FILE.spool. What a killed process leaves there is appended to the recording by `ebb-trace finish`.
//
//   spool = struct trace_spool, padded to TRACE_SLOT_BYTES; then slots of TRACE_SLOT_BYTES each
struct trace_spool {
    uint32_t magic;
    uint32_t version;
    uint32_t slots; // that have ever been in use
};

struct trace_slot {
    uint32_t is_used;
    uint32_t thread;
    uint64_t offset; // as a block's
    uint32_t bytes;  // of events; a block that has them already begins at `offset`, too
    uint32_t ends;
    unsigned char events[TRACE_RAW_BYTES];
};

enum { TRACE_SPOOL_MAGIC = 0x314c5053, TRACE_SLOT_BYTES = TRACE_RAW_BYTES + 4096 };

_Static_assert(sizeof(struct trace_slot) <= TRACE_SLOT_BYTES, "a slot has room for its events");

// FNV-1a over words: finds what was cut or overwritten, not what was forged.
static inline uint32_t trace_check(const void *data, uint32_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    uint64_t sum = 0xcbf29ce484222325U ^ bytes;
    uint32_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        __builtin_memcpy(&word, at + i, 8);
        sum = (sum ^ word) * 0x100000001b3U;
        sum ^= sum >> 29;
    }
    for (; i < bytes; i++) {
        sum = (sum ^ at[i]) * 0x100000001b3U;
    }
    return (uint32_t)(sum ^ (sum >> 32));
}

static inline uint32_t block_check(struct trace_block block, const void *payload)
{
    block.check = 0;
    return trace_check(payload, block.stored_bytes) ^ trace_check(&block, sizeof block) * 31;
}

#endif
