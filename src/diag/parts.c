// SPDX-License-Identifier: MIT OR Apache-2.0
#include "diag/parts.h"

#include <string.h>

#define PAGES_AT_ONCE 256
#define LEAST_PAGE ((size_t)4096)
_Static_assert(EBBI_SHEET_MOST *EBBI_GRANULE <= PAGES_AT_ONCE * LEAST_PAGE, "a sheet at once");

// What nobody tells is taken to be there.
static void look_at(struct ebbi_os_pages *pages, uintptr_t start, size_t bytes,
                    unsigned char *vector)
{
    EBBI_ASSERT(bytes <= PAGES_AT_ONCE * ebbi_os_page_size());
    if (!ebbi_os_resident(pages, (void *)start, bytes, vector)) {
        memset(vector, 1, bytes / ebbi_os_page_size());
    }
}

size_t ebbi_resident_in(struct ebbi_os_pages *pages, uintptr_t start, size_t bytes)
{
    unsigned char vector[PAGES_AT_ONCE];
    size_t page = ebbi_os_page_size();
    size_t total = 0;
    uintptr_t end = ebbi_align_up(start + bytes, page);
    for (uintptr_t at = ebbi_align_down(start, page); at < end;) {
        size_t part = ebbi_min(end - at, PAGES_AT_ONCE * page);
        look_at(pages, at, part, vector);
        for (size_t i = 0; i < part / page; i++) {
            total += (vector[i] & 1) != 0 ? page : 0;
        }
        at += part;
    }
    return total;
}

static void add_page(struct ebbi_parts *parts, size_t page, size_t live, size_t cached)
{
    EBBI_ASSERT(live + cached <= page);
    parts->live += live;
    parts->cached += cached;
    *(live + cached > 0 ? &parts->pinned : &parts->free) += page - live - cached;
}

// Bytes of the page at `at` that lie under the blocks of `bits`.
static size_t bytes_in_page(const struct ebbi_slab *slab, const uint64_t *bits, uintptr_t at,
                            size_t page)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    uintptr_t first = slab->first_block;
    size_t bytes = 0;
    size_t block = at > first ? (at - first) / c->size : 0;
    for (; block < c->blocks && first + block * c->size < at + page; block++) {
        if ((bits[block / 64] >> (block % 64) & 1) != 0) {
            uintptr_t from = ebbi_max(first + block * c->size, at);
            uintptr_t to = ebbi_min(first + (block + 1) * c->size, at + page);
            bytes += to - from;
        }
    }
    return bytes;
}

void ebbi_slab_parts(struct ebbi_os_pages *pages, const struct ebbi_slab *slab,
                     const struct ebbi_cached *cached, struct ebbi_parts *parts)
{
    unsigned char vector[PAGES_AT_ONCE];
    struct ebbi_slab_use use;
    size_t page = ebbi_os_page_size();
    uintptr_t start = (uintptr_t)ebbi_span_start(&slab->head);
    size_t bytes = (size_t)ebbi_slab_class(slab)->granules << EBBI_GRANULE_SHIFT;
    ebbi_slab_measure(slab, cached, &use);
    *parts =
        (struct ebbi_parts){.live_blocks = use.live_blocks,
                            .live_bytes = use.live_blocks * ebbi_class_bytes(slab->class_number),
                            .cached_blocks = use.cached_blocks};
    look_at(pages, start, bytes, vector);
    for (uintptr_t at = start; at < start + bytes; at += page) {
        if ((vector[(at - start) / page] & 1) != 0) {
            add_page(parts, page, bytes_in_page(slab, use.live, at, page),
                     bytes_in_page(slab, use.cached, at, page));
        }
    }
}

struct sheet_pages {
    struct ebbi_parts *parts;
    uintptr_t start;
    uint32_t live[PAGES_AT_ONCE]; // bytes in use, by page
};

static void count_block(uintptr_t start, size_t bytes, void *context)
{
    struct sheet_pages *count = context;
    size_t page = ebbi_os_page_size();
    count->parts->live_blocks++;
    count->parts->live_bytes += bytes;
    for (uintptr_t at = start; at < start + bytes;) {
        uintptr_t end = ebbi_min(ebbi_align_down(at, page) + page, start + bytes);
        count->live[(at - count->start) / page] += (uint32_t)(end - at);
        at = end;
    }
}

void ebbi_sheet_parts(struct ebbi_os_pages *pages, const struct ebbi_sheet *sheet,
                      struct ebbi_parts *parts)
{
    unsigned char vector[PAGES_AT_ONCE];
    struct sheet_pages count = {.parts = parts, .start = ebbi_sheet_start(sheet)};
    size_t page = ebbi_os_page_size();
    size_t bytes = ebbi_sheet_bytes(sheet);
    *parts = (struct ebbi_parts){0};
    ebbi_sheet_each(sheet, count_block, &count);
    look_at(pages, count.start, bytes, vector);
    for (size_t i = 0; i < bytes / page; i++) {
        if ((vector[i] & 1) != 0) {
            add_page(parts, page, ebbi_min(count.live[i], page), 0); // its owner goes on meanwhile
        }
    }
}
