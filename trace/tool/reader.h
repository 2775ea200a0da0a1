// SPDX-License-Identifier: MIT OR Apache-2.0
// A recording, read as it stands in memory; nothing in the file is believed. What is wrong with it is one line, given
// to fail(), which ends the program with status 1.
#ifndef EBB_TRACE_READER_H
#define EBB_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/format/coder.h"
#include "trace/format/format.h"

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *need(void *memory); // fails where memory was refused

// output.c: a file that has its name when it is whole. fail() drops it.
int output_open(const char *path);
void output_keep(void);
void output_drop(void);

struct stream {
    uint32_t thread;
    size_t first, count; // of recording.blocks
};

struct recording {
    const char *path;
    const unsigned char *data;
    size_t bytes, whole_bytes; // up to the end of the last block
    const char *text;          // not terminated
    uint32_t text_bytes;
    const struct trace_block **blocks; // by thread, then by offset
    size_t block_count;
    struct stream *streams; // by thread
    size_t stream_count;
    uint32_t first_thread;
    bool is_finished; // has its trailer
};

// The value of a line of the text; its length.
const char *recording_value(const struct recording *recording, const char *name, int *length);
void recording_open(struct recording *recording, const char *path);
void recording_open_cut(struct recording *recording,
                        const char *path); // its last block may be cut off
void recording_close(struct recording *recording);

enum event_kind { MADE, ENDED, RESIZED, MARKED, TOUCHED, LOST };

struct event {
    enum event_kind kind;
    enum trace_kind how;  // of MADE: malloc, calloc or aligned
    uint32_t thread;      // of the object that ends, is resized or was touched
    uint64_t object;      // the same; of MADE: the new one
    uint64_t made;        // of RESIZED: the new object
    uint64_t size;        // of MADE, RESIZED
    uint64_t old_size;    // of inherited objects that end or are resized
    uint32_t align_shift; // of an aligned one
    uint64_t turn, time_us, pages, lost;
    int64_t net;
};

// Where a reader of a stream is.
struct cursor {
    const struct recording *recording;
    const struct stream *stream;
    size_t next_block;
    uint64_t offset;
    struct trace_coder coder;
    unsigned char *events; // TRACE_RAW_BYTES
    const unsigned char *at, *end;
};

void cursor_open(struct cursor *cursor, const struct recording *recording,
                 const struct stream *stream);
bool cursor_next(struct cursor *cursor, struct event *event); // false: the stream has ended
void cursor_close(struct cursor *cursor);

#endif
