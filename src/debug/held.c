// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/held.h"

#include "debug/checked.h"
#include "os/lock.h"
#include "os/os.h"

#define MOST_HELD_COUNT ((size_t)1 << 17)
#define HELD_LEAST ((size_t)1 << 20)  // bytes, however little is in use
#define HELD_COUNT_LEAST ((size_t)64) // however long they are
// One of so many, the oldest, leaves: what was freed together lies together.
#define LEAVES_FIRST ((size_t)256)
#define LOOKS_A_FREE ((size_t)2)
#define LOOKED_AT_MOST ((size_t)256 << 10) // bytes held, above which passes and the exit do that
#define LOOKS_AT_ONCE ((size_t)1024)       // before others get the lock
#define LOOKS_AHEAD 8u

static struct {
    struct ebbi_lock lock; // rank: arena, as it is taken with no other below
    void **held;           // [MOST_HELD_COUNT], a ring; constant
    size_t first, count;   // of the oldest, modulo the ring's length; how many
    size_t turn;           // number of the one to be looked at next
    size_t leaves;         // number of the one that leaves next
    size_t bytes, most_bytes;
    bool excess; // atomic: too much is held, as of the last change
} held_blocks = {.lock = EBBI_LOCK(ARENA)};

static ptrdiff_t all_in_use; // bytes, as asked for; atomic

// One block in 16 stands for as many, and always the same ones do.
void ebbi_held_count(const void *block, ptrdiff_t bytes)
{
    if (EBBI_UNLIKELY((uintptr_t)block * EBBI_GOLDEN_RATIO >> 60 == 0)) {
        (void)ebbi_fetch_add_relaxed(&all_in_use, bytes * 16); // relaxed: a number
    }
}

void ebbi_check_lock(void) { ebbi_lock_take(&held_blocks.lock); }
void ebbi_check_unlock(void) { ebbi_lock_drop(&held_blocks.lock); }

bool ebbi_held_begin(size_t most_bytes)
{
    if (held_blocks.held != NULL) {
        return false; // the start has failed once
    }
    held_blocks.held = ebbi_os_map(NULL, MOST_HELD_COUNT * sizeof(void *));
    if (held_blocks.held == NULL) {
        ebbi_message("EBB_CHECK: no memory for its tables: off");
    }
    held_blocks.most_bytes = most_bytes;
    return held_blocks.held != NULL;
}

static void **held_at(size_t number)
{
    return &held_blocks.held[(held_blocks.first + number) % MOST_HELD_COUNT];
}

// Bytes that may be held.
static size_t held_limit(void)
{
    ptrdiff_t in_use = ebbi_load_relaxed(&all_in_use); // relaxed: a number
    size_t part = in_use > 0 ? (size_t)in_use / 4 : 0;
    return ebbi_min(held_blocks.most_bytes, ebbi_max(part, HELD_LEAST));
}

// Under the lock. A few are held however long they are, within what the program allows.
static bool holds_more_than(size_t most)
{
    bool few = held_blocks.count <= HELD_COUNT_LEAST && held_blocks.bytes <= held_blocks.most_bytes;
    return held_blocks.bytes > most && !few;
}

// Under the lock. What is behind it has its number, less one.
static void *drop_held(size_t number)
{
    ebbi_assert_held(&held_blocks.lock);
    void **place = held_at(number);
    void *block = *place;
    *place = *held_at(0);
    held_blocks.first++;
    held_blocks.count--;
    held_blocks.turn -= held_blocks.turn > 0;
    held_blocks.bytes -= ebbi_checked_room(block);
    return block;
}

// Into the cache: nobody has touched it for long.
static void fetch_held(size_t number)
{
    const char *block = *held_at(number);
    __builtin_prefetch(block);
    __builtin_prefetch(block + EBBI_CACHE_LINE);
}

// The number of one of the older half, so that what has just been freed stays, however few are held.
static size_t draw_held(void)
{
    size_t older = ebbi_max(held_blocks.count / 2, 1);
    return ebbi_check_random(ebbi_min(older, LEAVES_FIRST));
}

// Who leaves after it is on its way to the cache by then.
static void *take_held(void)
{
    bool is_drawn = held_blocks.leaves < ebbi_max(held_blocks.count / 2, 1);
    void *block = drop_held(is_drawn ? held_blocks.leaves : draw_held());
    if (held_blocks.count > 0) {
        held_blocks.leaves = draw_held();
        fetch_held(held_blocks.leaves);
    }
    return block;
}

// Under the lock, at its end.
static void note_excess(bool excess)
{
    if (ebbi_load_relaxed(&held_blocks.excess) != excess) { // relaxed: under the lock
        ebbi_store_relaxed(&held_blocks.excess, excess);    // relaxed: a hint
    }
}

// What was written to since its free is nobody's from then on: somebody writes there.
static bool is_untouched(void *block)
{
    bool untouched = ebbi_held_is_untouched(block);
    if (!untouched) {
        ebbi_held_report(block);
    }
    return untouched;
}

static void *release(bool all)
{
    void *block;
    do {
        ebbi_lock_take(&held_blocks.lock);
        size_t most = held_limit();
        bool any = held_blocks.count > 0 && (all || holds_more_than(most));
        block = any ? take_held() : NULL;
        note_excess(holds_more_than(most));
        ebbi_lock_drop(&held_blocks.lock);
    } while (block != NULL && !is_untouched(block));
    return block;
}

void *ebbi_check_release(void)
{
    return ebbi_load_relaxed(&held_blocks.excess) ? release(false) : NULL; // relaxed: a hint
}

void *ebbi_check_rest(void) { return release(true); }

// Some, from the `*at`-th that was ever held on. One that was written to is held no longer; NULL: none was.
static void *look_at_some(size_t *at)
{
    void *touched = NULL;
    ebbi_lock_take(&held_blocks.lock);
    size_t number = *at - ebbi_min(*at, held_blocks.first);
    size_t end = ebbi_min(number + LOOKS_AT_ONCE, held_blocks.count);
    while (number < end && touched == NULL) {
        fetch_held(ebbi_min(number + LOOKS_AHEAD, end - 1));
        touched = ebbi_held_is_untouched(*held_at(number)) ? NULL : drop_held(number);
        number += touched == NULL;
    }
    *at = held_blocks.first + number;
    ebbi_lock_drop(&held_blocks.lock); // what a handler of SIGABRT frees takes it
    return touched;
}

void ebbi_check_look(void)
{
    ebbi_lock_take(&held_blocks.lock);
    size_t at = held_blocks.first, end = at + held_blocks.count;
    ebbi_lock_drop(&held_blocks.lock);
    while (at < end) {
        void *touched = look_at_some(&at);
        if (touched != NULL) {
            ebbi_held_report(touched);
        }
    }
}

// As long as few are held, and none leaves, where it would be looked at, each free looks at two of them, in turn. NULL: nobody has
// written there; else it is held no longer. Under the lock.
static void *look_at_next(void)
{
    void *touched = NULL;
    ebbi_assert_held(&held_blocks.lock);
    size_t looks = held_blocks.bytes <= LOOKED_AT_MOST ? LOOKS_A_FREE : 0;
    for (size_t i = 0; i < looks && touched == NULL; i++) {
        held_blocks.turn = held_blocks.turn < held_blocks.count ? held_blocks.turn : 0;
        size_t number = held_blocks.turn++;
        touched = ebbi_held_is_untouched(*held_at(number)) ? NULL : drop_held(number);
    }
    return touched;
}

void *ebbi_held_put(void *block)
{
    ebbi_lock_take(&held_blocks.lock);
    void *leaves = held_blocks.count == MOST_HELD_COUNT ? take_held() : NULL;
    *held_at(held_blocks.count++) = block;
    held_blocks.bytes += ebbi_checked_room(block);
    size_t most = held_limit();
    bool excess = holds_more_than(most);
    void *touched = excess ? NULL : look_at_next();
    if (excess && leaves == NULL) {
        leaves = take_held();
        excess = holds_more_than(most);
    }
    note_excess(excess);
    ebbi_lock_drop(&held_blocks.lock);
    if (touched != NULL) {
        ebbi_held_report(touched);
    }
    return leaves != NULL && is_untouched(leaves) ? leaves : ebbi_check_release();
}
