// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: what slabs and sheets hold, and what lies on their pages that are resident.
#ifndef EBB_DIAG_PARTS_H
#define EBB_DIAG_PARTS_H

#include "diag/cached.h"
#include "os/os.h"
#include "region/sheet.h"

struct ebbi_parts {
    size_t live_blocks, live_bytes; // in use
    size_t cached_blocks;
    // Bytes of resident pages: under blocks in use, under cached ones, under what is free on a page where some of these
    // lie, and whole pages that are free. Their sum is what is resident.
    size_t live, cached, pinned, free;
};

EBBI_INLINE size_t ebbi_parts_resident(const struct ebbi_parts *parts)
{
    return parts->live + parts->cached + parts->pinned + parts->free;
}

// Bytes of it in resident pages.
size_t ebbi_resident_in(struct ebbi_os_pages *pages, uintptr_t start, size_t bytes);
void ebbi_slab_parts(struct ebbi_os_pages *pages, const struct ebbi_slab *slab,
                     const struct ebbi_cached *cached, struct ebbi_parts *parts);
void ebbi_sheet_parts(struct ebbi_os_pages *pages, const struct ebbi_sheet *sheet,
                      struct ebbi_parts *parts);

#endif
