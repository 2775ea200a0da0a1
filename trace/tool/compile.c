// SPDX-License-Identifier: MIT OR Apache-2.0
// A recording made ready for replay (format/program.h).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/format/program.h"
#include "trace/tool/tool.h"

#define NO_SLOT UINT32_MAX

// Slots that wait for a thread's next mark, then for anybody; linked by `next`.
struct slot_list {
    uint32_t first, last;
};

struct thread {
    uint64_t *words; // of the chunk that is being filled
    uint32_t count;
    struct slot_list freed;
};

struct compiler {
    FILE *out;
    const char *path;
    uint64_t at; // where the next chunk goes
    struct program_head head;
    struct program_chunk *chunks;
    size_t chunk_room;
    struct thread *threads;
    uint32_t *next; // of slots
    size_t slot_room;
    struct slot_list free;
    size_t last_stream;
    uint64_t page_bytes, first_time_us, next_sample, sample_step;
    bool has_time;
    bool is_alone; // one thread: a slot is used again at once
};

static void write_out(struct compiler *compiler, const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, compiler->out) != bytes) {
        fail("cannot write %s: %s", compiler->path, strerror(errno));
    }
    compiler->at += bytes;
}

static void flush(struct compiler *compiler, size_t stream)
{
    struct thread *thread = &compiler->threads[stream];
    if (thread->count == 0) {
        return;
    }
    if (compiler->head.chunks == compiler->chunk_room) {
        compiler->chunk_room = compiler->chunk_room * 2 + 64;
        compiler->chunks =
            need(realloc(compiler->chunks, compiler->chunk_room * sizeof *compiler->chunks));
    }
    uint32_t bytes = thread->count * (uint32_t)sizeof(uint64_t);
    compiler->chunks[compiler->head.chunks++] =
        (struct program_chunk){.at = compiler->at,
                               .words = thread->count,
                               .thread = (uint32_t)stream,
                               .check = trace_check(thread->words, bytes)};
    write_out(compiler, thread->words, bytes);
    thread->count = 0;
}

static uint64_t *room(struct compiler *compiler, size_t stream)
{
    struct thread *thread = &compiler->threads[stream];
    if (thread->words == NULL) {
        thread->words = need(malloc(CHUNK_WORDS * sizeof(uint64_t)));
    }
    if (thread->count + OPERATION_WORDS > CHUNK_WORDS) {
        flush(compiler, stream);
    }
    return thread->words + thread->count;
}

static void emit(struct compiler *compiler, size_t stream, enum operation kind, uint32_t slot,
                 uint64_t argument)
{
    *room(compiler, stream) = (uint64_t)kind << 60 | (uint64_t)slot << 32 | (uint32_t)argument;
    compiler->threads[stream].count++;
}

static void emit_wide(struct compiler *compiler, size_t stream, uint64_t head, uint64_t second,
                      uint64_t third)
{
    uint64_t *words = room(compiler, stream);
    words[0] = head;
    words[1] = second;
    words[2] = third;
    compiler->threads[stream].count += OPERATION_WORDS;
}

static uint32_t pop_slot(struct compiler *compiler, struct slot_list *list)
{
    uint32_t slot = list->first;
    if (slot != NO_SLOT) {
        list->first = compiler->next[slot];
    }
    return slot;
}

static uint32_t new_slot(struct compiler *compiler)
{
    if (compiler->head.slots == (uint64_t)1 << SLOT_BITS) {
        fail("more than %llu objects are alive at once", 1ULL << SLOT_BITS);
    }
    if (compiler->head.slots == compiler->slot_room) {
        compiler->slot_room = compiler->slot_room * 2 + 1024;
        compiler->next = need(realloc(compiler->next, compiler->slot_room * sizeof(uint32_t)));
    }
    return (uint32_t)compiler->head.slots++;
}

static uint32_t take_slot(struct compiler *compiler)
{
    uint32_t slot = pop_slot(compiler, &compiler->free);
    return slot != NO_SLOT ? slot : new_slot(compiler);
}

static void drop_slot(struct compiler *compiler, size_t stream, uint32_t slot)
{
    struct slot_list *list =
        compiler->is_alone ? &compiler->free : &compiler->threads[stream].freed;
    list->last = list->first == NO_SLOT ? slot : list->last;
    compiler->next[slot] = list->first;
    list->first = slot;
}

// S1: at a thread's mark, what it has freed is everybody's.
static void share_slots(struct compiler *compiler, size_t stream)
{
    struct slot_list *list = &compiler->threads[stream].freed;
    if (list->first != NO_SLOT) {
        compiler->next[list->last] = compiler->free.first;
        compiler->free.first = list->first;
        list->first = NO_SLOT;
    }
}

static uint64_t touched_bytes(const struct compiler *compiler, const struct object *object)
{
    uint64_t bytes =
        object->pages == PAGES_UNKNOWN ? object->size : object->pages * compiler->page_bytes;
    return bytes < object->size ? bytes : object->size;
}

static void emit_object(struct compiler *compiler, size_t stream, uint64_t head,
                        const struct object *object, uint32_t align_shift)
{
    emit_wide(compiler, stream, head | object->slot << 32, object->size,
              touched_bytes(compiler, object) << 8 | align_shift);
}

static void check_size(const struct object *object)
{
    if (object->size >= (uint64_t)1 << 47) {
        fail("an object of %llu bytes is none", (unsigned long long)object->size);
    }
}

static void emit_made(struct compiler *compiler, size_t stream, enum operation kind,
                      const struct object *object, uint32_t align_shift)
{
    check_size(object);
    if (kind != DO_WIDE_ALIGNED && object->size < TRACE_LARGE) {
        emit(compiler, stream, kind, (uint32_t)object->slot, object->size);
        return;
    }
    kind = kind != DO_WIDE_ALIGNED ? kind + DO_WIDER : kind;
    emit_object(compiler, stream, (uint64_t)kind << 60, object, align_shift);
}

static void compile_mark(struct compiler *compiler, const struct step *step)
{
    size_t stream = step->stream;
    if (!compiler->has_time) {
        compiler->first_time_us = step->event.time_us;
        compiler->has_time = true;
    }
    uint64_t time = step->event.time_us - compiler->first_time_us;
    emit_wide(compiler, stream, (uint64_t)DO_MARK << 60 | compiler->head.turns++, time,
              (uint64_t)step->event.net);
    share_slots(compiler, stream);
    compiler->last_stream = stream;
}

// A thread is started by the one that had the turn before its first.
static void compile_spawn(struct compiler *compiler, const struct step *step)
{
    struct thread *thread = &compiler->threads[step->stream];
    if (step->event.kind == MARKED && thread->words == NULL && compiler->head.turns > 0) {
        emit(compiler, compiler->last_stream, DO_SPAWN, 0, step->stream);
    }
}

static void compile_end(struct compiler *compiler, const struct step *step)
{
    bool is_own = step->event.thread == step->owner;
    emit(compiler, step->stream, is_own ? DO_FREE : DO_FREE_OTHERS, (uint32_t)step->object.slot, 0);
    drop_slot(compiler, step->stream, (uint32_t)step->object.slot);
}

static void compile_resized(struct compiler *compiler, const struct step *step)
{
    bool is_own = step->event.thread == step->owner;
    uint64_t kind = is_own ? DO_REALLOC : DO_REALLOC_OTHERS, old = step->object.slot;
    check_size(step->result);
    step->result->slot = compiler->is_alone ? old : take_slot(compiler);
    emit_object(compiler, step->stream, kind << 60 | old, step->result, 0);
    if (!compiler->is_alone) {
        drop_slot(compiler, step->stream, (uint32_t)old);
    }
}

static void compile_step(struct compiler *compiler, struct step *step)
{
    static const enum operation MADE_BY[] = {
        [TRACE_MALLOC] = DO_MALLOC, [TRACE_CALLOC] = DO_CALLOC, [TRACE_ALIGNED] = DO_WIDE_ALIGNED};
    switch (step->event.kind) {
    case MARKED:
        compile_mark(compiler, step);
        break;
    case MADE:
        step->result->slot = take_slot(compiler);
        emit_made(compiler, step->stream, MADE_BY[step->event.how], step->result,
                  step->event.align_shift);
        break;
    case ENDED:
        compile_end(compiler, step);
        break;
    case RESIZED:
        compile_resized(compiler, step);
        break;
    case TOUCHED:
    case LOST:
        break;
    }
}

static void compile_sample(struct compiler *compiler, const struct step *step, uint64_t events)
{
    if (events >= compiler->next_sample) {
        compiler->next_sample = events + compiler->sample_step;
        compiler->head.samples++;
        emit_wide(compiler, step->stream, (uint64_t)DO_SAMPLE << 60, events, step->live_bytes);
    }
}

static void compile_inherited(struct object *object, void *context)
{
    struct compiler *compiler = context;
    object->slot = new_slot(compiler);
    compiler->head.inherited++;
    emit_made(compiler, compiler->last_stream, DO_MALLOC, object, 0);
}

static uint64_t page_bytes_of(const struct recording *recording)
{
    int length;
    const char *text = recording_value(recording, "page_bytes", &length);
    uint64_t bytes = length > 0 && length < 8 ? strtoull(text, NULL, 10) : 0;
    return bytes >= 4096 && bytes <= 65536 ? bytes : 4096;
}

static void open_compiler(struct compiler *compiler, const struct recording *recording,
                          const char *path)
{
    *compiler = (struct compiler){.path = path, .free = {NO_SLOT, NO_SLOT}};
    compiler->page_bytes = page_bytes_of(recording);
    compiler->is_alone = recording->stream_count == 1;
    compiler->threads = need(calloc(recording->stream_count + 1, sizeof *compiler->threads));
    for (size_t i = 0; i < recording->stream_count; i++) {
        compiler->threads[i].freed.first = NO_SLOT;
    }
    compiler->out = fdopen(output_open(path), "wb");
    if (compiler->out == NULL) {
        fail("cannot write %s: %s", path, strerror(errno));
    }
    write_out(compiler, &compiler->head, sizeof compiler->head);
}

// The stream of the first turn runs in the first thread; it makes what is inherited.
static void compile_start(struct compiler *compiler, struct walk *walk)
{
    compiler->last_stream = walk->heap[0];
    compiler->head.first = (uint32_t)walk->heap[0];
    walk_inherited(walk, compile_inherited, compiler);
    emit(compiler, compiler->last_stream, DO_START, 0, 0);
}

static void compile_all(struct compiler *compiler, struct walk *walk)
{
    struct step step;
    compiler->sample_step = walk->total_events / SAMPLES + 1;
    compile_start(compiler, walk);
    while (walk_next(walk, &step)) {
        compile_spawn(compiler, &step);
        compile_step(compiler, &step);
        compile_sample(compiler, &step, walk->events);
        if (step.live_bytes > compiler->head.peak_bytes) {
            compiler->head.peak_bytes = step.live_bytes;
        }
    }
    compiler->head.events = walk->events;
    compiler->head.end_bytes = walk->live_bytes;
}

static int by_thread(const void *left, const void *right)
{
    const struct program_chunk *a = left, *b = right;
    if (a->thread != b->thread) {
        return a->thread < b->thread ? -1 : 1;
    }
    return a->at < b->at ? -1 : a->at > b->at;
}

static void finish(struct compiler *compiler, const struct recording *recording)
{
    for (size_t i = 0; i < recording->stream_count; i++) {
        flush(compiler, i);
        free(compiler->threads[i].words);
    }
    memcpy(compiler->head.magic, PROGRAM_MAGIC, sizeof compiler->head.magic);
    compiler->head.version = PROGRAM_VERSION;
    compiler->head.threads = (uint32_t)recording->stream_count;
    compiler->head.chunks_at = compiler->at;
    qsort(compiler->chunks, compiler->head.chunks, sizeof *compiler->chunks, by_thread);
    size_t table_bytes = compiler->head.chunks * sizeof *compiler->chunks;
    compiler->head.check = trace_check(&compiler->head, sizeof compiler->head) +
                           trace_check(compiler->chunks, (uint32_t)table_bytes);
    write_out(compiler, compiler->chunks, table_bytes);
    if (fseek(compiler->out, 0, SEEK_SET) != 0) {
        fail("cannot write %s: %s", compiler->path, strerror(errno));
    }
    write_out(compiler, &compiler->head, sizeof compiler->head);
    if (fclose(compiler->out) != 0) {
        fail("cannot write %s: %s", compiler->path, strerror(errno));
    }
    output_keep();
}

void compile(const char *from, const char *to)
{
    struct recording recording;
    struct walk walk;
    struct compiler compiler;
    recording_open(&recording, from);
    walk_open(&walk, &recording);
    if (walk.heap_count == 0) {
        fail("%s has no events", from);
    }
    open_compiler(&compiler, &recording, to);
    compile_all(&compiler, &walk);
    finish(&compiler, &recording);
    free(compiler.chunks);
    free(compiler.threads);
    free(compiler.next);
    walk_close(&walk);
    recording_close(&recording);
}
