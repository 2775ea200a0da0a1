// SPDX-License-Identifier: MIT OR Apache-2.0
// Blocks into a file. Slower and smaller than the recorder's: what is kept is read more often than it is written.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "trace/tool/tool.h"

enum { LEVEL = 19 };

struct pen {
    uint32_t thread;
    uint32_t bytes;
    uint64_t offset;
    struct trace_coder coder;
    unsigned char events[TRACE_RAW_BYTES];
};

struct writer {
    const char *path;
    int fd;
    struct pen **pens; // by thread, grown on demand
    size_t room;
};

static bool try_put(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = write(fd, at, bytes);
        if (written < 0) {
            return false;
        }
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

static void put(int fd, const char *path, const void *data, size_t bytes)
{
    if (!try_put(fd, data, bytes)) {
        fail("cannot write %s: %s", path, strerror(errno));
    }
}

bool try_write_block(int fd, const struct trace_block *block, const void *events)
{
    static unsigned char packed[TRACE_RAW_BYTES];
    struct trace_block head = *block;
    const void *payload = events;
    size_t bytes = head.raw_bytes > 1
                       ? ZSTD_compress(packed, head.raw_bytes - 1, events, head.raw_bytes, LEVEL)
                       : 0;
    head.stored_bytes = head.raw_bytes;
    if (bytes > 0 && !ZSTD_isError(bytes)) {
        head.stored_bytes = (uint32_t)bytes;
        payload = packed;
    }
    head.check = block_check(head, payload);
    return try_put(fd, &head, sizeof head) && try_put(fd, payload, head.stored_bytes);
}

static void write_block(struct writer *writer, const struct trace_block *block, const void *events)
{
    if (!try_write_block(writer->fd, block, events)) {
        fail("cannot write %s: %s", writer->path, strerror(errno));
    }
}

struct writer *writer_open(const char *path, const char *text, size_t text_bytes)
{
    struct writer *writer = need(calloc(1, sizeof *writer));
    writer->path = path;
    writer->fd = output_open(path);
    struct trace_start start = {
        .magic = TRACE_MAGIC, .version = TRACE_VERSION, .text_bytes = (uint32_t)text_bytes};
    put(writer->fd, path, &start, sizeof start);
    put(writer->fd, path, text, text_bytes);
    return writer;
}

static struct pen *pen_of(struct writer *writer, uint32_t thread)
{
    if (thread >= writer->room) {
        size_t room = thread * (size_t)2 + 16;
        writer->pens = need(realloc(writer->pens, room * sizeof(struct pen *)));
        memset(writer->pens + writer->room, 0, (room - writer->room) * sizeof(struct pen *));
        writer->room = room;
    }
    if (writer->pens[thread] == NULL) {
        writer->pens[thread] = need(calloc(1, sizeof(struct pen)));
        writer->pens[thread]->thread = thread;
    }
    return writer->pens[thread];
}

struct trace_coder *writer_coder(struct writer *writer, uint32_t thread)
{
    return &pen_of(writer, thread)->coder;
}

static void flush(struct writer *writer, struct pen *pen, uint32_t ends)
{
    struct trace_block block = {.magic = TRACE_BLOCK_MAGIC,
                                .thread = pen->thread,
                                .offset = pen->offset,
                                .raw_bytes = pen->bytes,
                                .ends = ends};
    write_block(writer, &block, pen->events);
    pen->offset += pen->bytes;
    pen->bytes = 0;
}

unsigned char *writer_room(struct writer *writer, uint32_t thread)
{
    struct pen *pen = pen_of(writer, thread);
    if (pen->bytes > TRACE_RAW_BYTES - TRACE_EVENT_MAX_BYTES) {
        flush(writer, pen, 0);
    }
    return pen->events + pen->bytes;
}

void writer_wrote(struct writer *writer, uint32_t thread, const unsigned char *end)
{
    struct pen *pen = writer->pens[thread];
    pen->bytes = (uint32_t)(end - pen->events);
}

void writer_close(struct writer *writer)
{
    for (size_t i = 0; i < writer->room; i++) {
        if (writer->pens[i] != NULL) {
            flush(writer, writer->pens[i], 1);
            free(writer->pens[i]);
        }
    }
    struct trace_block trailer = {.magic = TRACE_BLOCK_MAGIC, .thread = TRACE_NO_THREAD};
    write_block(writer, &trailer, NULL);
    if (close(writer->fd) != 0) {
        fail("cannot write %s: %s", writer->path, strerror(errno));
    }
    output_keep();
    free(writer->pens);
    free(writer);
}
