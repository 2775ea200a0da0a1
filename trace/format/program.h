// SPDX-License-Identifier: MIT OR Apache-2.0
// A compiled recording: what each thread of a replay does, in words of eight bytes. Made by `ebb-trace compile` for
// one replay on the same machine; never kept.
//
//   file  = struct program_head, words of all chunks, struct program_chunk[chunks]
//
// An operation is one word: kind (the upper 4 bits), slot (28), argument (32: the size). A wide one has two more: the
// size, and how many bytes are touched (the upper 56 bits) with the alignment's log2. A realloc's argument is the slot
// that it empties; the one that it fills is another where there are several threads, so that who waits for the new object
// cannot take the old one.
// A slot holds one live object. Rules that let threads share slots without locks:
// S1  a slot that a thread frees is used again in a chunk whose turn is above that thread's next mark: then the turn
//     has passed from one to the other, and none that waits for the slot's next object can see the last one.
// S2  a free of another thread's object waits until the slot is filled, which happens in a chunk that has begun (P2).
#ifndef EBB_TRACE_PROGRAM_H
#define EBB_TRACE_PROGRAM_H

#include <stdint.h>

#define PROGRAM_MAGIC "EBBREPLY"

enum {
    PROGRAM_VERSION = 2,
    SLOT_BITS = 28,
    SAMPLES = 512,       // of memory over the run, about
    CHUNK_WORDS = 8192,  // at most
    OPERATION_WORDS = 3, // of a wide one, a realloc, a mark and a sample
};

#define SLOT_MASK (((uint64_t)1 << SLOT_BITS) - 1)
#define TURN_MASK (((uint64_t)1 << 60) - 1)

enum operation {
    DO_MALLOC,
    DO_CALLOC,
    DO_FREE,
    DO_FREE_OTHERS,
    DO_WIDE_MALLOC,
    DO_WIDE_CALLOC,
    DO_WIDE_ALIGNED,
    DO_REALLOC,
    DO_REALLOC_OTHERS,
    DO_MARK,   // slot and argument: the turn; words: microseconds since the first mark, net bytes
    DO_SAMPLE, // words: events before it, bytes that are live
    DO_SPAWN,  // the argument is a thread
    DO_START,  // inherited objects are there: what follows is counted
};

enum { DO_WIDER = DO_WIDE_MALLOC - DO_MALLOC }; // from an operation to its wide form

struct program_head {
    char magic[8];
    uint32_t version;
    uint32_t threads;
    uint32_t first; // the thread of the first turn
    uint32_t check; // trace_check of this head, with zero here, plus that of the chunks' table
    uint64_t slots;
    uint64_t chunks;
    uint64_t chunks_at; // offset in the file
    uint64_t turns;
    uint64_t events;
    uint64_t samples;
    uint64_t peak_bytes; // of what is live
    uint64_t end_bytes;
    uint64_t inherited; // objects that are made before the events
};

struct program_chunk {
    uint64_t at; // offset in the file
    uint32_t words;
    uint32_t thread; // those of a thread stand together, in their order
    uint32_t check;  // trace_check of the words
    uint32_t unused;
};

#endif
