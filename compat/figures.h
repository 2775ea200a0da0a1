// SPDX-License-Identifier: MIT OR Apache-2.0
// What both allocators' callers ask for, in bytes, from struct ebb_stats. Private to compat/.
#ifndef EBBTIDE_COMPAT_FIGURES_H
#define EBBTIDE_COMPAT_FIGURES_H

#include <stddef.h>

enum ebbi_compat_figure {
    EBBI_ALLOCATED, // in use by the program, by full block size
    EBBI_ACTIVE,    // those, and memory beside them that no other size can have
    EBBI_RESIDENT,  // in memory
    EBBI_METADATA,  // of it under the library's own structures
    EBBI_FREE,      // of it free, not yet returned
    EBBI_CACHED,    // in threads' caches
    EBBI_PINNED,    // of it under free blocks beside blocks in use
    EBBI_MAPPED,    // address space of slabs and objects
    EBBI_RETAINED,  // address space at hand that holds nothing
    EBBI_HEAP,      // address space that was made usable
    EBBI_FIGURES
};

struct ebbi_compat_figures {
    size_t of[EBBI_FIGURES];
};

// As of now. O(slabs), with a system call for each.
struct ebbi_compat_figures ebbi_compat_figures_now(void);

size_t ebbi_compat_page(void);

#endif
