// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: chunks, from reservation to committed granules.
#include "arena/internal.h"

#define SMALL_PAGE 4096u // with others a huge page is larger than a unit
// Below 2 MiB, so that a small program is not given a transparent huge page.
#define FIRST_STEP 31
#define LARGEST_STEP 1024
// The metadata of a chunk of up to 128 MiB is committed in one call.
#define SMALL_CHUNK (((size_t)128 << 20) >> EBBI_GRANULE_SHIFT)
#define GAP 1 // granules
#define MOST_GRANULES (EBBI_CHUNK_GRANULES - GAP)

EBBI_SPARSE uint8_t ebbi_chunk_known[(size_t)1 << (EBBI_ADDRESS_BITS - EBBI_CHUNK_SHIFT)];
size_t ebbi_committed_granules;
enum ebbi_os_huge ebbi_arena_advice;

static struct ebbi_chunk *first_chunk; // the newest
static uint32_t chunk_count;

struct ebbi_span *ebbi_chunk_header(struct ebbi_chunk *chunk, size_t granule)
{
    EBBI_ASSERT(granule >= chunk->first && granule < chunk->granules);
    return ebbi_span_at((uintptr_t)chunk, granule);
}

size_t ebbi_chunk_units(size_t granules)
{
    return (granules + EBBI_UNIT_GRANULES - 1) / EBBI_UNIT_GRANULES;
}

static size_t map_words(size_t bits) { return (bits + 63) / 64; }

// Of struct ebbi_chunk with its maps.
static size_t bytes_of_record(size_t granules)
{
    size_t in_maps = 3 * map_words(granules) + map_words(ebbi_chunk_units(granules));
    return sizeof(struct ebbi_chunk) + in_maps * sizeof(uint64_t);
}

// Granules that the metadata of a chunk of `granules` takes, at least as many as have their headers
// in the place of its record.
static size_t metadata_granules(size_t granules)
{
    size_t bytes = granules * (EBBI_HEADER + EBBI_BITMAP_ROOM);
    size_t record = (bytes_of_record(granules) + EBBI_HEADER - 1) / EBBI_HEADER;
    return ebbi_max(ebbi_align_up(bytes, EBBI_GRANULE) / EBBI_GRANULE, record);
}

size_t ebbi_chunk_metadata_bytes(const struct ebbi_chunk *chunk)
{
    return metadata_granules(chunk->granules) << EBBI_GRANULE_SHIFT;
}

static bool commit_range(uintptr_t from, uintptr_t to)
{
    EBBI_ASSERT(from < to);
    size_t page = ebbi_os_page_size();
    from = ebbi_align_down(from, page);
    return ebbi_os_commit((void *)from, ebbi_align_up(to, page) - from) == 0;
}

static bool commit_granules(struct ebbi_chunk *chunk, size_t from, size_t to)
{
    EBBI_ASSERT(from >= chunk->first && to <= chunk->granules);
    uintptr_t base = (uintptr_t)chunk;
    uintptr_t rooms = base + chunk->granules * (size_t)EBBI_HEADER;
    uintptr_t data = base + (from << EBBI_GRANULE_SHIFT);
    uintptr_t data_end = base + (to << EBBI_GRANULE_SHIFT);
    if (chunk->granules <= SMALL_CHUNK) { // its metadata is all there
        return commit_range(data, data_end);
    }
    return commit_range(base + from * EBBI_HEADER, base + to * EBBI_HEADER) &&
           commit_range(rooms + from * EBBI_BITMAP_ROOM, rooms + to * EBBI_BITMAP_ROOM) &&
           commit_range(data, data_end);
}

bool ebbi_chunk_commit(struct ebbi_chunk *chunk, size_t end)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(end > chunk->first && end <= chunk->granules);
    EBBI_ASSERT(chunk->first <= chunk->committed && chunk->committed <= chunk->granules);
    if (end <= chunk->committed) {
        return true;
    }
    size_t used = chunk->committed - chunk->first;
    size_t step = used == 0 ? FIRST_STEP : ebbi_min(ebbi_max(used, 32), LARGEST_STEP);
    size_t generous = ebbi_max(end, chunk->committed + step);
    generous = generous + step / 2 < chunk->granules ? generous : chunk->granules; // no small rest
    if (!commit_granules(chunk, chunk->committed, generous)) {
        generous = end;
        if (!commit_granules(chunk, chunk->committed, end)) {
            return false;
        }
    }
    ebbi_committed_granules += generous - chunk->committed;
    chunk->committed = (uint32_t)generous;
    return true;
}

// Reserves the largest chunk that the OS grants, not below `least` granules.
static void *reserve_chunk(size_t least, size_t *granules)
{
    size_t bytes;
    void *first = ebbi_place_first(least << EBBI_GRANULE_SHIFT, &bytes);
    if (first != NULL) {
        *granules = bytes >> EBBI_GRANULE_SHIFT;
        return first;
    }
    size_t grown = ebbi_min(ebbi_place_grown() >> EBBI_GRANULE_SHIFT, MOST_GRANULES);
    size_t wanted = ebbi_max(grown, least);
    for (;; wanted = ebbi_max(wanted / 2, least)) {
        void *got = ebbi_place(wanted << EBBI_GRANULE_SHIFT);
        if (got != NULL || wanted == least) {
            *granules = wanted;
            return got;
        }
    }
}

// What a new chunk must have before a span of it can be in a list.
static bool commit_metadata(uintptr_t base, size_t granules, size_t first)
{
    uintptr_t header = base + first * EBBI_HEADER;
    if (granules <= SMALL_CHUNK) {
        return commit_range(base, base + (metadata_granules(granules) << EBBI_GRANULE_SHIFT));
    }
    return commit_range(base, base + bytes_of_record(granules)) &&
           commit_range(header, header + EBBI_HEADER);
}

// Below the first one that spans may have.
static size_t reserved_granules(size_t granules) { return metadata_granules(granules) + GAP; }

// The fewest granules of a chunk in which a span of that many fits.
static size_t least_granules(size_t span_granules)
{
    size_t least = span_granules;
    while (least < span_granules + reserved_granules(least)) {
        least = span_granules + reserved_granules(least);
    }
    return least;
}

// The first usable granule. In the first chunk a random one, as far as the span leaves room: its boundary
// alone would tell too much about where the memory of a small program is.
static size_t first_granule(size_t granules, size_t span_granules)
{
    size_t first = reserved_granules(granules);
    size_t skipped = (size_t)(ebbi_os_entropy() >> 40) % (granules / 2);
    EBBI_ASSERT(first + span_granules <= granules);
    bool skips = chunk_count == 0 && first + skipped + span_granules <= granules;
    return first + (skips ? skipped : 0);
}

bool ebbi_chunk_is_automatic(void)
{
    return ebbi_arena_advice == EBBI_HUGE_AUTO && ebbi_os_page_size() == SMALL_PAGE &&
           ebbi_os_huge_on_request();
}

// Where they come unasked, they come to sparse memory too, and what was returned comes back.
enum ebbi_os_huge ebbi_chunk_advice(void)
{
    return ebbi_chunk_is_automatic() && ebbi_os_huge_by_default() ? EBBI_HUGE_NEVER
                                                                  : ebbi_arena_advice;
}

static void begin_chunk(struct ebbi_chunk *chunk, size_t first, size_t granules)
{
    EBBI_ASSERT(ebbi_chunk_of(chunk) == NULL);
    ebbi_os_advise_huge(chunk, granules << EBBI_GRANULE_SHIFT, ebbi_chunk_advice());
    chunk->first = chunk->committed = (uint32_t)first;
    chunk->granules = (uint32_t)granules;
    chunk->number = chunk_count++;
    chunk->free_map = (uint64_t *)(chunk + 1);
    chunk->dirty_map = chunk->free_map + map_words(granules);
    chunk->fresh_map = chunk->dirty_map + map_words(granules);
    chunk->dense_map = chunk->fresh_map + map_words(granules);
    chunk->next = first_chunk;
    first_chunk = chunk;
    // relaxed: pointers into the chunk are handed out after this, which orders it
    ebbi_store_relaxed(&ebbi_chunk_known[(uintptr_t)chunk >> EBBI_CHUNK_SHIFT], (uint8_t)1);
}

struct ebbi_chunk *ebbi_chunk_create(size_t span_granules)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(span_granules > 0);
    size_t least = least_granules(span_granules);
    size_t granules;
    if (least > MOST_GRANULES) {
        return NULL;
    }
    struct ebbi_chunk *chunk = reserve_chunk(least, &granules);
    if (chunk == NULL) {
        return NULL;
    }
    EBBI_ASSERT(((uintptr_t)chunk & (EBBI_CHUNK - 1)) == 0);
    EBBI_ASSERT(granules >= least && granules <= MOST_GRANULES);
    size_t first = first_granule(granules, span_granules);
    size_t bytes = granules << EBBI_GRANULE_SHIFT;
    EBBI_ASSERT(first * EBBI_HEADER >= bytes_of_record(granules));
    if (!commit_metadata((uintptr_t)chunk, granules, first) ||
        ebbi_tags_prepare(chunk, bytes) != 0) {
        ebbi_unplace(chunk, bytes);
        return NULL;
    }
    begin_chunk(chunk, first, granules);
    return chunk;
}

void ebbi_chunk_destroy(struct ebbi_chunk *chunk)
{
    struct ebbi_chunk **link = &first_chunk;
    ebbi_assert_held(&ebbi_arena_mutex);
    EBBI_ASSERT(ebbi_chunk_of(chunk) == chunk);
    EBBI_ASSERT(ebbi_bits_count(chunk->free_map, chunk->first, chunk->granules - chunk->first) ==
                0);
    while (*link != chunk) {
        EBBI_ASSERT(*link != NULL);
        link = &(*link)->next;
    }
    *link = chunk->next;
    // relaxed: nobody holds a pointer into it
    ebbi_store_relaxed(&ebbi_chunk_known[(uintptr_t)chunk >> EBBI_CHUNK_SHIFT], (uint8_t)0);
    size_t bytes = (size_t)chunk->granules << EBBI_GRANULE_SHIFT;
    EBBI_ASSERT(ebbi_committed_granules >= chunk->committed - chunk->first);
    ebbi_committed_granules -= chunk->committed - chunk->first;
    ebbi_unplace(chunk, bytes);
}

struct ebbi_chunk *ebbi_chunk_next(struct ebbi_chunk *chunk)
{
    ebbi_assert_held(&ebbi_arena_mutex);
    return chunk == NULL ? first_chunk : chunk->next;
}

void ebbi_arena_each_chunk(void (*visit)(struct ebbi_chunk *chunk, void *context), void *context)
{
    ebbi_lock_take(&ebbi_arena_mutex);
    for (struct ebbi_chunk *c = first_chunk; c != NULL; c = ebbi_chunk_next(c)) {
        visit(c, context);
    }
    ebbi_lock_drop(&ebbi_arena_mutex);
}
