// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge objects, each a mapping of its own, anywhere:
//
//     | page with the record | object, whole pages |
//                            ^ at a granule boundary
//
// Found by the number of that granule in a hash of chains, under the arena's lock: on slow paths alone.
#include "arena/internal.h"

#define CHAINS_LOG2 10

struct huge_record {
    struct huge_record *next; // of its chain
    size_t bytes;             // of the object
    struct ebbi_note note;
};

static EBBI_SPARSE struct huge_record *chains[1u << CHAINS_LOG2];

size_t ebbi_huge_total_bytes;
size_t ebbi_huge_total_count;

static size_t record_bytes(void) { return ebbi_os_page_size(); }

static void *object_of(const struct huge_record *record)
{
    return (void *)((uintptr_t)record + record_bytes());
}

// The link that leads to the record of the object at p, or the end of p's chain. Under the lock.
static struct huge_record **find_link(const void *p)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    uint64_t mixed = ((uint64_t)(uintptr_t)p >> EBBI_GRANULE_SHIFT) * 0x9E3779B97F4A7C15u;
    struct huge_record **link = &chains[mixed >> (64 - CHAINS_LOG2)];
    while (*link != NULL && object_of(*link) != p) {
        link = &(*link)->next;
    }
    return link;
}

static struct huge_record *find_record(const void *p)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct huge_record *record = *find_link(p);
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

static void link_record(struct huge_record *record)
{
    EBBI_ASSERT((uintptr_t)object_of(record) % EBBI_GRANULE == 0);
    EBBI_ASSERT(record->bytes % ebbi_os_page_size() == 0);
    ebbi_lock_take(&ebbi_arena_mutex);
    EBBI_ASSERT(*find_link(object_of(record)) == NULL);
    record->next = NULL;
    *find_link(object_of(record)) = record;
    ebbi_huge_total_bytes += record->bytes;
    ebbi_huge_total_count++;
    ebbi_lock_drop(&ebbi_arena_mutex);
}

// NULL: no object starts at p.
static struct huge_record *unlink_record(const void *p)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    struct huge_record **link = find_link(p);
    struct huge_record *record = *link;
    if (record != NULL) {
        EBBI_ASSERT(ebbi_huge_total_bytes >= record->bytes && ebbi_huge_total_count > 0);
        *link = record->next;
        ebbi_huge_total_bytes -= record->bytes;
        ebbi_huge_total_count--;
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return record;
}

size_t ebbi_huge_resident(size_t (*measure)(uintptr_t start, size_t bytes))
{
    size_t total = 0;
    ebbi_lock_take(&ebbi_arena_mutex);
    for (size_t i = 0; i < (size_t)1 << CHAINS_LOG2; i++) {
        for (const struct huge_record *r = chains[i]; r != NULL; r = r->next) {
            total += measure((uintptr_t)r, r->bytes + record_bytes());
        }
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
    return total;
}

// By `take` (reserve or map), if need be in place of chunks that are free.
static char *take_anywhere(size_t bytes, void *(*take)(void *at, size_t bytes))
{
    char *got = take(NULL, bytes);
    if (got == NULL) {
        ebbi_lock_take(&ebbi_arena_mutex);
        bool more = ebbi_release_free_chunks();
        ebbi_lock_drop(&ebbi_arena_mutex);
        got = more ? take(NULL, bytes) : NULL;
    }
    return got;
}

// A reservation or mapping in which [record][bytes] fits with the object at a multiple of align.
// Returns where the record goes; everything around it has been released.
static char *take_range(size_t bytes, size_t align, void *(*take)(void *at, size_t bytes))
{
    size_t total = bytes + record_bytes();
    size_t roomy = total + align;
    EBBI_ASSERT(ebbi_is_power_of_two(align) && align >= EBBI_GRANULE);
    if (roomy < bytes) {
        return NULL;
    }
    char *got = take_anywhere(roomy, take);
    if (got == NULL) {
        return NULL;
    }
    char *object = (char *)ebbi_align_up((uintptr_t)got + record_bytes(), align);
    char *start = object - record_bytes();
    EBBI_ASSERT(start >= got && start + total <= got + roomy);
    if (start > got) {
        ebbi_os_release(got, (size_t)(start - got));
    }
    if (start + total < got + roomy) {
        ebbi_os_release(start + total, (size_t)((got + roomy) - (start + total)));
    }
    return start;
}

static void *publish(char *start, size_t bytes)
{
    struct huge_record *record = (struct huge_record *)start;
    EBBI_ASSERT(ebbi_tag_of(object_of(record)) == EBBI_TAG_NONE);
    *record = (struct huge_record){.bytes = bytes};
    link_record(record);
    return object_of(record);
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
    struct huge_record *record = unlink_record(p);
    if (record != NULL) {
        ebbi_os_release(record, record->bytes + record_bytes());
    }
    return record != NULL;
}

bool ebbi_huge_is(const void *p) { return find_record(p) != NULL; }

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
    size_t extra = record_bytes();
    if (!ebbi_os_move(record, record->bytes + extra, to, bytes + extra)) {
        ebbi_os_release(to, bytes + extra);
        return NULL;
    }
    return publish(to, bytes);
}

void *ebbi_huge_resize(void *p, size_t bytes)
{
    size_t extra = record_bytes();
    bytes = ebbi_align_up(bytes, ebbi_os_page_size());
    if (ebbi_huge_bytes(p) == bytes) {
        return p;
    }
    struct huge_record *record = unlink_record(p);
    EBBI_ASSERT(record != NULL);
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
