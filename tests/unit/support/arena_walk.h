// SPDX-License-Identifier: MIT OR Apache-2.0
// Walks every chunk and checks P1-P4 of arena/arena.h. Alone: no other thread may allocate.
#pragma once

#include "support/engine.h"

namespace unit {

struct ArenaWalk {
    std::size_t free_granules = 0, used_granules = 0, dirty_granules = 0;
    std::string broken; // the first thing found wrong

    void fail(const ebbi_chunk *chunk, std::size_t granule, const char *what)
    {
        if (broken.empty())
            broken = std::string(what) + ": chunk " + std::to_string(chunk->number) + ", granule " +
                     std::to_string(granule);
    }

    void free_span(ebbi_chunk *chunk, std::size_t g, bool after_free)
    {
        const ebbi_free_span *span = ebbi_free_span_at(chunk, g);
        std::size_t dirty = 0;
        if (after_free)
            fail(chunk, g, "P1: two free spans touch");
        for (std::size_t i = g; i < g + span->head.granules; i++) {
            bool is_end = i == g || i == g + span->head.granules - 1;
            if (ebbi_bits_test(chunk->free_map, i) != is_end)
                fail(chunk, i, "P2: the bit of a free granule is wrong");
            if (ebbi_bits_test(chunk->dirty_map, i))
                dirty++;
            else if (i < chunk->committed)
                check_zero(chunk, i);
        }
        free_granules += span->head.granules;
        dirty_granules += dirty;
        if (dirty != span->dirty)
            fail(chunk, g, "P4: a free span's count of dirty granules is wrong");
        if ((dirty > 0) != on_dirty_list(span))
            fail(chunk, g, "P4: the dirty list is wrong about a span");
    }

    void check_zero(const ebbi_chunk *chunk, std::size_t granule)
    {
        auto at = address(chunk) + (granule << EBBI_GRANULE_SHIFT);
        auto *words = reinterpret_cast<const std::uint64_t *>(at);
        for (std::size_t i = 0; i < EBBI_GRANULE / 8; i += 64)
            if (words[i] != 0)
                return fail(chunk, granule, "P3: a clean granule does not read as zero");
    }

    static bool on_dirty_list(const ebbi_free_span *span)
    {
        for (const ebbi_free_span *s = ebbi_dirty_first; s != nullptr; s = s->dirty_next)
            if (s == span)
                return true;
        return false;
    }

    void chunk_walk(ebbi_chunk *chunk)
    {
        bool after_free = false;
        for (std::size_t g = chunk->first; g < chunk->granules;) {
            ebbi_span *span = ebbi_chunk_header(chunk, g);
            if (span->granules == 0 || g + span->granules > chunk->granules)
                return fail(chunk, g, "P1: a span of no sensible length");
            bool is_free = span->state == EBBI_SPAN_FREE;
            // The length of a slab is its class's: the header beyond the first bytes is the slab's.
            if (is_free) {
                free_span(chunk, g, after_free);
            } else {
                used_granules += span->granules;
                if (ebbi_bits_count(chunk->free_map, g, span->granules) != 0)
                    fail(chunk, g, "P2: a bit for a granule in use");
            }
            after_free = is_free;
            g += span->granules;
        }
    }
};

inline ArenaWalk walk_arena()
{
    ArenaWalk walk;
    ebbi_arena_each_chunk(
        [](ebbi_chunk *chunk, void *context) {
            static_cast<ArenaWalk *>(context)->chunk_walk(chunk);
        },
        &walk);
    std::uint64_t before = 0;
    for (const ebbi_free_span *s = ebbi_dirty_first; s != nullptr; s = s->dirty_next) {
        if (s->freed_ms < before && walk.broken.empty())
            walk.broken = "P4: the dirty list is not in order of freeing";
        before = s->freed_ms;
    }
    if (walk.dirty_granules != ebbi_dirty_granules && walk.broken.empty())
        walk.broken = "the count of dirty granules is wrong";
    if (walk.used_granules != ebbi_used_granules && walk.broken.empty())
        walk.broken = "the count of used granules is wrong";
    return walk;
}

} // namespace unit

#define EXPECT_ARENA_WHOLE() EXPECT_EQ("", unit::walk_arena().broken)
#define ASSERT_ARENA_WHOLE() ASSERT_EQ("", unit::walk_arena().broken)
