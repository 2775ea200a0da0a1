// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: how large each magazine is. By the heap's thread, under the lock that its refill or flush took.
//
// Arrays are powers of two of slots from the heap's own granule. A magazine starts small, doubles
// while it runs both full and empty (a larger one would have saved both trips) or keeps running
// empty, and while it only fills it comes to STEADY_BYTES: blocks that come in and are not asked for are
// better off in their slabs. A tray grows by its fills to STEADY_SLOTS, of at most STEADY_BYTES.
//
// What arrays hold beyond the least is charged, in bytes of blocks:
//
// B1  charged_bytes of a heap is the sum over its arrays, and at most EBB_CACHE. Large blocks leave a part of
//     that to the others: they come to it first, and gain less.
// B2  shared.bytes is the sum over all heaps that do not lend of what is charged beyond their own part
//     (EBB_CACHE / OWN_PART). No heap grows where it comes to more than SHARED_PARTS times EBB_CACHE, so many
//     threads, each of which could have its EBB_CACHE, keep no more than that and their own parts. Nor does it
//     grow into the last quarter beyond an equal part; where others have come so far, it halves what runs empty.
// B3  whose thread sleeps, its magazines emptied by the helper (park.c), or ended in a fork lends: others may
//     have it until a thread comes for the heap. Then the sum may be over its bound; as long as it is, all
//     heaps that have a part of it halve what runs empty.
#include "heap/blocks.h"
#include "os/options.h"

#define STEADY_SLOTS 64    // as far as growth by refills alone goes, or to
#define STEADY_BYTES 8192u // of blocks; a magazine that only fills keeps as many
#define LEAST_BYTES 32768u // of blocks, but for one: what each class has that is used
#define LARGE_BYTES 2048u  // larger blocks leave a quarter of EBB_CACHE to the others
#define OWN_PART 16        // of EBB_CACHE
#define SHARED_PARTS 4     // EBB_CACHEs
#define TRAY_FILLS 4       // in a row, until a tray grows
#define GROW_AFTER 2       // refills in a row
#define SHRINK_AFTER 8     // flushes in a row

static unsigned log2_of(size_t slots) { return ebbi_highest_bit(slots); }

static struct { // atomic: sums, beside which nothing is read
    size_t bytes;
    int heaps; // that have a part of it
} shared;

static size_t least_slots(const struct ebbi_class *c)
{
    size_t fitting = (size_t)1 << log2_of(ebbi_max(LEAST_BYTES / c->size, 2));
    return ebbi_min(ebbi_min(c->slots, EBBI_LEAST_SLOTS), fitting);
}

static size_t steady_slots(const struct ebbi_class *c)
{
    return ebbi_max(least_slots(c), ebbi_min(STEADY_BYTES / c->size, c->slots));
}

// Beyond the least, which every class gets that is used.
static size_t charge(const struct ebbi_class *c, size_t slots)
{
    size_t least = least_slots(c);
    return slots > least ? (slots - least) * c->size : 0;
}

static size_t most_shared(void) { return ebbi_option(EBBI_OPTION_CACHE) * SHARED_PARTS; }

// The heap's part of what all share.
static size_t part_of(size_t charged)
{
    size_t own = ebbi_option(EBBI_OPTION_CACHE) / OWN_PART;
    return charged > own ? charged - own : 0;
}

// Up to where the sum may come with that part: the last quarter is for who has less than an equal one.
static size_t bound_of(size_t part)
{
    size_t most = most_shared();
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
static bool share_more(size_t before, size_t after)
{
    size_t bound = bound_of(after);
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
         (after > before && !share_more(before, after)))) {
        return false;
    }
    if (after < before) {
        share(before, after);
    }
    heap->charged_bytes = charged;
    return true;
}

// The heap has more of it than it may keep.
static bool owes(const struct ebbi_heap *heap)
{
    size_t part = part_of(heap->charged_bytes);
    // relaxed: as all of it
    return part != 0 && ebbi_load_relaxed(&shared.bytes) > bound_of(part);
}

size_t ebbi_magazines_charge(const struct ebbi_heap *heap)
{
    size_t sum = 0;
    for (unsigned c = 1; c < EBBI_CLASS_COUNT; c++) {
        sum += charge(&ebbi_classes[c], heap->magazines[c].slots);
    }
    return sum;
}

static void array_give(struct ebbi_heap *heap, void **array, size_t slots)
{
    EBBI_ASSERT(slots > 0 && slots < (size_t)1 << EBBI_SLOT_SIZES && (slots & (slots - 1)) == 0);
    EBBI_ASSERT(array >= heap->first_slots[0] && array + slots <= heap->slot_end);
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
    EBBI_ASSERT(array < heap->slot_end && slots <= (size_t)1 << found);
    heap->slot_free[found] = (void **)array[0];
    array_give_above(heap, array, slots, (size_t)1 << found);
    return array;
}

static void **array_take(struct ebbi_heap *heap, size_t slots)
{
    bool fresh = (size_t)(heap->slot_end - heap->slot_next) >= slots;
    if (heap->slot_free[log2_of(slots)] != NULL || !fresh) {
        return array_split(heap, slots);
    }
    void **array = heap->slot_next;
    EBBI_ASSERT(array + slots <= heap->slot_end);
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
    size_t slots = least_slots(&ebbi_classes[ebbi_tag_class(bin)]);
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

void ebbi_tray_close(struct ebbi_heap *heap, unsigned number)
{
    struct ebbi_magazine *tray = &heap->magazines[number];
    ebbi_assert_held(&heap->own.lock);
    EBBI_ASSERT(number >= EBBI_CLASS_COUNT && heap->fast.top[tray->bin] == tray->base + 1);
    array_give(heap, tray->base, tray->slots);
    tray->slots = 0;
    heap->arrays[number / 64] &= ~((uint64_t)1 << (number % 64));
    heap->fast.top[tray->bin] = heap->fast.limit[tray->bin] = NULL;
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
    for (size_t slots = least_slots(c); slots >= 2; slots /= 2) {
        if (resize(heap, class_number, slots)) {
            return true;
        }
    }
    return false;
}

static bool wants_more(const struct ebbi_class *c, const struct ebbi_magazine *m, bool turned)
{
    return m->slots < c->slots && (turned || (m->streak >= GROW_AFTER &&
                                              m->slots < ebbi_max(STEADY_SLOTS, steady_slots(c))));
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
    bool too_large = flush && m->streak >= SHRINK_AFTER && m->slots > steady_slots(c);
    if (too_large || (m->slots > least_slots(c) && owes(heap))) {
        (void)resize(heap, class_number, m->slots / (size_t)2);
    } else if (flush ? m->slots * (size_t)2 <= steady_slots(c) // and is not halved for it
                     : wants_more(c, m, turned)) {
        (void)resize(heap, class_number, m->slots * (size_t)2);
    }
}

void ebbi_magazine_reset(struct ebbi_heap *heap, unsigned class_number)
{
    EBBI_ASSERT(ebbi_is_class(class_number));
    struct ebbi_magazine *m = &heap->magazines[class_number];
    size_t least = least_slots(&ebbi_classes[class_number]);
    if (m->slots > least) {
        (void)resize(heap, class_number, least);
    }
    m->streak = 0;
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
