// SPDX-License-Identifier: MIT OR Apache-2.0
#include <stdlib.h>

#include "trace/tool/walk.h"

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15U;
    return value ^ (value >> 29);
}

static size_t place_of(const struct objects *objects, uint32_t thread, uint64_t number)
{
    return (size_t)(mix(number ^ mix(thread + (uint64_t)1)) & (objects->room - 1));
}

struct object *objects_find(const struct objects *objects, uint32_t thread, uint64_t number)
{
    if (objects->room == 0) {
        return NULL;
    }
    for (size_t i = place_of(objects, thread, number);; i = (i + 1) & (objects->room - 1)) {
        struct object *entry = &objects->entries[i];
        if (!entry->is_used) {
            return NULL;
        }
        if (entry->thread == thread && entry->number == number) {
            return entry;
        }
    }
}

static struct object *place(struct objects *objects, struct object object)
{
    size_t i = place_of(objects, object.thread, object.number);
    while (objects->entries[i].is_used) {
        i = (i + 1) & (objects->room - 1);
    }
    objects->entries[i] = object;
    objects->used++;
    return &objects->entries[i];
}

static void grow(struct objects *objects)
{
    struct objects old = *objects;
    objects->room = old.room == 0 ? 1024 : old.room * 2;
    objects->used = 0;
    objects->entries = need(calloc(objects->room, sizeof(struct object)));
    for (size_t i = 0; i < old.room; i++) {
        if (old.entries[i].is_used) {
            place(objects, old.entries[i]);
        }
    }
    free(old.entries);
}

struct object *objects_add(struct objects *objects, uint32_t thread, uint64_t number)
{
    if (objects->used * 3 >= objects->room * 2) {
        grow(objects);
    }
    return place(objects,
                 (struct object){
                     .number = number, .thread = thread, .pages = PAGES_UNKNOWN, .is_used = true});
}

// What stands behind the gap, and would not be found any more, moves into it.
void objects_remove(struct objects *objects, struct object *object)
{
    size_t mask = objects->room - 1, gap = (size_t)(object - objects->entries);
    objects->used--;
    for (size_t i = (gap + 1) & mask; objects->entries[i].is_used; i = (i + 1) & mask) {
        const struct object *entry = &objects->entries[i];
        size_t home = place_of(objects, entry->thread, entry->number);
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            objects->entries[gap] = *entry;
            gap = i;
        }
    }
    objects->entries[gap].is_used = false;
}
