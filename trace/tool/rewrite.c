// SPDX-License-Identifier: MIT OR Apache-2.0
// Recordings made of recordings: a part, copies side by side, one without names. What is alive where a part begins is
// made by its own threads in chunks before all others; what was inherited by a thread of its own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/tool/tool.h"

struct rewriter {
    struct walk walk;
    struct writer *writer;
    uint64_t first, last; // events
    uint32_t copies;
    uint64_t next_turn;
    uint64_t *made, *nets; // by stream; behind them the thread of inherited objects
    bool *is_open;         // the stream has a mark
    uint64_t time_us;
};

static size_t inherited_stream(const struct rewriter *rewriter)
{
    return rewriter->walk.recording->stream_count;
}

static size_t stream_of(const struct rewriter *rewriter, uint32_t thread)
{
    const struct recording *recording = rewriter->walk.recording;
    size_t low = 0, high = recording->stream_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (recording->streams[middle].thread < thread) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool is_there = low < recording->stream_count && recording->streams[low].thread == thread;
    return is_there ? low : inherited_stream(rewriter);
}

// One event of one copy on its way into the writer.
struct put {
    uint32_t thread, copy;
    struct trace_coder *coder;
    unsigned char *at;
};

static struct put begin(struct rewriter *rewriter, size_t stream, uint32_t copy)
{
    uint32_t thread = (uint32_t)stream * rewriter->copies + copy;
    struct put put = {.thread = thread, .copy = copy, .at = writer_room(rewriter->writer, thread)};
    put.coder = writer_coder(rewriter->writer, thread);
    return put;
}

static void end(struct rewriter *rewriter, const struct put *put, const unsigned char *at)
{
    writer_wrote(rewriter->writer, put->thread, at);
}

static void put_mark(struct rewriter *rewriter, size_t stream)
{
    for (uint32_t copy = 0; copy < rewriter->copies; copy++) {
        struct put put = begin(rewriter, stream, copy);
        end(rewriter, &put,
            trace_put_mark(put.coder, put.at, rewriter->next_turn++, rewriter->time_us,
                           (int64_t)rewriter->nets[stream]));
    }
    rewriter->is_open[stream] = true;
}

static void put_made(struct rewriter *rewriter, size_t stream, const struct event *event)
{
    for (uint32_t copy = 0; copy < rewriter->copies; copy++) {
        struct put put = begin(rewriter, stream, copy);
        put.at =
            event->how == TRACE_ALIGNED
                ? trace_put(trace_put_op(put.at, TRACE_ALIGNED, event->align_shift), event->size)
                : trace_put_size(put.coder, put.at, event->how, event->size);
        put.coder->made++;
        end(rewriter, &put, put.at);
    }
    rewriter->nets[stream] += event->size;
}

static unsigned char *put_object(struct put *put, const struct rewriter *rewriter,
                                 enum trace_more more, size_t owner, uint64_t number)
{
    unsigned char *at = trace_put_op(put->at, TRACE_MORE, (uint32_t)more);
    at = trace_put(at, (uint32_t)owner * rewriter->copies + put->copy);
    return trace_put(at, number);
}

static void put_touched(struct rewriter *rewriter, size_t stream, size_t owner, uint64_t number,
                        uint64_t pages)
{
    for (uint32_t copy = 0; copy < rewriter->copies; copy++) {
        struct put put = begin(rewriter, stream, copy);
        end(rewriter, &put,
            trace_put(put_object(&put, rewriter, TRACE_TOUCHED, owner, number), pages));
    }
}

static void put_end(struct rewriter *rewriter, const struct step *step, size_t owner)
{
    uint64_t number = step->object.slot;
    for (uint32_t copy = 0; copy < rewriter->copies; copy++) {
        struct put put = begin(rewriter, step->stream, copy);
        end(rewriter, &put,
            owner == step->stream
                ? trace_put_free(put.coder, put.at, number)
                : trace_put_free_others(put.coder, put.at,
                                        (uint32_t)owner * rewriter->copies + copy, number));
    }
    rewriter->nets[step->stream] -= step->object.size;
}

static void put_resized(struct rewriter *rewriter, const struct step *step, size_t owner)
{
    uint64_t size = step->event.size, number = step->object.slot;
    for (uint32_t copy = 0; copy < rewriter->copies; copy++) {
        struct put put = begin(rewriter, step->stream, copy);
        if (owner == step->stream) {
            put.at = trace_put_size(put.coder, put.at, TRACE_REALLOC, size);
            put.at = trace_put(put.at, put.coder->made - 1 - number);
        } else {
            put.at =
                trace_put(put_object(&put, rewriter, TRACE_REALLOC_OTHERS, owner, number), size);
        }
        put.coder->made++;
        end(rewriter, &put, put.at);
    }
    rewriter->nets[step->stream] += size - step->object.size;
}

static bool has_pages(const struct object *object)
{
    return object->size >= TRACE_LARGE && object->pages != PAGES_UNKNOWN;
}

static void put_step(struct rewriter *rewriter, struct step *step)
{
    size_t owner = stream_of(rewriter, step->object.thread);
    if (step->event.kind == MARKED) {
        rewriter->time_us = step->event.time_us;
        put_mark(rewriter, step->stream);
        return;
    }
    if (!rewriter->is_open[step->stream]) {
        put_mark(rewriter, step->stream);
    }
    if (step->event.kind != MADE && has_pages(&step->object)) {
        put_touched(rewriter, step->stream, owner, step->object.slot, step->object.pages);
    }
    if (step->event.kind == ENDED) {
        put_end(rewriter, step, owner);
        return;
    }
    if (step->event.kind == RESIZED) {
        put_resized(rewriter, step, owner);
    } else {
        put_made(rewriter, step->stream, &step->event);
    }
    step->result->slot = rewriter->made[step->stream]++;
}

static int by_age(const void *left, const void *right)
{
    const struct object *a = *(const struct object *const *)left,
                        *b = *(const struct object *const *)right;
    if (a->thread != b->thread) {
        return a->thread < b->thread ? -1 : 1;
    }
    return a->number == b->number ? 0 : a->number < b->number ? -1 : 1;
}

static struct object **collect_alive(const struct objects *objects, size_t *count)
{
    struct object **alive = need(malloc((objects->used + 1) * sizeof *alive));
    *count = 0;
    for (size_t i = 0; i < objects->room; i++) {
        if (objects->entries[i].is_used && objects->entries[i].is_alive) {
            alive[(*count)++] = &objects->entries[i];
        }
    }
    qsort(alive, *count, sizeof *alive, by_age);
    return alive;
}

static void put_alive(struct rewriter *rewriter)
{
    size_t count;
    struct object **alive = collect_alive(&rewriter->walk.objects, &count);
    for (size_t i = 0; i < count; i++) {
        size_t owner = stream_of(rewriter, alive[i]->thread);
        if (!rewriter->is_open[owner]) {
            put_mark(rewriter, owner);
        }
        put_made(rewriter, owner, &(struct event){.how = TRACE_MALLOC, .size = alive[i]->size});
        alive[i]->slot = rewriter->made[owner]++;
    }
    free(alive);
    memset(rewriter->is_open, 0, inherited_stream(rewriter) + 1);
}

// How much was touched of what is alive at the end, for who replays it.
static void put_pages(struct rewriter *rewriter, size_t stream)
{
    const struct objects *objects = &rewriter->walk.objects;
    for (size_t i = 0; i < objects->room; i++) {
        const struct object *object = &objects->entries[i];
        if (object->is_used && object->is_alive && has_pages(object)) {
            put_touched(rewriter, stream, stream_of(rewriter, object->thread), object->slot,
                        object->pages);
        }
    }
}

static void rewrite_all(struct rewriter *rewriter)
{
    struct step step;
    struct walk *walk = &rewriter->walk;
    bool has_begun = false;
    size_t stream = 0;
    rewriter->time_us = walk->heap_count > 0 ? walk->marks[walk->heap[0]].time_us : 0;
    while (walk->events < rewriter->first && walk_next(walk, &step)) {
        rewriter->time_us = step.event.kind == MARKED ? step.event.time_us : rewriter->time_us;
    }
    put_alive(rewriter);
    while (walk->events < rewriter->last && walk_next(walk, &step)) {
        if (step.event.kind == TOUCHED || step.event.kind == LOST) {
            continue; // put_step says what was touched
        }
        put_step(rewriter, &step);
        has_begun = true;
        stream = step.stream;
    }
    if (has_begun) {
        put_pages(rewriter, stream);
    }
}

static void rewrite(const char *from, const char *to, const char *text, size_t text_bytes,
                    struct rewriter *rewriter)
{
    size_t streams = inherited_stream(rewriter) + 1;
    rewriter->made = need(calloc(streams, sizeof(uint64_t)));
    rewriter->nets = need(calloc(streams, sizeof(uint64_t)));
    rewriter->is_open = need(calloc(streams, sizeof(bool)));
    if (strcmp(from, to) == 0) {
        fail("%s cannot be read and written at once", from);
    }
    rewriter->writer = writer_open(to, text, text_bytes);
    rewrite_all(rewriter);
    writer_close(rewriter->writer);
    free(rewriter->made);
    free(rewriter->nets);
    free(rewriter->is_open);
}

// The lines of the old text that stay true; without names none that says what ran.
static size_t keep_text(const struct recording *recording, char *text, size_t room, bool with_names)
{
    static const char *const NAMES[] = {"page_bytes", "libc", "program", "command"};
    size_t length = (size_t)snprintf(text, room, "first_thread=0\n");
    for (size_t i = 0; i < (with_names ? 4 : 2); i++) {
        int value_length;
        const char *value = recording_value(recording, NAMES[i], &value_length);
        if (value_length > 0 && length + (size_t)value_length + 16 < room) {
            length += (size_t)snprintf(text + length, room - length, "%s=%.*s\n", NAMES[i],
                                       value_length, value);
        }
    }
    return length;
}

static void rewrite_part(const char *from, const char *to, uint64_t first, uint64_t last,
                         uint32_t copies, bool with_names)
{
    static char text[TRACE_TEXT_MAX];
    struct recording recording;
    struct rewriter rewriter = {.first = first, .last = last, .copies = copies};
    recording_open(&recording, from);
    if ((recording.stream_count + 1) * copies > UINT32_MAX / 4) {
        fail("%u copies of %zu threads are too many", copies, recording.stream_count);
    }
    walk_open(&rewriter.walk, &recording);
    if (first >= last || first > rewriter.walk.total_events) {
        fail("%s has %llu events, none from %llu to %llu", from,
             (unsigned long long)rewriter.walk.total_events, (unsigned long long)first,
             (unsigned long long)last);
    }
    rewrite(from, to, text, keep_text(&recording, text, sizeof text, with_names), &rewriter);
    walk_close(&rewriter.walk);
    recording_close(&recording);
}

void cut(const char *from, const char *to, uint64_t first, uint64_t last)
{
    rewrite_part(from, to, first, last, 1, true);
}

void anonymise(const char *from, const char *to)
{
    rewrite_part(from, to, 0, UINT64_MAX, 1, false);
}

void scale(const char *from, const char *to, uint32_t copies)
{
    if (copies == 0) {
        fail("no copy is no recording");
    }
    rewrite_part(from, to, 0, UINT64_MAX, copies, true);
}
