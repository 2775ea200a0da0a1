// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: whether hazard pointers point into what is to be reclaimed, asked for many blocks at
// once: one pass over the hazard pointers, most of which point nowhere near; those that do are looked
// up by the start of the block that they point into.
#include <string.h>

#include "debug/check.h"
#include "reclaim/hazards.h"

#define TABLE_SHIFT (64 - EBBI_SUSPECT_BITS)

_Static_assert(EBBI_BAG_BLOCKS <= EBBI_SUSPECTS && EBBI_CALLS <= EBBI_SUSPECTS,
               "asked for at once");
_Static_assert(EBBI_CLASS_MAX <= 2 * EBBI_GRANULE && 3 * EBBI_SUSPECTS < 1 << EBBI_SUSPECT_BITS,
               "room for the granules of all");

static size_t place_of(uintptr_t start)
{
    return (size_t)((uint64_t)(start >> 4) * 0x9E3779B97F4A7C15u >> TABLE_SHIFT);
}

static size_t next_place(size_t place) { return (place + 1) % (1u << EBBI_SUSPECT_BITS); }

static bool is_of_slab(const void *p) { return ebbi_tag_class(ebbi_tag_of(p)) != 0; }

void ebbi_suspects_add(struct ebbi_suspects *s, const void *p, size_t bytes)
{
    EBBI_ASSERT(s->count < EBBI_SUSPECTS && !s->hashed);
    struct ebbi_suspect *suspect = &s->list[s->count++];
    bytes = ebbi_max(bytes, 1); // a block of none is held by a pointer to it
    *suspect = (struct ebbi_suspect){(uintptr_t)p, bytes};
    s->first = s->count == 1 || suspect->start < s->first ? suspect->start : s->first;
    s->end = s->count == 1 ? suspect->start + bytes : ebbi_max(s->end, suspect->start + bytes);
    s->odd |= bytes > 1 && (ebbi_check_is_on() ||
                            !is_of_slab(p)); // no checked one starts where a block of a slab does
}

static size_t granule_of_start(const struct ebbi_suspects *s, size_t i)
{
    return s->list[i].start >> EBBI_GRANULE_SHIFT;
}

static size_t granule_of_end(const struct ebbi_suspects *s, size_t i)
{
    return (s->list[i].start + s->list[i].bytes - 1) >> EBBI_GRANULE_SHIFT;
}

// Where one is noted that lies in the granule, or where there is room for it.
static size_t find_granule(const struct ebbi_suspects *s, size_t granule)
{
    size_t place = place_of(granule << 4);
    for (size_t i; (i = s->granules[place]) != 0; place = next_place(place)) {
        if (granule >= granule_of_start(s, i - 1) && granule <= granule_of_end(s, i - 1)) {
            break;
        }
    }
    return place;
}

// Of a slab's block: three at most.
static void note_granules(struct ebbi_suspects *s, size_t i)
{
    size_t end = s->list[i].bytes <= EBBI_CLASS_MAX ? granule_of_end(s, i) + 1 : 0;
    for (size_t granule = granule_of_start(s, i); granule < end; granule++) {
        s->granules[find_granule(s, granule)] = (uint8_t)(i + 1);
    }
}

static void fill_table(struct ebbi_suspects *s)
{
    EBBI_ASSERT(s->count > 0 && s->count <= EBBI_SUSPECTS);
    memset(s->table, 0, sizeof s->table);
    memset(s->granules, 0, sizeof s->granules);
    for (size_t i = 0; i < s->count; i++) {
        size_t place = place_of(s->list[i].start);
        while (s->table[place] != 0) {
            place = next_place(place);
        }
        s->table[place] = (uint8_t)(i + 1);
        note_granules(s, i);
    }
    s->hashed = true;
}

// Marks those that start there and that `held` points into.
static bool mark_at(struct ebbi_suspects *s, uintptr_t start, uintptr_t held)
{
    bool any = false;
    for (size_t at = place_of(start); s->table[at] != 0; at = next_place(at)) {
        const struct ebbi_suspect *suspect = &s->list[s->table[at] - 1];
        EBBI_ASSERT(s->table[at] <= s->count);
        if (suspect->start == start && held - start < suspect->bytes) {
            s->marks[s->table[at] - 1] = any = true;
        }
    }
    return any;
}

static bool mark_one_by_one(struct ebbi_suspects *s, uintptr_t held)
{
    bool any = false;
    for (size_t i = 0; i < s->count; i++) {
        if (held - s->list[i].start < s->list[i].bytes) {
            s->marks[i] = any = true;
        }
    }
    return any;
}

// Whether p lies in a slab of which a block is suspected: others may change, or go, just now.
static bool is_near(const struct ebbi_suspects *s, const void *p)
{
    return is_of_slab(p) && s->granules[find_granule(s, (uintptr_t)p >> EBBI_GRANULE_SHIFT)] != 0;
}

// Where the slab's block begins that contains p, if there is such a block.
static uintptr_t start_of(const void *p)
{
    const struct ebbi_slab *slab = ebbi_slab_of(p);
    return slab->first_block + ebbi_slab_block_around(slab, p) * ebbi_slab_class(slab)->size;
}

// A pointer may be old, and what it points to something else by now: then nothing starts there.
static bool mark_held(const void *held, void *context)
{
    struct ebbi_suspects *s = context;
    if (!s->hashed) {
        fill_table(s);
    }
    if (mark_at(s, (uintptr_t)held, (uintptr_t)held)) {
        return s->any_will_do;
    }
    bool found = is_near(s, held) && mark_at(s, start_of(held), (uintptr_t)held);
    found |= s->odd && mark_one_by_one(s, (uintptr_t)held);
    return found && s->any_will_do;
}

bool ebbi_suspects_any(struct ebbi_suspects *s)
{
    s->any_will_do = true;
    return s->count > 0 && ebbi_hazards_find(s->first, s->end - s->first, mark_held, s);
}

void ebbi_suspects_mark(struct ebbi_suspects *s)
{
    memset(s->marks, 0, sizeof s->marks);
    (void)ebbi_hazards_find(s->first, s->end - s->first, mark_held, s);
}
