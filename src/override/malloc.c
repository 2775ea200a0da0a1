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

// As glibc, which takes the next power of two.
static void *next_aligned(size_t align, size_t bytes)
{
    size_t power = (size_t)1 << ebbi_highest_bit(align | 1);
    size_t next = power < align ? 2 * power : power; // 0: there is none
    return ebbi_family_aligned(next, bytes, EBBI_BY_ALIGNED);
}

EXPORT void *memalign(size_t align, size_t bytes) { return next_aligned(align, bytes); }

EXPORT int posix_memalign(void **out, size_t align, size_t bytes)
{
    return ebbi_family_posix_memalign(out, align, bytes);
}

static void *by_pages(size_t bytes)
{
    return ebbi_family_aligned(ebbi_os_page_size(), bytes, EBBI_BY_ALIGNED);
}

static void *whole_pages(size_t bytes)
{
    size_t whole = ebbi_align_up(bytes, ebbi_os_page_size());
    return by_pages(whole < bytes ? SIZE_MAX : whole);
}

EXPORT void *valloc(size_t bytes) { return by_pages(bytes); }
EXPORT void *pvalloc(size_t bytes) { return whole_pages(bytes); }

#ifdef __GLIBC__
// What programs call that stand before libc's malloc with a part of the family of their own: all blocks are to come from
// one heap.
#define ALSO EXPORT EBBI_COLD
void *__libc_malloc(size_t bytes);
void __libc_free(void *p);
void __libc_cfree(void *p);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void *__libc_valloc(size_t bytes);
void *__libc_pvalloc(size_t bytes);
int __posix_memalign(void **out, size_t align, size_t bytes);

ALSO void *__libc_malloc(size_t bytes) { return ebbi_malloc(bytes, EBBI_BY_MALLOC); }
ALSO void __libc_free(void *p) { ebbi_free(p, EBBI_BY_MALLOC); }
ALSO void __libc_cfree(void *p) { ebbi_free(p, EBBI_BY_MALLOC); }
ALSO void *__libc_calloc(size_t count, size_t size) { return ebbi_calloc(count, size); }
ALSO void *__libc_realloc(void *p, size_t bytes) { return ebbi_realloc(p, bytes); }
ALSO void *__libc_valloc(size_t bytes) { return by_pages(bytes); }
ALSO void *__libc_pvalloc(size_t bytes) { return whole_pages(bytes); }

ALSO void *__libc_memalign(size_t align, size_t bytes) { return next_aligned(align, bytes); }

ALSO int __posix_memalign(void **out, size_t align, size_t bytes)
{
    return ebbi_family_posix_memalign(out, align, bytes);
}
#endif
