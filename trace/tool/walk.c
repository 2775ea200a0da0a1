// SPDX-License-Identifier: MIT OR Apache-2.0
#include "trace/tool/walk.h"

#include <stdlib.h>
#include <string.h>

#define NO_STREAM SIZE_MAX

static _Noreturn void contradiction(const struct walk *walk, const char *what, uint32_t thread,
                                    uint64_t number)
{
    fail("%s is damaged: %s (object %llu of thread %u, event %llu)", walk->recording->path, what,
         (unsigned long long)number, thread, (unsigned long long)walk->events);
}

// What a walk must know before an object is made: how much of it will be touched. And what is inherited.
static void foresee(struct walk *walk, const struct event *event)
{
    bool is_inherited = event->thread < walk->recording->first_thread;
    if (event->kind == TOUCHED && !is_inherited) {
        struct object *object = objects_find(&walk->objects, event->thread, event->object);
        object =
            object != NULL ? object : objects_add(&walk->objects, event->thread, event->object);
        object->pages = event->pages < PAGES_UNKNOWN ? (uint32_t)event->pages : PAGES_UNKNOWN;
    }
    if ((event->kind == ENDED || event->kind == RESIZED) && is_inherited) {
        if (objects_find(&walk->objects, event->thread, event->object) != NULL) {
            contradiction(walk, "an inherited object ends twice", event->thread, event->object);
        }
        struct object *object = objects_add(&walk->objects, event->thread, event->object);
        object->size = event->old_size;
        object->is_alive = true;
    }
}

static bool is_counted(const struct event *event) { return event->kind <= RESIZED; }

static void read_ahead(struct walk *walk, size_t stream)
{
    struct cursor cursor;
    struct event event;
    cursor_open(&cursor, walk->recording, &walk->recording->streams[stream]);
    while (cursor_next(&cursor, &event)) {
        walk->total_events += is_counted(&event);
        foresee(walk, &event);
    }
    cursor_close(&cursor);
}

static bool comes_before(const struct walk *walk, size_t left, size_t right)
{
    return walk->marks[left].turn < walk->marks[right].turn;
}

static void swap(size_t *left, size_t *right)
{
    size_t kept = *left;
    *left = *right;
    *right = kept;
}

static void push(struct walk *walk, size_t stream)
{
    size_t i = walk->heap_count++;
    walk->heap[i] = stream;
    while (i > 0 && comes_before(walk, walk->heap[i], walk->heap[(i - 1) / 2])) {
        swap(&walk->heap[i], &walk->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
}

static size_t pop(struct walk *walk)
{
    size_t first = walk->heap[0];
    walk->heap[0] = walk->heap[--walk->heap_count];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < walk->heap_count; child++) {
            least = comes_before(walk, walk->heap[child], walk->heap[least]) ? child : least;
        }
        if (least == i) {
            return first;
        }
        swap(&walk->heap[i], &walk->heap[least]);
        i = least;
    }
}

static void read_first_mark(struct walk *walk, size_t stream)
{
    struct cursor *cursor = &walk->cursors[stream];
    cursor_open(cursor, walk->recording, &walk->recording->streams[stream]);
    if (cursor_next(cursor, &walk->marks[stream]) && walk->marks[stream].kind != MARKED) {
        fail("%s is damaged: thread %u does not begin with a mark", walk->recording->path,
             walk->recording->streams[stream].thread);
    }
}

// The cursor is opened again when the stream's turn comes: of ten thousand threads few are open at once.
static void start_stream(struct walk *walk, size_t stream)
{
    read_first_mark(walk, stream);
    cursor_close(&walk->cursors[stream]);
    if (walk->marks[stream].kind == MARKED) {
        push(walk, stream);
    }
}

static void add_alive(struct object *object, void *context)
{
    struct walk *walk = context;
    walk->live_bytes += object->size;
}

void walk_open(struct walk *walk, const struct recording *recording)
{
    size_t count = recording->stream_count;
    *walk = (struct walk){.recording = recording, .current = NO_STREAM};
    walk->cursors = need(calloc(count + 1, sizeof *walk->cursors));
    walk->marks = need(calloc(count + 1, sizeof *walk->marks));
    walk->nets = need(calloc(count + 1, sizeof *walk->nets));
    walk->heap = need(calloc(count + 1, sizeof *walk->heap));
    for (size_t i = 0; i < count; i++) {
        read_ahead(walk, i);
    }
    walk_inherited(walk, add_alive, walk);
    for (size_t i = 0; i < count; i++) {
        start_stream(walk, i);
    }
}

void walk_close(struct walk *walk)
{
    for (size_t i = 0; i < walk->recording->stream_count; i++) {
        cursor_close(&walk->cursors[i]);
    }
    free(walk->objects.entries);
    free(walk->cursors);
    free(walk->marks);
    free(walk->nets);
    free(walk->heap);
}

void walk_inherited(struct walk *walk, void (*visit)(struct object *object, void *context),
                    void *context)
{
    for (size_t i = 0; i < walk->objects.room; i++) {
        struct object *object = &walk->objects.entries[i];
        if (object->is_used && object->is_alive && object->thread < walk->recording->first_thread) {
            visit(object, context);
        }
    }
}

static struct object *bear(struct walk *walk, uint32_t thread, uint64_t number, uint64_t size)
{
    struct object *object = objects_find(&walk->objects, thread, number);
    if (object != NULL && object->is_alive) {
        contradiction(walk, "an object is made twice", thread, number);
    }
    object = object != NULL ? object : objects_add(&walk->objects, thread, number);
    object->is_alive = true;
    object->size = size;
    object->born = walk->events;
    walk->live_bytes += size;
    walk->nets[walk->current] += size;
    return object;
}

static struct object bury(struct walk *walk, uint32_t thread, uint64_t number)
{
    struct object *object = objects_find(&walk->objects, thread, number);
    if (object == NULL || !object->is_alive) {
        contradiction(walk, "an object ends that is not alive", thread, number);
    }
    struct object copy = *object;
    objects_remove(&walk->objects, object);
    walk->live_bytes -= copy.size;
    walk->nets[walk->current] -= copy.size;
    return copy;
}

static void follow(struct walk *walk, struct step *step)
{
    const struct event *event = &step->event;
    if (event->kind == ENDED || event->kind == RESIZED) {
        step->object = bury(walk, event->thread, event->object);
    }
    if (event->kind == RESIZED) {
        step->result = bear(walk, step->owner, event->made, event->size);
    }
    if (event->kind == MADE) {
        step->result = bear(walk, step->owner, event->object, event->size);
        step->object = *step->result;
    }
    walk->lost += event->kind == LOST ? event->lost : 0;
    walk->events += is_counted(event);
    step->live_bytes = walk->live_bytes;
}

static void open_chunk(struct walk *walk, struct step *step)
{
    walk->current = pop(walk);
    if (walk->cursors[walk->current].events == NULL) {
        read_first_mark(walk, walk->current);
    }
    walk->is_chunk_open = true;
    const struct event *mark = &walk->marks[walk->current];
    if (walk->has_turn && mark->turn <= walk->last_turn) {
        fail("%s is damaged: turn %llu comes twice", walk->recording->path,
             (unsigned long long)mark->turn);
    }
    if ((uint64_t)mark->net != walk->nets[walk->current]) {
        fail("%s is damaged: thread %u has made %lld bytes more than it ended, the recorder "
             "counted %lld",
             walk->recording->path, walk->recording->streams[walk->current].thread,
             (long long)walk->nets[walk->current], (long long)mark->net);
    }
    walk->last_turn = mark->turn;
    walk->has_turn = true;
    *step = (struct step){.stream = walk->current,
                          .owner = walk->recording->streams[walk->current].thread,
                          .event = *mark,
                          .live_bytes = walk->live_bytes};
}

// A chunk ends where the next mark of its stream, or its end, stands.
static bool next_of_chunk(struct walk *walk, struct step *step)
{
    struct event event;
    if (!cursor_next(&walk->cursors[walk->current], &event)) {
        cursor_close(&walk->cursors[walk->current]);
        return walk->is_chunk_open = false;
    }
    if (event.kind == MARKED) {
        if (event.turn <= walk->last_turn) {
            fail("%s is damaged: turn %llu goes back", walk->recording->path,
                 (unsigned long long)event.turn);
        }
        walk->marks[walk->current] = event;
        push(walk, walk->current);
        return walk->is_chunk_open = false;
    }
    *step = (struct step){.stream = walk->current,
                          .owner = walk->recording->streams[walk->current].thread,
                          .event = event};
    follow(walk, step);
    return true;
}

bool walk_next(struct walk *walk, struct step *step)
{
    if (walk->is_chunk_open && next_of_chunk(walk, step)) {
        return true;
    }
    if (walk->heap_count == 0) {
        return false;
    }
    open_chunk(walk, step);
    return true;
}
