// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: what src/region asks of the layers below, over one chunk of a few small granules.
// A granule's bitmaps are one word each, so a model can share them all.
#ifndef EBB_ARENA_ARENA_H
#define EBB_ARENA_ARENA_H

#include "base/bits.h"
#include "ebbtide/detail/atomic.h"
#include "os/lock.h"
#include "os/os.h"

#define EBBI_GRANULE_SHIFT 10
#define EBBI_GRANULE ((size_t)1 << EBBI_GRANULE_SHIFT)
#define EBBI_CHUNK ((size_t)1 << 14)
#define EBBI_HEADER 256u
#define EBBI_BITMAP_ROOM 24u
#define EBBI_CHUNK_GRANULES (EBBI_CHUNK >> EBBI_GRANULE_SHIFT)
#define EBBI_FIRST_GRANULE 5u // behind headers and bitmaps

enum ebbi_span_state { EBBI_SPAN_NONE, EBBI_SPAN_INSIDE, EBBI_SPAN_SHEET, EBBI_SPAN_QUARANTINE };
enum { EBBI_TAG_NONE, EBBI_TAG_REGION };

struct ebbi_span {
    uint8_t state;
    uint16_t back;
    uint32_t granules;
};

struct ebb_region;
struct ebbi_label;

struct ebbi_note {
    struct ebbi_label *label;
    struct ebb_region *region;
    void *before, *after;
    size_t bytes;
};
struct ebbi_note *ebbi_large_note(void *p);

struct ebbi_model_chunk {
    alignas(EBBI_CHUNK) unsigned char bytes[EBBI_CHUNK];
};
inline ebbi_model_chunk ebbi_model_chunk;

struct ebbi_span *ebbi_span_alloc(size_t granules, size_t align_granules, uint8_t state);
void ebbi_span_free(struct ebbi_span *span);

static inline struct ebbi_span *ebbi_model_header(size_t granule)
{
    return reinterpret_cast<struct ebbi_span *>(ebbi_model_chunk.bytes + granule * EBBI_HEADER);
}
static inline size_t ebbi_model_granule(const void *p)
{
    return static_cast<size_t>(static_cast<const unsigned char *>(p) - ebbi_model_chunk.bytes) >>
           EBBI_GRANULE_SHIFT;
}
static inline struct ebbi_span *ebbi_span_at(uintptr_t, size_t granule)
{
    return ebbi_model_header(granule);
}
static inline struct ebbi_span *ebbi_span_of(const void *p)
{
    return ebbi_model_header(ebbi_model_granule(p));
}
static inline size_t ebbi_span_index(const struct ebbi_span *span)
{
    const auto *header = reinterpret_cast<const unsigned char *>(span);
    return static_cast<size_t>(header - ebbi_model_chunk.bytes) / EBBI_HEADER;
}
static inline void *ebbi_span_start(const struct ebbi_span *span)
{
    return ebbi_model_chunk.bytes + (ebbi_span_index(span) << EBBI_GRANULE_SHIFT);
}
static inline void *ebbi_span_bitmap_room(const struct ebbi_span *span)
{
    return ebbi_model_chunk.bytes + EBBI_CHUNK_GRANULES * EBBI_HEADER +
           ebbi_span_index(span) * EBBI_BITMAP_ROOM;
}

// Tags are not modelled: what frees a block has found it to be a region's.
static inline void ebbi_tags_set(void *, size_t, int) {}
static inline size_t ebbi_os_page_size(void) { return EBBI_GRANULE; }
static inline bool ebbi_os_purge(void *, size_t) { return false; }
static inline void ebbi_dense_split(void *, size_t) {}
static inline void ebbi_arena_count_purged(size_t) {}
static inline void ebbi_os_yield(void) { rl::yield(1, $); }

#endif
