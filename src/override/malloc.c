// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: libc's malloc family by its own names, with glibc's and musl's error behaviour.
// strdup and reallocarray are left to libc, as glibc's manual asks; they call these.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdlib.h>

#include "api/family.h"
#include "diag/load.h"
#include "os/os.h"

#define EXPORT __attribute__((visibility("default")))

// Not in every libc's headers.
void cfree(void *p);
void free_sized(void *p, size_t bytes);
void free_aligned_sized(void *p, size_t align, size_t bytes);
#ifndef __GLIBC__
void *pvalloc(size_t bytes);
#endif

EXPORT void *malloc(size_t bytes) { return ebbi_malloc(bytes, EBBI_BY_MALLOC); }
EXPORT void free(void *p) { ebbi_free(p, EBBI_BY_MALLOC); }
EXPORT void cfree(void *p) { ebbi_free(p, EBBI_BY_MALLOC); }
EXPORT void *calloc(size_t count, size_t size) { return ebbi_calloc(count, size); }
EXPORT void *realloc(void *p, size_t bytes) { return ebbi_realloc(p, bytes); }
EXPORT size_t malloc_usable_size(void *p) { return ebbi_known_size(p); }

EXPORT void free_sized(void *p, size_t bytes) { ebbi_free_sized(p, bytes, false, EBBI_BY_MALLOC); }

EXPORT void free_aligned_sized(void *p, size_t align, size_t bytes)
{
    ebbi_free_aligned(p, ebbi_min(bytes, EBBI_UNSAID - 1), align, EBBI_BY_ALIGNED);
}

EXPORT void *aligned_alloc(size_t align, size_t bytes)
{
    return ebbi_family_aligned(align, bytes, EBBI_BY_ALIGNED);
}

EXPORT void *memalign(size_t align, size_t bytes)
{
    return ebbi_family_aligned(align, bytes, EBBI_BY_ALIGNED);
}

EXPORT int posix_memalign(void **out, size_t align, size_t bytes)
{
    return ebbi_family_posix_memalign(out, align, bytes);
}

EXPORT void *valloc(size_t bytes)
{
    return ebbi_family_aligned(ebbi_os_page_size(), bytes, EBBI_BY_ALIGNED);
}

EXPORT void *pvalloc(size_t bytes)
{
    size_t page = ebbi_os_page_size();
    size_t whole = ebbi_align_up(bytes, page);
    return ebbi_family_aligned(page, whole < bytes ? SIZE_MAX : whole, EBBI_BY_ALIGNED);
}
