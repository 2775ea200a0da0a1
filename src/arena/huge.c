// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge objects, each a mapping of its own:
//
//     | page with the record | object, whole pages |
//                            ^ at a granule boundary, tag EBBI_TAG_HUGE
//
// An object is known by its tag and by the record before it, whose `self` must agree: a pointer
// into the same granule that is not the start finds another place there.
#include "arena/internal.h"

struct huge_record {
    struct huge_record *self; // this very address
    void *object;
    size_t bytes;                        // of the object
    struct huge_record *next, *previous; // all of them, under the arena's lock
    struct ebbi_note note;
};

static struct huge_record *all;

size_t ebbi_huge_total_bytes;
size_t ebbi_huge_total_count;

static size_t record_bytes(void) { return ebbi_os_page_size(); }

static struct huge_record *record_of(const void *object)
{
    return (struct huge_record *)((uintptr_t)object - record_bytes());
}

static struct huge_record *find_record(const void *p)
{
    if (ebbi_tag_of(p) != EBBI_TAG_HUGE || (uintptr_t)p % EBBI_GRANULE != 0) {
        return NULL;
    }
    struct huge_record *record = record_of(p);
    return record->self == record && record->object == p ? record : NULL;
}

static void link_record(struct huge_record *record)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    record->previous = NULL;
    record->next = all;
    if (all != NULL) {
        all->previous = record;
    }
    all = record;
    ebbi_huge_total_bytes += record->bytes;
    ebbi_huge_total_count++;
    ebbi_lock_drop(&ebbi_arena_mutex);
}

static void unlink_record(struct huge_record *record)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    *(record->previous != NULL ? &record->previous->next : &all) = record->next;
    if (record->next != NULL) {
        record->next->previous = record->previous;
    }
    ebbi_huge_total_bytes -= record->bytes;
    ebbi_huge_total_count--;
    ebbi_lock_drop(&ebbi_arena_mutex);
}

size_t ebbi_huge_resident(size_t (*measure)(uintptr_t start, size_t bytes))
{
    size_t total = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (const struct huge_record *r = all; r != NULL; r = r->next) {
        total += measure((uintptr_t)r, r->bytes + record_bytes());
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return total;
}

// A reservation or mapping in which [record][bytes] fits with the object at a multiple of align.
// Returns where the record goes; everything around it has been released.
static char *take_range(size_t bytes, size_t align, void *(*take)(void *at, size_t bytes))
{
    size_t total = bytes + record_bytes();
    size_t roomy = total + align;
    if (roomy < bytes) {
        return NULL;
    }
    char *got;
    if (ebbi_tags_narrow()) {
        ebbi_lock_take(&ebbi_arena_mutex);
        got = ebbi_place(roomy, take);
        ebbi_lock_drop(&ebbi_arena_mutex);
    } else {
        got = take(NULL, roomy);
    }
    if (got == NULL) {
        return NULL;
    }
    char *object = (char *)ebbi_align_up((uintptr_t)got + record_bytes(), align);
    char *start = object - record_bytes();
    if (start > got) {
        ebbi_os_release(got, (size_t)(start - got));
    }
    if (start + total < got + roomy) {
        ebbi_os_release(start + total, (size_t)((got + roomy) - (start + total)));
    }
    if (ebbi_tags_prepare(object, 1) != 0) {
        ebbi_os_release(start, total);
        return NULL;
    }
    return start;
}

static void *publish(char *start, size_t bytes)
{
    struct huge_record *record = (struct huge_record *)start;
    void *object = start + record_bytes();
    *record = (struct huge_record){.self = record, .object = object, .bytes = bytes};
    link_record(record);
    ebbi_tags_set(object, 1, EBBI_TAG_HUGE);
    return object;
}

void *ebbi_huge_alloc(size_t bytes, size_t align)
{
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    char *start = take_range(bytes, ebbi_max(align, EBBI_GRANULE), ebbi_os_map);
    if (start == NULL) {
        return NULL;
    }
    ebbi_os_advise_huge(start, bytes + record_bytes(), ebbi_arena_advice);
    return publish(start, bytes);
}

bool ebbi_huge_free(void *p)
{
    struct huge_record *record = find_record(p);
    if (record == NULL) {
        return false;
    }
    ebbi_tags_set(p, 1, EBBI_TAG_NONE);
    unlink_record(record);
    record->self = NULL;
    ebbi_os_release(record, record->bytes + record_bytes());
    return true;
}

size_t ebbi_huge_bytes(const void *p)
{
    const struct huge_record *record = find_record(p);
    return record != NULL ? record->bytes : 0;
}

struct ebbi_note *ebbi_huge_note(void *p)
{
    struct huge_record *record = find_record(p);
    return record != NULL ? &record->note : NULL;
}

// The pages move, the record among them; NULL when refused. The record is in no list.
static void *move_record(struct huge_record *record, size_t bytes)
{
    char *to = take_range(bytes, EBBI_GRANULE, ebbi_os_reserve);
    if (to == NULL) {
        return NULL;
    }
    void *old = record->object;
    size_t extra = record_bytes();
    if (!ebbi_os_move(record, record->bytes + extra, to, bytes + extra)) {
        ebbi_os_release(to, bytes + extra);
        return NULL;
    }
    ebbi_tags_set(old, 1, EBBI_TAG_NONE);
    return publish(to, bytes);
}

void *ebbi_huge_resize(void *p, size_t bytes)
{
    struct huge_record *record = find_record(p);
    size_t extra = record_bytes();
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    if (bytes == record->bytes) {
        return p;
    }
    unlink_record(record);
    if (!ebbi_os_resize(record, record->bytes + extra, bytes + extra)) {
        void *moved = move_record(record, bytes);
        if (moved == NULL) {
            link_record(record);
        }
        return moved;
    }
    record->bytes = bytes;
    link_record(record);
    return p;
}
