// SPDX-License-Identifier: MIT OR Apache-2.0
#include "trace/tool/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

void fail(const char *format, ...)
{
    output_drop();
    va_list values;
    va_start(values, format);
    fputs("ebb-trace: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

void *need(void *memory)
{
    if (memory == NULL) {
        fail("out of memory");
    }
    return memory;
}

static void map_file(struct recording *recording)
{
    int fd = open(recording->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        fail("cannot open %s: %s", recording->path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode) || status.st_size < (off_t)sizeof(struct trace_start)) {
        fail("%s is no recording", recording->path);
    }
    recording->bytes = (size_t)status.st_size;
    void *data = mmap(NULL, recording->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (data == MAP_FAILED) {
        fail("cannot map %s: %s", recording->path, strerror(errno));
    }
    recording->data = data;
}

static size_t read_start(struct recording *recording)
{
    struct trace_start start;
    memcpy(&start, recording->data, sizeof start);
    if (memcmp(start.magic, TRACE_MAGIC, sizeof start.magic) != 0) {
        fail("%s is no recording", recording->path);
    }
    if (start.version != TRACE_VERSION) {
        fail("%s has version %u; this program reads version %d", recording->path, start.version,
             TRACE_VERSION);
    }
    if (start.text_bytes > TRACE_TEXT_MAX || start.text_bytes > recording->bytes - sizeof start) {
        fail("%s is cut off in its first lines", recording->path);
    }
    recording->text = (const char *)recording->data + sizeof start;
    recording->text_bytes = start.text_bytes;
    return sizeof start + start.text_bytes;
}

const char *recording_value(const struct recording *recording, const char *name, int *length)
{
    size_t name_length = strlen(name);
    const char *line = recording->text, *end = recording->text + recording->text_bytes;
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop != NULL ? stop : end;
        if ((size_t)(stop - line) > name_length && line[name_length] == '=' &&
            memcmp(line, name, name_length) == 0) {
            *length = (int)(stop - line - (ptrdiff_t)name_length - 1);
            return line + name_length + 1;
        }
        line = stop + 1;
    }
    *length = 0;
    return "";
}

static uint32_t read_first_thread(const struct recording *recording)
{
    int length;
    const char *text = recording_value(recording, "first_thread", &length);
    uint64_t value = 0;
    for (int i = 0; i < length; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
        if (text[i] < '0' || text[i] > '9' || value > UINT32_MAX) {
            fail("%s: first_thread is no number below 2^32", recording->path);
        }
    }
    return (uint32_t)value;
}

static bool is_sound(const struct trace_block *block, size_t room)
{
    return block->magic == TRACE_BLOCK_MAGIC && block->raw_bytes <= TRACE_RAW_BYTES &&
           block->stored_bytes <= block->raw_bytes && block->stored_bytes <= room;
}

static void add_block(struct recording *recording, const struct trace_block *block, size_t *room)
{
    if (recording->block_count == *room) {
        *room = *room * 2 + 64;
        recording->blocks = need(realloc(recording->blocks, *room * sizeof(void *)));
    }
    recording->blocks[recording->block_count++] = block;
}

// Blocks lie at any byte: their numbers are read by copying.
static struct trace_block block_at(const void *at)
{
    struct trace_block block;
    memcpy(&block, at, sizeof block);
    return block;
}

static void read_blocks(struct recording *recording, size_t at)
{
    size_t room = 0;
    while (recording->bytes - at >= sizeof(struct trace_block)) {
        struct trace_block block = block_at(recording->data + at);
        if (!is_sound(&block, recording->bytes - at - sizeof block)) {
            break;
        }
        if (block.thread == TRACE_NO_THREAD && block_check(block, NULL) == block.check) {
            recording->is_finished = true;
            at += sizeof block;
            break;
        }
        add_block(recording, (const void *)(recording->data + at), &room);
        at += sizeof block + block.stored_bytes;
    }
    recording->whole_bytes = at;
}

static int compare(const void *left, const void *right)
{
    struct trace_block a = block_at(*(const void *const *)left),
                       b = block_at(*(const void *const *)right);
    if (a.thread != b.thread) {
        return a.thread < b.thread ? -1 : 1;
    }
    return a.offset == b.offset ? 0 : a.offset < b.offset ? -1 : 1;
}

static void find_streams(struct recording *recording)
{
    if (recording->block_count > 0) {
        qsort(recording->blocks, recording->block_count, sizeof(void *), compare);
    }
    recording->streams = need(calloc(recording->block_count + 1, sizeof(struct stream)));
    for (size_t i = 0; i < recording->block_count; i++) {
        uint32_t thread = block_at(recording->blocks[i]).thread;
        struct stream *last = recording->streams + recording->stream_count - 1;
        if (recording->stream_count == 0 || last->thread != thread) {
            recording->streams[recording->stream_count++] = (struct stream){thread, i, 1};
        } else {
            last->count++;
        }
        if (thread < recording->first_thread) {
            fail("%s has events of a thread that it inherits", recording->path);
        }
    }
}

void recording_open_cut(struct recording *recording, const char *path)
{
    *recording = (struct recording){.path = path};
    map_file(recording);
    size_t at = read_start(recording);
    recording->first_thread = read_first_thread(recording);
    read_blocks(recording, at);
    find_streams(recording);
}

void recording_open(struct recording *recording, const char *path)
{
    recording_open_cut(recording, path);
    if (recording->whole_bytes != recording->bytes) {
        fail("%s is damaged or cut off at byte %zu", path, recording->whole_bytes);
    }
}

void recording_close(struct recording *recording)
{
    free(recording->blocks);
    free(recording->streams);
    (void)munmap((void *)(uintptr_t)recording->data, recording->bytes);
}

void cursor_open(struct cursor *cursor, const struct recording *recording,
                 const struct stream *stream)
{
    *cursor =
        (struct cursor){.recording = recording, .stream = stream, .next_block = stream->first};
    cursor->events = need(malloc(TRACE_RAW_BYTES));
}

void cursor_close(struct cursor *cursor)
{
    free(cursor->events);
    cursor->events = NULL;
}

static _Noreturn void damaged(const struct cursor *cursor, const char *what)
{
    fail("%s is damaged: %s (thread %u, byte %llu of its events)", cursor->recording->path, what,
         cursor->stream->thread,
         (unsigned long long)(cursor->offset - (uint64_t)(cursor->end - cursor->at)));
}

static void unpack(struct cursor *cursor, const struct trace_block *block,
                   const unsigned char *payload)
{
    if (block_check(*block, payload) != block->check) {
        damaged(cursor, "a block's check does not hold");
    }
    if (block->stored_bytes == block->raw_bytes) {
        memcpy(cursor->events, payload, block->raw_bytes);
        return;
    }
    size_t bytes = ZSTD_decompress(cursor->events, TRACE_RAW_BYTES, payload, block->stored_bytes);
    if (ZSTD_isError(bytes) || bytes != block->raw_bytes) {
        damaged(cursor, "a block cannot be unpacked");
    }
}

static bool next_block(struct cursor *cursor)
{
    if (cursor->next_block == cursor->stream->first + cursor->stream->count) {
        return false;
    }
    const unsigned char *at = (const void *)cursor->recording->blocks[cursor->next_block++];
    struct trace_block block = block_at(at);
    if (block.offset != cursor->offset) {
        damaged(cursor, "a block is missing, or is there twice");
    }
    unpack(cursor, &block, at + sizeof block);
    cursor->offset += block.raw_bytes;
    cursor->at = cursor->events;
    cursor->end = cursor->events + block.raw_bytes;
    return true;
}

static uint64_t get(struct cursor *cursor)
{
    uint64_t value;
    const unsigned char *at = trace_get(cursor->at, cursor->end, &value);
    if (at == NULL) {
        damaged(cursor, "a number has no end");
    }
    cursor->at = at;
    return value;
}

static uint64_t get_size(struct cursor *cursor, uint32_t small)
{
    if (small != TRACE_FOLLOWS) {
        return cursor->coder.sizes[small];
    }
    uint64_t size = get(cursor);
    cursor->coder.sizes[trace_size_place(size)] = size;
    return size;
}

static uint64_t object_of_age(struct cursor *cursor, uint64_t age)
{
    if (age >= cursor->coder.made) {
        damaged(cursor, "an object ends that was never made");
    }
    return cursor->coder.made - 1 - age;
}

static void get_free(struct cursor *cursor, uint32_t small, struct event *event)
{
    struct trace_coder *coder = &cursor->coder;
    if (small < TRACE_YOUNG) {
        event->object = object_of_age(cursor, small);
    } else if (small < TRACE_YOUNG + TRACE_NEAR) {
        event->object = coder->last_freed + (small - TRACE_YOUNG + 1);
    } else if (small < TRACE_FOLLOWS) {
        event->object = coder->last_freed - (small - TRACE_YOUNG - TRACE_NEAR + 1);
    } else {
        event->object = object_of_age(cursor, get(cursor));
    }
    coder->last_freed = event->object;
    event->thread = cursor->stream->thread;
}

static void get_free_others(struct cursor *cursor, uint32_t small, struct event *event)
{
    uint64_t thread = small != TRACE_FOLLOWS ? small : get(cursor);
    if (thread >= TRACE_NO_THREAD) {
        damaged(cursor, "no thread has such a number");
    }
    uint64_t *last = &cursor->coder.others[thread % TRACE_OWNERS];
    *last += (uint64_t)trace_unzigzag(get(cursor));
    event->thread = (uint32_t)thread;
    event->object = *last;
}

static void get_mark(struct cursor *cursor, struct event *event)
{
    struct trace_coder *coder = &cursor->coder;
    event->turn = coder->turn += get(cursor);
    event->time_us = coder->time_us += get(cursor);
    event->net = coder->net =
        (int64_t)((uint64_t)coder->net + (uint64_t)trace_unzigzag(get(cursor)));
}

static void get_object(struct cursor *cursor, struct event *event)
{
    uint64_t thread = get(cursor);
    if (thread >= TRACE_NO_THREAD) {
        damaged(cursor, "no thread has such a number");
    }
    event->thread = (uint32_t)thread;
    event->object = get(cursor);
}

static void get_more(struct cursor *cursor, uint32_t small, struct event *event)
{
    static const enum event_kind KINDS[TRACE_MORES] = {RESIZED, ENDED, RESIZED, TOUCHED, LOST};
    if (small >= TRACE_MORES) {
        damaged(cursor, "no event has such a number");
    }
    event->kind = KINDS[small];
    if (small == TRACE_LOST) {
        event->lost = get(cursor);
        return;
    }
    get_object(cursor, event);
    if (small == TRACE_TOUCHED) {
        event->pages = get(cursor);
        return;
    }
    if (small != TRACE_REALLOC_OTHERS) {
        event->old_size = get(cursor);
    }
    if (event->kind == RESIZED) {
        event->size = get(cursor);
        event->made = cursor->coder.made++;
    }
}

static void get_made(struct cursor *cursor, enum trace_kind kind, uint32_t small,
                     struct event *event)
{
    event->how = kind;
    if (kind == TRACE_ALIGNED) {
        event->align_shift = small;
        event->size = get(cursor);
    } else {
        event->size = get_size(cursor, small);
    }
    event->thread = cursor->stream->thread;
    event->object = cursor->coder.made++;
}

static void get_realloc(struct cursor *cursor, uint32_t small, struct event *event)
{
    event->size = get_size(cursor, small);
    event->thread = cursor->stream->thread;
    event->object = object_of_age(cursor, get(cursor));
    event->made = cursor->coder.made++;
}

bool cursor_next(struct cursor *cursor, struct event *event)
{
    static const enum event_kind KINDS[] = {MADE, MADE, ENDED, RESIZED, ENDED, MADE, MARKED, LOST};
    while (cursor->at == cursor->end) {
        if (!next_block(cursor)) {
            return false;
        }
    }
    uint32_t op = *cursor->at++, small = op & ((1U << TRACE_SMALL_BITS) - 1);
    enum trace_kind kind = (enum trace_kind)(op >> TRACE_SMALL_BITS);
    *event = (struct event){.kind = KINDS[kind]};
    switch (kind) {
    case TRACE_MALLOC:
    case TRACE_CALLOC:
    case TRACE_ALIGNED:
        get_made(cursor, kind, small, event);
        break;
    case TRACE_FREE:
        get_free(cursor, small, event);
        break;
    case TRACE_REALLOC:
        get_realloc(cursor, small, event);
        break;
    case TRACE_FREE_OTHERS:
        get_free_others(cursor, small, event);
        break;
    case TRACE_MARK:
        get_mark(cursor, event);
        break;
    case TRACE_MORE:
        get_more(cursor, small, event);
        break;
    }
    return true;
}
