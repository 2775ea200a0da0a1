// SPDX-License-Identifier: MIT OR Apache-2.0
// For the model of parking: of heap/heap.h what heap/park.c and the fast malloc and free use, over
// Relacy's atomics. Two threads with heaps of one class, whose magazines have blocks at the start.
#ifndef EBB_HEAP_HEAP_H
#define EBB_HEAP_HEAP_H
#define EBB_HEAP_REGISTRY_H
#define EBB_HEAP_SLABS_H
#define EBB_FRONT_FRONT_H
#define EBB_OS_WAKE_H

#include "model.h"

#include "base/base.h"
#include "base/bits.h"
#include "debug/site.h"
#include "os/lock.h"
#include "os/os.h"

#define EBBI_ARRAYS 2
#define EBBI_TAG_COUNT 2
#define EBBI_QUANTUM 16
#define EBBI_SMALL_MAX 16

// A word that its thread keeps plain, too.
template <typename T> struct Own : model::Atomic<T> {
    Own() = default;
    operator T() const { return this->real().load(rl::mo_relaxed, $); }
    Own &operator=(T value)
    {
        this->real().store(value, rl::mo_relaxed, $);
        return *this;
    }
    Own &operator=(const Own &from) { return *this = T(from); }
    Own(const Own &) = delete;
};

using ebbi_slot = Own<void *>;

struct ebbi_bag_top {
    Own<void **> top, limit;
};

struct ebbi_fast {
    Own<ebbi_slot *> top[EBBI_TAG_COUNT], limit[EBBI_TAG_COUNT];
    struct ebbi_bag_top limbo[EBBI_TAG_COUNT];
    uint16_t bin_of[2] = {1, 1};
};

struct ebbi_magazine {
    ebbi_slot *base;
    uint16_t slots, stolen, noted, bin;
};

struct ebbi_owner {
    struct ebbi_lock lock;
};

struct ebbi_heap {
    struct ebbi_fast fast;
    uint16_t lane = 0;
    struct ebbi_owner own;
    Own<uint32_t> inside, parked;
    Own<struct ebbi_fast *> *slot;
    uint64_t arrays[2] = {2, 0};
    struct ebbi_magazine magazines[EBBI_ARRAYS];
    rl::var<unsigned> charged, lends; // as charged_bytes and lends of the engine's
};

static unsigned ebbi_class_for(size_t) { return 1; }
static unsigned ebbi_class_bin(unsigned, unsigned) { return 1; }

struct ebbi_tag {
    uint16_t bin;
};
static const struct {
    size_t granules, fast_granules;
    struct ebbi_tag tags[1];
} ebbi_window = {1, 1, {{1}}};

struct ebb_region;

static struct ebbi_fast ebbi_heap_none, ebbi_heap_gone;
extern struct ebbi_fast ebbi_heap_parked;
struct ebbi_fast *ebbi_current(void);
Own<struct ebbi_fast *> &source_of_thread();
#define ebbi_source (source_of_thread())

static inline size_t ebbi_magazine_size(const struct ebbi_magazine *) { return 16; }
static inline size_t ebbi_granule_of(const void *) { return 0; }
static inline int64_t ebbi_tag_load(const struct ebbi_tag *tag) { return tag->bin; }
static inline size_t ebbi_tag_bin(int64_t tag) { return static_cast<size_t>(tag); }
static inline bool ebbi_slab_has_place(const void *, int64_t) { return true; }
static inline void ebbi_helper_kick() {}
static inline void ebbi_magazines_lend(struct ebbi_heap *heap)
{
    heap->lends($) = heap->charged($);
}
static inline void ebbi_magazines_lend_no_more(struct ebbi_heap *heap) { heap->lends($) = 0; }
static inline void ebbi_heap_prepare(struct ebbi_fast *) {} // the stage has
static inline void *ebbi_malloc_slow(size_t, ebbi_site) { return nullptr; }
void ebbi_flush_quiet(struct ebbi_heap *heap);
void *ebbi_malloc_empty(size_t bytes, ebbi_site site);
void ebbi_free_slow(void *p, ebbi_site site);
static inline void ebbi_free_given_slow(void *p, size_t, size_t, ebbi_site site)
{
    ebbi_free_slow(p, site);
}
void ebbi_give_blocks(struct ebbi_owner *owner, ebbi_slot *blocks, size_t count);
void ebbi_heaps_each(void (*visit)(struct ebbi_heap *heap, void *context), void *context);

// The other fast paths are compiled and not played.
static inline void ebbi_retire_slow(void *) {}
static inline bool ebbi_region_is_easy(struct ebb_region *, size_t) { return false; }
static inline void *ebbi_region_slow(struct ebb_region *, size_t, size_t) { return nullptr; }

#include "heap/park.h"

// As in front/slow.c.
static inline void *ebbi_malloc_parked(size_t bytes, ebbi_site site)
{
    ebbi_unpop(bytes);
    return ebbi_malloc_empty(bytes, site);
}

#endif
