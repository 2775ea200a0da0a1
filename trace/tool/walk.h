// SPDX-License-Identifier: MIT OR Apache-2.0
// A walk over a recording in the order of its turns (P3 of trace/format/format.h), which holds every event against what
// is alive: an object that is made twice or ends twice, a turn that comes twice and a sum that differs are errors.
#ifndef EBB_TRACE_WALK_H
#define EBB_TRACE_WALK_H

#include "trace/tool/reader.h"

enum { PAGES_UNKNOWN = UINT32_MAX };

// An object that is alive, or is known before it is made.
struct object {
    uint64_t number;
    uint64_t size;
    uint64_t born; // how many events came before
    uint32_t thread;
    uint32_t pages; // that are touched; PAGES_UNKNOWN
    uint64_t slot;  // the caller's own
    bool is_alive;
    bool is_used; // an entry of the table
};

// Open addressing by thread and number.
struct objects {
    struct object *entries;
    size_t room, used, alive;
};

struct object *objects_find(const struct objects *objects, uint32_t thread,
                            uint64_t number); // or NULL
struct object *objects_add(struct objects *objects, uint32_t thread, uint64_t number);
void objects_remove(struct objects *objects, struct object *object);

struct step {
    size_t stream;  // index of recording.streams
    uint32_t owner; // that stream's thread
    struct event event;
    struct object object;  // MADE: the new one. ENDED, RESIZED: the one that ends
    struct object *result; // of MADE and RESIZED: the new one, in the table until the next step
    uint64_t live_bytes;   // behind this event
};

struct walk {
    const struct recording *recording;
    struct objects objects;
    struct cursor *cursors;
    struct event *marks; // of each stream, its next
    uint64_t *nets;      // modulo 2^64
    size_t *heap;        // streams by their next turn
    size_t heap_count, current;
    bool is_chunk_open, has_turn;
    uint64_t last_turn, events, live_bytes;
    uint64_t total_events; // of the whole recording; known from the start
    uint64_t lost;
};

void walk_open(struct walk *walk, const struct recording *recording);
bool walk_next(struct walk *walk, struct step *step); // false: the end
void walk_close(struct walk *walk);

// Each inherited object that ends or is resized later; they are alive from the start.
void walk_inherited(struct walk *walk, void (*visit)(struct object *object, void *context),
                    void *context);

#endif
