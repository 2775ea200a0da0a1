// SPDX-License-Identifier: MIT OR Apache-2.0
// Events of the calling thread. Those of a stream stand in its slot as soon as they are made: `bytes` grows last.
#include <time.h>

#include "trace/record/record.h"

static uint64_t turns; // the next turn; atomic

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000;
}

// Of a recording that has stopped the events stay in the slot: what a thread can't write down any more is missing from
// its end alone, and no event of another thread is about it.
bool make_room(struct stream *stream)
{
    lock_store();
    flush_slot(stream->slot);
    unlock_store();
    return stream->slot->bytes == 0;
}

static unsigned char *room(struct stream *stream)
{
    return stream->slot->events + stream->slot->bytes;
}

static void publish(struct stream *stream, const unsigned char *end)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    stream->slot->bytes = (uint32_t)(end - stream->slot->events);
}

static void mark(struct stream *stream)
{
    // seq_cst: turns are in the order of what the threads see of one another
    uint64_t turn = __atomic_fetch_add(&turns, 1, __ATOMIC_SEQ_CST);
    publish(stream, trace_put_mark(&stream->coder, room(stream), turn, now_us(), stream->net));
    stream->chunk_events = 0;
}

static void note_lost(struct stream *stream)
{
    unsigned char *at = trace_put_op(room(stream), TRACE_MORE, TRACE_LOST);
    publish(stream, trace_put(at, stream->lost));
    stream->lost = 0;
}

// Where the next event goes. Before it comes a mark, if the thread was away or its chunk is full.
static unsigned char *next(struct stream *stream)
{
    uint64_t ticks = read_ticks();
    uint32_t most = is_alone() ? TRACE_CHUNK_EVENTS_ALONE : TRACE_CHUNK_EVENTS;
    if (ticks - stream->ticks > idle_ticks() || stream->chunk_events >= most) {
        mark(stream);
    }
    if (stream->lost != 0) {
        note_lost(stream);
    }
    stream->ticks = ticks;
    stream->chunk_events++;
    return room(stream);
}

// P2 of format.h: an object of another thread ends in a chunk behind the one that made it.
static unsigned char *next_after(struct stream *stream, const struct header *header)
{
    if ((int32_t)(header->turn - (uint32_t)stream->coder.turn) >= 0) {
        mark(stream);
    }
    return next(stream);
}

void open_stream(struct stream *stream)
{
    stream->ticks = read_ticks();
    mark(stream);
}

void note_made(struct stream *stream, enum trace_kind kind, uint64_t size, uint32_t small)
{
    unsigned char *at = next(stream);
    at = kind == TRACE_ALIGNED ? trace_put(trace_put_op(at, kind, small), size)
                               : trace_put_size(&stream->coder, at, kind, size);
    stream->coder.made++;
    stream->net += (int64_t)size;
    publish(stream, at);
}

static bool is_inherited(const struct header *header) { return header->thread < first_thread(); }

static unsigned char *put_object(unsigned char *at, enum trace_more more,
                                 const struct header *header)
{
    at = trace_put_op(at, TRACE_MORE, (uint32_t)more);
    return trace_put(trace_put(at, header->thread), header->object);
}

void note_free(struct stream *stream, const struct header *header)
{
    unsigned char *at;
    if (header->thread == stream->thread) {
        at = trace_put_free(&stream->coder, next(stream), header->object);
    } else if (is_inherited(header)) {
        at = trace_put(put_object(next(stream), TRACE_FREE_INHERITED, header), header->size);
    } else {
        at = next_after(stream, header);
        at = trace_put_free_others(&stream->coder, at, header->thread, header->object);
    }
    stream->net -= (int64_t)header->size;
    publish(stream, at);
}

void note_realloc(struct stream *stream, const struct header *header, uint64_t size)
{
    unsigned char *at;
    if (header->thread == stream->thread) {
        at = trace_put_size(&stream->coder, next(stream), TRACE_REALLOC, size);
        at = trace_put(at, stream->coder.made - 1 - header->object);
    } else if (is_inherited(header)) {
        at = trace_put(put_object(next(stream), TRACE_REALLOC_INHERITED, header), header->size);
        at = trace_put(at, size);
    } else {
        at = trace_put(put_object(next_after(stream, header), TRACE_REALLOC_OTHERS, header), size);
    }
    stream->coder.made++;
    stream->net += (int64_t)(size - header->size);
    publish(stream, at);
}

void note_touched(struct stream *stream, const struct header *header, uint64_t pages)
{
    unsigned char *at = put_object(next(stream), TRACE_TOUCHED, header);
    publish(stream, trace_put(at, pages));
}
