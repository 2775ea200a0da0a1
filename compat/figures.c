// SPDX-License-Identifier: MIT OR Apache-2.0
#include "figures.h"

#include <ebbtide.h>
#include <unistd.h>

size_t ebbi_compat_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

// The fields of a snapshot are not of one moment while threads run.
static size_t less(size_t all, size_t part) { return all > part ? all - part : 0; }

static size_t whole_pages(size_t bytes)
{
    size_t page = ebbi_compat_page();
    return (bytes + page - 1) / page * page;
}

struct ebbi_compat_figures ebbi_compat_figures_now(void)
{
    struct ebb_stats s;
    ebb_stats_get(&s);
    return (struct ebbi_compat_figures){{
        [EBBI_ALLOCATED] = s.live_bytes,
        [EBBI_ACTIVE] = whole_pages(s.live_bytes + s.resident_cached + s.resident_pinned),
        [EBBI_RESIDENT] = less(s.resident, s.resident_other),
        [EBBI_METADATA] = s.resident_metadata,
        [EBBI_FREE] = s.resident_free,
        [EBBI_CACHED] = s.cached_bytes,
        [EBBI_PINNED] = s.resident_pinned,
        [EBBI_MAPPED] = s.slab_bytes + s.large_bytes + s.huge_bytes,
        [EBBI_RETAINED] = less(s.reserved_bytes, s.slab_bytes + s.large_bytes + s.resident_free),
        [EBBI_HEAP] = s.committed_bytes + s.huge_bytes,
    }};
}
