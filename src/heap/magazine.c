// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: how large each magazine is. By the heap's thread, under the lock that its refill or flush took.
//
// Arrays are powers of two of slots from the heap's own granule. A magazine starts small, doubles
// while it runs both full and empty (a larger one would have saved both trips) or keeps running
// empty, and while it only fills it comes to STEADY_BYTES: blocks that come in and are not asked for are
// better off in their slabs. A tray grows by its fills to STEADY_SLOTS, of at most STEADY_BYTES.
//
// Beyond 32 KiB of blocks and 256 slots grow arrays of a heap that is hot alone, to 64 KiB and 1,024: what it allocates and
// frees in batches then meets no slow path. For these it has one more granule of slots, for as long as it lives.
//
// A heap is hot for a while after its refills and flushes have taken a part of its thread's time that larger arrays
// would save. A thread that mostly waits is not: what it caches is asked for rarely, and costs as much memory.
//
// What arrays have room for is charged, in bytes of blocks, but for the first array of small ones:
//
// B1  charged_bytes of a heap is the sum over its arrays, and at most EBB_CACHE. Large blocks leave a part of
//     that to the others: they come to it first, and gain less.
// B2  shared.bytes is the sum over all heaps that do not lend of what is charged beyond their own part
//     (EBB_CACHE / OWN_PART). A heap that is hot does not grow where it comes to more than HOT_PARTS times EBB_CACHE,
//     another one where it comes to more than EBB_CACHE, or a USED_PART of what the process uses: so many threads, each of
//     which could have its EBB_CACHE, keep no more than that and their own parts. Nor does it grow into the last
//     quarter beyond an equal part. Where others have come so far, it halves what runs empty, and B4.
// B3  whose thread sleeps, its magazines emptied by the helper (park.c), or ended in a fork lends: others may
//     have it until a thread comes for the heap. Then the sum may be over its bound; as long as it is, all
//     heaps that have a part of it halve what runs empty, and B4.
// B4  A class whose array is refused has none: its blocks come and go singly. That, and a refill of a heap that has
//     more than it may keep, turns a hand over the charged arrays, now and then: one that has had no refill or flush since
//     the hand came by goes home, so that others have room (the clock of page replacement).
#include "heap/blocks.h"
#include "heap/lately.h"
#include "os/options.h"

#define STEADY_SLOTS 64    // as far as growth by refills alone goes, or to
#define STEADY_BYTES 8192u // of blocks; a magazine that only fills keeps as many
#define STEADY_HOT                                                                                 \
    131072u // the same of a hot heap: a flush for each block would be most of its time
#define FIRST_BYTES 8192u // of blocks, but for one: what a class begins with
#define GIVEN_SIZE 512u   // of blocks: up to this one a class has its first array for nothing
#define LARGE_BYTES 2048u // larger blocks leave a quarter of EBB_CACHE to the others
#define OWN_PART 32       // of EBB_CACHE
#define HOT_PARTS 6       // EBB_CACHEs
#define USED_PART 16
#define HOT_WORK 3200u    // a millisecond: refills and flushes that take a fiftieth of it, or more
#define HOT_WITHIN_MS 20u // who comes by less often may have waited for a processor
#define HOT_FOR_MS 500u
#define CALM_SLOTS 256u // of a heap that is not hot
#define BELOW_SLOTS 8   // a line: free looks at what lies below an array
#define TURN_PART 16    // of refusals: as many as an array costs that goes home and is wanted again
#define TRAY_FILLS 4    // in a row, until a tray grows
#define GROW_AFTER 2    // refills in a row
#define SHRINK_AFTER 8  // flushes in a row

_Static_assert(BELOW_SLOTS >= EBBI_LATELY - 1, "one of them is the array's own");

static unsigned log2_of(size_t slots) { return ebbi_highest_bit(slots); }

static struct { // atomic: sums, beside which nothing is read
    size_t bytes;
    int heaps; // that have a part of it
} shared;

static size_t first_slots(const struct ebbi_class *c)
{
    size_t fitting = (size_t)1 << log2_of(ebbi_max(FIRST_BYTES / c->size, 2));
    return ebbi_min(ebbi_min(c->slots, EBBI_LEAST_SLOTS), fitting);
}

static size_t given_slots(const struct ebbi_class *c)
{
    return c->size <= GIVEN_SIZE ? first_slots(c) : 1; // 1: no block
}

static size_t charge(const struct ebbi_class *c, size_t slots)
{
    size_t given = given_slots(c);
    return slots > given ? (slots - given) * c->size : 0;
}

static bool is_hot(const struct ebbi_heap *heap)
{
    return heap->hot_ms != 0 && heap->slow_ms - heap->hot_ms <= HOT_FOR_MS;
}

// Of a heap that is not hot, and of what only fills.
static size_t calm_slots(const struct ebbi_class *c)
{
    return ebbi_min(ebbi_max(c->slots / 2, ebbi_min(c->slots, 32)), CALM_SLOTS);
}

static size_t most_slots(const struct ebbi_heap *heap, const struct ebbi_class *c)
{
    return is_hot(heap) ? c->slots : calm_slots(c);
}

static size_t steady_slots(const struct ebbi_heap *heap, const struct ebbi_class *c)
{
    size_t bytes = is_hot(heap) ? STEADY_HOT : STEADY_BYTES;
    return ebbi_max(first_slots(c), ebbi_min(bytes / c->size, calm_slots(c)));
}

static size_t most_shared(const struct ebbi_heap *heap)
{
    size_t one = ebbi_option(EBBI_OPTION_CACHE), most = one * HOT_PARTS;
    return is_hot(heap) ? most : ebbi_min(ebbi_max(ebbi_arena_used_bytes() / USED_PART, one), most);
}

void ebbi_magazines_tell_time(struct ebbi_heap *heap, uint32_t now_ms)
{
    if (now_ms != heap->slow_ms) {
        if (heap->slow_work / HOT_WORK >= ebbi_min(now_ms - heap->slow_ms, HOT_WITHIN_MS)) {
            heap->hot_ms = now_ms;
        }
        heap->slow_ms = now_ms;
        heap->slow_work = 0;
    }
}

// The heap's part of what all share.
static size_t part_of(size_t charged)
{
    size_t own = ebbi_option(EBBI_OPTION_CACHE) / OWN_PART;
    return charged > own ? charged - own : 0;
}

// Up to where the sum may come with that part: the last quarter is for who has less than an equal one.
static size_t bound_of(const struct ebbi_heap *heap, size_t part)
{
    size_t most = most_shared(heap);
    size_t heaps = (size_t)ebbi_load_relaxed(&shared.heaps) + 1; // relaxed: with who has none yet
    return part > most / heaps ? most - most / 4 : most;
}

static void share(size_t before, size_t after)
{
    // relaxed: as all of it
    ebbi_fetch_add_relaxed(&shared.bytes, after - before); // or less, modulo 2^64
    if ((before == 0) != (after == 0)) {
        ebbi_fetch_add_relaxed(&shared.heaps, after == 0 ? -1 : 1); // relaxed: as above
    }
}

// False, and nothing is changed, where that were more than there is.
static bool share_more(const struct ebbi_heap *heap, size_t before, size_t after)
{
    size_t bound = bound_of(heap, after);
    // relaxed: as all of it
    if (ebbi_load_relaxed(&shared.bytes) + (after - before) > bound) {
        return false;
    }
    share(before, after);
    // relaxed: as above
    if (ebbi_load_relaxed(&shared.bytes) > bound) {
        share(after, before);
        return false;
    }
    return true;
}

void ebbi_magazines_lend(struct ebbi_heap *heap)
{
    ebbi_assert_held(&heap->own.lock);
    if (!heap->lends) {
        heap->lends = true;
        share(part_of(heap->charged_bytes), 0);
    }
}

void ebbi_magazines_lend_no_more(struct ebbi_heap *heap)
{
    if (heap->lends) {
        heap->lends = false;
        share(0, part_of(heap->charged_bytes));
    }
}

static bool charge_to(struct ebbi_heap *heap, const struct ebbi_class *c, size_t charged)
{
    size_t most = ebbi_option(EBBI_OPTION_CACHE);
    size_t before = part_of(heap->charged_bytes), after = part_of(charged);
    ebbi_magazines_lend_no_more(heap);
    if (charged > heap->charged_bytes &&
        (charged > (c->size > LARGE_BYTES ? most - most / 4 : most) ||
         (after > before && !share_more(heap, before, after)))) {
        return false;
    }
    if (after < before) {
        share(before, after);
    }
    heap->charged_bytes = charged;
    return true;
}

size_t ebbi_magazines_charge(const struct ebbi_heap *heap)
{
    size_t sum = 0;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        sum += charge(&ebbi_classes[c], heap->magazines[c].slots);
    }
    return sum;
}

static bool has_slots(const struct ebbi_heap *heap, void **array, size_t slots)
{
    void **more = heap->more_slots;
    return (array >= heap->first_slots[0] && array + slots <= heap->slots + EBBI_SLOTS) ||
           (more != NULL && array >= more + BELOW_SLOTS &&
            array + slots <= more + EBBI_GRANULE / sizeof *more);
}

static void array_give(struct ebbi_heap *heap, void **array, size_t slots)
{
    EBBI_ASSERT(slots > 0 && slots < (size_t)1 << EBBI_SLOT_SIZES && (slots & (slots - 1)) == 0);
    EBBI_ASSERT(has_slots(heap, array, slots));
    array[0] = heap->slot_free[log2_of(slots)];
    heap->slot_free[log2_of(slots)] = array;
}

// All of an array but its first `kept` slots.
static void array_give_above(struct ebbi_heap *heap, void **array, size_t kept, size_t slots)
{
    EBBI_ASSERT(kept > 0 && kept <= slots);
    for (size_t half = slots / 2; half >= kept; half /= 2) {
        array_give(heap, array + half, half);
    }
}

// A recycled array of that size, or the first part of a larger one.
static void **array_split(struct ebbi_heap *heap, size_t slots)
{
    unsigned found = log2_of(slots);
    while (found < EBBI_SLOT_SIZES && heap->slot_free[found] == NULL) {
        found++;
    }
    if (found == EBBI_SLOT_SIZES) {
        return NULL;
    }
    void **array = heap->slot_free[found];
    EBBI_ASSERT(slots <= (size_t)1 << found && has_slots(heap, array, (size_t)1 << found));
    heap->slot_free[found] = (void **)array[0];
    array_give_above(heap, array, slots, (size_t)1 << found);
    return array;
}

static bool wants_more_slots(const struct ebbi_heap *heap)
{
    return heap->more_slots == NULL && is_hot(heap) &&
           heap->slow_ms - heap->refused_ms > HOT_FOR_MS;
}

// What is left of the first part becomes arrays.
static void open_more_slots(struct ebbi_heap *heap, void **more)
{
    ebbi_assert_held(&heap->own.lock);
    while (heap->slot_next < heap->slot_end) {
        size_t slots = (size_t)1 << log2_of((size_t)(heap->slot_end - heap->slot_next));
        slots = ebbi_min(slots, (size_t)1 << (EBBI_SLOT_SIZES - 1));
        array_give(heap, heap->slot_next, slots);
        heap->slot_next += slots;
    }
    heap->more_slots = more;
    heap->slot_next = more + BELOW_SLOTS;
    heap->slot_end = more + EBBI_GRANULE / sizeof(void *);
}

// Behind the lock under which they were missed: a granule may cost a system call, and who forks waits for the lock.
void ebbi_magazines_extend(struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->lacks_slots);
    heap->lacks_slots = false;
    void *more = ebbi_own_take();
    ebbi_lock_take(&heap->own.lock);
    if (more != NULL) {
        open_more_slots(heap, more);
    } else {
        heap->refused_ms = heap->slow_ms;
    }
    ebbi_lock_drop(&heap->own.lock);
}

static void **array_take(struct ebbi_heap *heap, size_t slots)
{
    if (heap->slot_free[log2_of(slots)] != NULL) {
        return array_split(heap, slots);
    }
    if ((size_t)(heap->slot_end - heap->slot_next) < slots) {
        heap->lacks_slots = wants_more_slots(heap);
        return array_split(heap, slots);
    }
    void **array = heap->slot_next;
    EBBI_ASSERT(has_slots(heap, array, slots));
    heap->slot_next += slots;
    return array;
}

static void set_array(struct ebbi_heap *heap, unsigned number, void **array, size_t slots)
{
    struct ebbi_magazine *m = &heap->magazines[number];
    array[0] = NULL;
    // relaxed: these three are hints to ebbi_magazine_count
    ebbi_store_relaxed(&m->base, array);
    ebbi_store_relaxed(&m->slots, (uint16_t)slots); // relaxed: as above
    heap->arrays[number / 64] |= (uint64_t)1 << (number % 64);
    ebbi_store_relaxed(&heap->fast.top[m->bin], array + 1); // relaxed: as above
    heap->fast.limit[m->bin] = array + slots;
}

void ebbi_magazine_first(struct ebbi_heap *heap)
{
    for (size_t i = EBBI_FIRST_ARRAYS; i-- > 0;) {
        array_give(heap, heap->first_slots[i], EBBI_LEAST_SLOTS);
    }
}

void ebbi_tray_open(struct ebbi_heap *heap, unsigned bin)
{
    unsigned number = ebbi_tray_number(bin);
    struct ebbi_magazine *tray = &heap->magazines[number];
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(tray->slots == 0);
    size_t slots = first_slots(&ebbi_classes[ebbi_tag_class(bin)]);
    void **array = array_take(heap, slots);
    if (array != NULL) {
        tray->bin = (uint16_t)bin;
        tray->streak = 0;
        tray->busy = true;
        set_array(heap, number, array, slots);
    }
}

void ebbi_tray_adapt(struct ebbi_heap *heap, unsigned number)
{
    struct ebbi_magazine *tray = &heap->magazines[number];
    size_t slots = tray->slots * (size_t)2;
    size_t most = ebbi_min(STEADY_SLOTS, STEADY_BYTES / ebbi_magazine_size(tray));
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(tray->slots != 0 && heap->fast.top[tray->bin] == tray->base + 1);
    tray->busy = true;
    tray->streak++;
    if (tray->streak >= TRAY_FILLS && slots <= most) {
        void **array = array_take(heap, slots);
        if (array != NULL) {
            array_give(heap, tray->base, tray->slots);
            set_array(heap, number, array, slots);
        }
        tray->streak = 0;
    }
}

// Replaces the array of an empty magazine. False when there is none of that size.
static bool resize(struct ebbi_heap *heap, unsigned class_number, size_t slots)
{
    EBBI_ASSERT(ebbi_is_class(class_number) && slots >= 2 && (slots & (slots - 1)) == 0);
    EBBI_ASSERT(heap->magazines[class_number].stolen == 0);
    struct ebbi_magazine *m = &heap->magazines[class_number];
    const struct ebbi_class *c = &ebbi_classes[class_number];
    size_t before = charge(c, m->slots);
    size_t after = charge(c, slots);
    EBBI_ASSERT(m->slots == 0 ||
                heap->fast.top[ebbi_class_bin(class_number, heap->lane)] == m->base + 1);
    size_t charged = heap->charged_bytes - before + after;
    if (after > before && !charge_to(heap, c, charged)) {
        return false;
    }
    void **array = array_take(heap, slots);
    if (array == NULL && slots < m->slots) {
        array = m->base;
        array_give_above(heap, array, slots, m->slots);
    } else if (array == NULL) {
        (void)charge_to(heap, c, heap->charged_bytes - after + before);
        return false;
    } else if (m->slots != 0) {
        array_give(heap, m->base, m->slots);
    }
    if (after < before) {
        (void)charge_to(heap, c, charged);
    }
    // relaxed: a hint, and the same each time
    ebbi_store_relaxed(&m->bin, (uint16_t)ebbi_class_bin(class_number, heap->lane));
    set_array(heap, class_number, array, slots);
    return true;
}

bool ebbi_magazine_ensure(struct ebbi_heap *heap, unsigned class_number)
{
    EBBI_ASSERT(ebbi_is_class(class_number));
    const struct ebbi_class *c = &ebbi_classes[class_number];
    if (heap->magazines[class_number].slots != 0) {
        return true;
    }
    for (size_t slots = first_slots(c); slots >= 2; slots /= 2) {
        if (resize(heap, class_number, slots)) {
            heap->magazines[class_number].busy = true;
            return true;
        }
    }
    return false;
}

static bool wants_more(const struct ebbi_heap *heap, const struct ebbi_class *c,
                       const struct ebbi_magazine *m, bool turned)
{
    return m->slots < most_slots(heap, c) &&
           (turned ||
            (m->streak >= GROW_AFTER && m->slots < ebbi_max(STEADY_SLOTS, steady_slots(heap, c))));
}

void ebbi_magazine_adapt(struct ebbi_heap *heap, unsigned class_number, bool flush)
{
    const struct ebbi_class *c = &ebbi_classes[class_number];
    struct ebbi_magazine *m = &heap->magazines[class_number];
    bool turned = flush != m->flushed;
    EBBI_ASSERT(m->slots != 0 && m->slots <= c->slots);
    m->streak = turned ? 1 : (uint8_t)ebbi_min(m->streak + 1u, 255u);
    m->flushed = flush;
    m->busy = true;
    bool too_large = m->slots > most_slots(heap, c) ||
                     (flush && m->streak >= SHRINK_AFTER && m->slots > steady_slots(heap, c));
    if (too_large || (m->slots > first_slots(c) && ebbi_magazines_owe(heap))) {
        (void)resize(heap, class_number, m->slots / (size_t)2);
    } else if (flush ? m->slots * (size_t)2 <= steady_slots(heap, c) // and is not halved for it
                     : wants_more(heap, c, m, turned)) {
        (void)resize(heap, class_number, m->slots * (size_t)2);
    }
}

void ebbi_array_close(struct ebbi_heap *heap, unsigned number)
{
    struct ebbi_magazine *m = &heap->magazines[number];
    EBBI_ASSERT(m->slots != 0 && m->stolen == 0 && heap->fast.top[m->bin] == m->base + 1);
    if (number < EBBI_CLASS_COUNT) {
        (void)charge_to(heap, &ebbi_classes[number],
                        heap->charged_bytes - charge(&ebbi_classes[number], m->slots));
    }
    array_give(heap, m->base, m->slots);
    ebbi_store_relaxed(&m->slots, (uint16_t)0); // relaxed: a hint to ebbi_magazine_count
    m->streak = 0;
    heap->arrays[number / 64] &= ~((uint64_t)1 << (number % 64));
    // relaxed: as above
    ebbi_store_relaxed(&heap->fast.top[m->bin], (void **)&heap->nothing + 1);
    heap->fast.limit[m->bin] = (void **)&heap->nothing + 1;
}

bool ebbi_magazines_owe(const struct ebbi_heap *heap)
{
    size_t part = part_of(heap->charged_bytes);
    // relaxed: as all of it
    return part != 0 && ebbi_load_relaxed(&shared.bytes) > bound_of(heap, part);
}

unsigned ebbi_magazines_hand(struct ebbi_heap *heap)
{
    for (unsigned i = 0; i < 2 * EBBI_CLASS_COUNT; i++) {
        heap->hand = heap->hand % (EBBI_CLASS_COUNT - 1u) + 1;
        struct ebbi_magazine *m = &heap->magazines[heap->hand];
        if (charge(&ebbi_classes[heap->hand], m->slots) != 0) {
            if (!m->busy) {
                return heap->hand;
            }
            m->busy = false;
        }
    }
    return 0;
}

unsigned ebbi_magazines_turn(struct ebbi_heap *heap)
{
    return ++heap->turns % TURN_PART == 0 ? ebbi_magazines_hand(heap) : 0;
}

size_t ebbi_magazine_count(const struct ebbi_heap *heap, unsigned number)
{
    // relaxed: the heap's thread goes on meanwhile, with another array perhaps
    const struct ebbi_magazine *m = &heap->magazines[number];
    size_t slots = ebbi_load_relaxed(&m->slots); // relaxed: as above
    if (slots == 0) {
        return 0;
    }
    void **top =
        ebbi_load_relaxed(&heap->fast.top[ebbi_load_relaxed(&m->bin)]); // relaxed: as above
    void **base = ebbi_load_relaxed(&m->base);                          // relaxed: as above
    size_t below = ebbi_min((size_t)(top - base) - 1, slots - 1);
    return below - ebbi_min(below, m->stolen);
}
