// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer profile: the samples in use, one by one, and their groups.
#include "base/mix.h"
#include "os/os.h"
#include "profile/profile.h"

#define STRIDE EBBI_LOANS // places that are read under one lock

struct ebbi_live_table ebbi_live_table;

void ebbi_live_begin(void *memory)
{
    ebbi_live_table.at = memory;
    ebbi_live_table.count = 1;
}

uint32_t ebbi_live_add(const struct ebbi_live *live)
{
    uint32_t place = ebbi_live_table.free;
    if (place != 0) {
        ebbi_live_table.free = ebbi_live_table.at[place].thread;
    } else if (ebbi_live_table.count < EBBI_LIVE_BYTES / sizeof *live) {
        place = ebbi_live_table.count++;
    } else {
        return 0;
    }
    ebbi_live_table.at[place] = *live;
    return place;
}

void *ebbi_live_drop(uint32_t place)
{
    void *held = NULL;
    if (place != 0) {
        held = ebbi_live_table.at[place].held;
        ebbi_live_table.at[place] = (struct ebbi_live){.thread = ebbi_live_table.free};
        ebbi_live_table.free = place;
    }
    return held;
}

// The stride of places from *place on that have been used, whose end it returns; *place is the next one's. Under the lock.
static uint32_t next_stride(uint32_t *place)
{
    uint32_t count = ebbi_live_table.count;
    uint32_t end = *place + STRIDE < count ? *place + STRIDE : count;
    *place = end < count ? end : 0;
    return end;
}

size_t ebbi_live_places(void)
{
    ebbi_profile_lock();
    size_t places = ebbi_live_table.count;
    ebbi_profile_unlock();
    return places;
}

size_t ebbi_live_held(void *held[EBBI_LOANS], uint32_t *place)
{
    size_t count = 0;
    uint32_t at = *place;
    ebbi_profile_lock();
    for (uint32_t end = next_stride(place); at < end; at++) {
        if (ebbi_live_table.at[at].held != NULL) {
            held[count++] = ebbi_live_table.at[at].held;
        }
    }
    ebbi_profile_unlock();
    return count;
}

size_t ebbi_live_lend(struct ebbi_loan loans[EBBI_LOANS], uint32_t *place)
{
    size_t count = 0;
    uint32_t at = *place;
    ebbi_profile_lock();
    for (uint32_t end = next_stride(place); at < end; at++) {
        struct ebbi_live *live = &ebbi_live_table.at[at];
        if (live->held != NULL) {
            loans[count++] = (struct ebbi_loan){live->held, live->made_ns, at, 0};
            live->held = NULL;
        }
    }
    ebbi_profile_unlock();
    return count;
}

void *ebbi_live_return(const struct ebbi_loan *loan)
{
    ebbi_profile_lock();
    struct ebbi_live *live = &ebbi_live_table.at[loan->place];
    bool is_there = live->entry != 0 && live->made_ns == loan->made_ns && live->held == NULL;
    if (is_there) {
        live->held = loan->held;
        live->keeps = loan->keeps;
    }
    ebbi_profile_unlock();
    return is_there ? NULL : loan->held;
}

// ---- groups ------------------------------------------------------------------------------------------

static bool is_same(const struct ebbi_live_group *a, const struct ebbi_live_group *b)
{
    return a->entry == b->entry && a->thread == b->thread && a->label == b->label &&
           a->age == b->age;
}

static void group_add(struct ebbi_live_groups *groups, const struct ebbi_live_group *one)
{
    uint64_t key = ebbi_mix((uint64_t)one->entry << 32 | one->thread, (uintptr_t)one->label);
    size_t place = ebbi_mix(key, one->age) % groups->places;
    while (groups->at[place].entry != 0 && !is_same(&groups->at[place], one)) {
        place = (place + 1) % groups->places; // ends: half of the places are free
    }
    struct ebbi_live_group *group = &groups->at[place];
    if (group->entry == 0) {
        *group = *one;
        group->next = groups->first[one->entry - 1];
        groups->first[one->entry - 1] = (uint32_t)place + 1;
    } else {
        group->sum.objects += one->sum.objects;
        group->sum.bytes += one->sum.bytes;
        group->keeps += one->keeps;
    }
}

// Those of entries that have come since do without.
static void group_live(struct ebbi_live_groups *groups, const struct ebbi_live *live,
                       uint64_t now_ns)
{
    if (live->entry != 0 && live->entry <= groups->entries) {
        uint64_t age_ns = now_ns > live->made_ns ? now_ns - live->made_ns : 0;
        struct ebbi_live_group one = {
            .sum = {live->objects, live->objects * (double)live->bytes},
            .keeps = live->objects * live->keeps,
            .label = live->label,
            .entry = live->entry,
            .thread = live->thread,
            .age = ebbi_profile_term(age_ns),
        };
        group_add(groups, &one);
    }
}

// Under the lock for a few at a time, as allocations wait for it.
static void group_all(struct ebbi_live_groups *groups, uint32_t count)
{
    uint64_t now_ns = ebbi_os_now_ns();
    for (uint32_t from = 1; from < count; from += STRIDE) {
        struct ebbi_live some[STRIDE];
        uint32_t length = count - from < STRIDE ? count - from : STRIDE;
        ebbi_profile_lock();
        for (uint32_t i = 0; i < length; i++) {
            some[i] = ebbi_live_table.at[from + i];
        }
        ebbi_profile_unlock();
        for (uint32_t i = 0; i < length; i++) {
            group_live(groups, &some[i], now_ns);
        }
    }
}

bool ebbi_live_groups_take(struct ebbi_live_groups *groups)
{
    uint32_t count = (uint32_t)ebbi_live_places();
    size_t places = 64, entries = ebbi_profile_entries();
    while (places < 2 * (size_t)count) {
        places *= 2;
    }
    size_t bytes = places * sizeof *groups->at + entries * sizeof *groups->first;
    *groups = (struct ebbi_live_groups){
        .places = places, .entries = entries, .bytes = ebbi_align_up(bytes, ebbi_os_page_size())};
    groups->at = ebbi_os_map(NULL, groups->bytes);
    if (groups->at != NULL) {
        groups->first = (uint32_t *)(void *)(groups->at + places);
        group_all(groups, count);
    }
    return groups->at != NULL;
}

void ebbi_live_groups_end(struct ebbi_live_groups *groups)
{
    ebbi_os_release(groups->at, groups->bytes);
}
