// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: the window: how large, where, its tag table, and places for chunks in it.
//
// The window is chosen at start-up by reserving the first chunk in it: what the kernel refuses there
// (narrow address spaces, emulators, sanitizers) is looked for beside its own mappings. A slot is
// EBBI_CHUNK of the window and holds one chunk, of whatever size.
#include "arena/internal.h"

#include <errno.h>

// The table of the usual window takes 16 MiB of address space, of one under a limit 4 MiB.
#define USUAL_WINDOW ((size_t)256 << 30)
#define LIMITED_WINDOW ((size_t)64 << 30)
#define LOWEST_BASE ((uintptr_t)4 << 30)
#define FIRST_CHUNK ((size_t)32 << 20)
#define LEAST_CHUNK ((size_t)2 << 20)
#define PLACE_TRIES 16

struct ebbi_window ebbi_window;
size_t ebbi_reserved_bytes;

// Under the arena lock, or at start-up.
static uintptr_t window_base;
static size_t slot_count, next_slot;
static void *opening; // reserved by ebbi_window_open, not asked for yet
static size_t opening_bytes;

static size_t power_up(size_t n) { return (size_t)2 << ebbi_highest_bit((n - 1) | 1); }

// ---- places --------------------------------------------------------------------------------------

static void *reserve_at(uintptr_t at, size_t bytes)
{
    EBBI_ASSERT(at % EBBI_CHUNK == 0);
    EBBI_ASSERT(bytes > 0 && bytes <= EBBI_CHUNK && bytes % EBBI_GRANULE == 0);
    void *got = ebbi_os_reserve((void *)at, bytes);
    ebbi_reserved_bytes += got != NULL ? bytes : 0;
    return got;
}

static bool is_refused_anywhere(size_t bytes)
{
    void *got = ebbi_os_reserve(NULL, bytes);
    if (got != NULL) {
        ebbi_os_release(got, bytes);
    }
    return got == NULL;
}

void *ebbi_place(size_t bytes)
{
    size_t tries = PLACE_TRIES;
    for (size_t i = 0; i < slot_count && tries > 0; i++) {
        EBBI_ASSERT(next_slot < slot_count);
        uintptr_t at = window_base + next_slot * EBBI_CHUNK;
        next_slot = (next_slot + 1) % slot_count;
        if (ebbi_chunk_of((void *)at) != NULL) {
            continue;
        }
        void *got = reserve_at(at, bytes);
        if (got != NULL || is_refused_anywhere(bytes)) {
            return got;
        }
        tries--;
    }
    return NULL;
}

void ebbi_unplace(void *start, size_t bytes)
{
    EBBI_ASSERT(ebbi_reserved_bytes >= bytes);
    ebbi_reserved_bytes -= bytes;
    ebbi_os_release(start, bytes);
}

void *ebbi_place_first(size_t least_bytes, size_t *bytes)
{
    void *got = opening;
    ebbi_assert_held(&ebbi_arena_mutex);
    if (got == NULL || opening_bytes < least_bytes) {
        return NULL;
    }
    opening = NULL;
    *bytes = opening_bytes;
    return got;
}

size_t ebbi_place_grown(void)
{
    size_t together = (size_t)1 << ebbi_highest_bit(ebbi_reserved_bytes | 1);
    EBBI_ASSERT(ebbi_is_power_of_two(opening_bytes) && opening_bytes >= LEAST_CHUNK);
    return ebbi_min(ebbi_max(together, opening_bytes), EBBI_CHUNK);
}

// ---- start-up ------------------------------------------------------------------------------------

// The process's address space, a power of two: stacks are near its end.
static size_t user_space(void) { return power_up((uintptr_t)__builtin_frame_address(0)); }

// Sparse chunks, and slots that hold small ones, may take four times what is in use.
static size_t window_bytes(size_t space)
{
    size_t wanted = ebbi_max(USUAL_WINDOW, power_up(ebbi_os_memory_bytes() * 4));
    size_t limit = ebbi_os_address_limit();
    if (limit < wanted / 2) {
        wanted = ebbi_min(wanted, ebbi_max(LIMITED_WINDOW, power_up(limit) * 2));
    }
    return ebbi_max(ebbi_min(wanted, space / 4), EBBI_CHUNK);
}

// Between programs that are linked low and the place of position-independent ones, at two thirds.
static uintptr_t random_base(size_t space, size_t window)
{
    size_t room = space / 2 > window ? space / 2 - window : 0;
    uintptr_t lowest = ebbi_max(space / 8, LOWEST_BASE);
    return lowest + ebbi_os_entropy() % (room / EBBI_CHUNK + 1) * EBBI_CHUNK;
}

// Below what the kernel has mapped by its own choice.
static uintptr_t base_beside(const void *mapped, size_t window)
{
    uintptr_t end = ebbi_align_up((uintptr_t)mapped, EBBI_CHUNK);
    return end > window + LOWEST_BASE ? end - window : LOWEST_BASE;
}

static bool open_at(uintptr_t at, size_t window, size_t bytes)
{
    EBBI_ASSERT(at >= LOWEST_BASE && window % EBBI_CHUNK == 0);
    EBBI_ASSERT(opening == NULL);
    window_base = at;
    slot_count = window / EBBI_CHUNK;
    next_slot = 0;
    opening = ebbi_place(bytes);
    opening_bytes = bytes;
    return opening != NULL;
}

// Beside the kernel's own mappings there may be less room than the window should have.
static bool open_somewhere(size_t *window, size_t space, size_t bytes)
{
    bool anywhere = !ebbi_os_under_tsan() && !ebbi_os_under_msan();
    if (anywhere && open_at(random_base(space, *window), *window, bytes)) {
        return true;
    }
    void *mapped = ebbi_os_reserve(NULL, bytes);
    if (mapped == NULL) {
        return false;
    }
    ebbi_os_release(mapped, bytes);
    for (size_t w = *window; w >= EBBI_CHUNK; w /= 2) {
        if (open_at(base_beside(mapped, w), w, bytes)) {
            *window = w;
            return true;
        }
    }
    return false;
}

// The kernel may put a huge object right below the table, or right behind it: a granule at each end is never written.
static bool cover(size_t window)
{
    size_t granules = window >> EBBI_GRANULE_SHIFT;
    EBBI_ASSERT((uintptr_t)opening - window_base < window);
    char *table = ebbi_os_reserve_readable(granules * sizeof(struct ebbi_tag) + 2 * EBBI_GRANULE);
    if (table != NULL) {
        ebbi_window = (struct ebbi_window){.base = window_base,
                                           .granules = granules,
                                           .fast_granules = granules,
                                           .tags = (void *)(table + EBBI_GRANULE)};
    }
    return table != NULL;
}

void ebbi_window_slow_frees(void) { ebbi_window.fast_granules = 0; }

static void forget_first(void)
{
    if (opening != NULL) {
        ebbi_unplace(opening, opening_bytes);
        opening = NULL;
    }
}

int ebbi_window_open(void)
{
    size_t space = user_space();
    size_t window = window_bytes(space);
    EBBI_ASSERT(ebbi_is_power_of_two(window) && window >= EBBI_CHUNK);
    size_t share = power_up(ebbi_os_address_limit() / 16);
    forget_first();
    for (size_t bytes = ebbi_min(FIRST_CHUNK, share); bytes >= LEAST_CHUNK; bytes /= 2) {
        if (open_somewhere(&window, space, bytes) && cover(window)) {
            return 0;
        }
        forget_first();
    }
    return -ENOMEM;
}

int ebbi_tags_prepare(const void *start, size_t bytes)
{
    size_t page = ebbi_os_page_size();
    EBBI_ASSERT(ebbi_granule_of(start) + (bytes >> EBBI_GRANULE_SHIFT) <= ebbi_window.granules);
    const struct ebbi_tag *tags = ebbi_window.tags + ebbi_granule_of(start);
    uintptr_t from = ebbi_align_down((uintptr_t)tags, page);
    uintptr_t end = ebbi_align_up((uintptr_t)(tags + (bytes >> EBBI_GRANULE_SHIFT)), page);
    return ebbi_os_make_writable((void *)from, end - from);
}
