// SPDX-License-Identifier: MIT OR Apache-2.0
// jemalloc's *allocx. Of the flags, alignment and zero count: there are no arenas and no tcaches to choose from.
#include <jemalloc/jemalloc.h>
#include <string.h>

#include "both.h"
#include "figures.h"

#define LEAST_ALIGN 16   // of every block
#define CLASS_MAX 131072 // larger blocks are whole pages (docs/size-classes.md)
#define LG_ALIGN_MASK 0x3f

static size_t align_of(int flags) { return (size_t)1 << (flags & LG_ALIGN_MASK); }

static size_t least_one(size_t size) { return size > 0 ? size : 1; }

static void *allocate(size_t size, int flags)
{
    size_t align = align_of(flags);
    if (align > LEAST_ALIGN) {
        return ebb_aligned_alloc(align, size);
    }
    return (flags & MALLOCX_ZERO) != 0 ? ebb_calloc(1, size) : ebb_malloc(size);
}

static void clear_from(void *p, size_t from)
{
    size_t size = ebb_malloc_usable_size(p);
    if (from < size) {
        memset((char *)p + from, 0, size - from);
    }
}

void *mallocx(size_t size, int flags)
{
    void *p = allocate(least_one(size), flags);
    if (p != NULL && (flags & MALLOCX_ZERO) != 0) { // calloc clears what was asked for
        clear_from(p, align_of(flags) > LEAST_ALIGN ? 0 : size);
    }
    return p;
}
ALSO_JE(mallocx);

static void *move(void *p, size_t size, int flags)
{
    size_t before = ebb_malloc_usable_size(p);
    void *to = ebb_aligned_alloc(align_of(flags), size);
    if (to != NULL) {
        memcpy(to, p, before < size ? before : size);
        ebb_free(p);
    }
    return to;
}

void *rallocx(void *p, size_t size, int flags)
{
    if (p == NULL) {
        return mallocx(size, flags);
    }
    size_t before = ebb_malloc_usable_size(p);
    bool is_aligned = align_of(flags) <= LEAST_ALIGN;
    void *to = is_aligned ? ebb_realloc(p, least_one(size)) : move(p, least_one(size), flags);
    if (to != NULL && (flags & MALLOCX_ZERO) != 0) {
        clear_from(to, before);
    }
    return to;
}
ALSO_JE(rallocx);

size_t xallocx(void *p, size_t size, size_t extra, int flags)
{
    (void)size;
    (void)extra;
    (void)flags;
    return ebb_malloc_usable_size(p);
}
ALSO_JE(xallocx);

size_t sallocx(const void *p, int flags)
{
    (void)flags;
    return ebb_malloc_usable_size(p);
}
ALSO_JE(sallocx);

void dallocx(void *p, int flags)
{
    (void)flags;
    ebb_free(p);
}
ALSO_JE(dallocx);

void sdallocx(void *p, size_t size, int flags) { ebb_free_aligned_sized(p, align_of(flags), size); }
ALSO_JE(sdallocx);

size_t nallocx(size_t size, int flags)
{
    size_t page = ebbi_compat_page();
    if (size > CLASS_MAX && align_of(flags) <= page) {
        return size <= PTRDIFF_MAX - page ? (size + page - 1) / page * page : 0;
    }
    void *p = allocate(least_one(size), flags & ~MALLOCX_ZERO);
    size_t real = ebb_malloc_usable_size(p);
    ebb_free(p);
    return real;
}
ALSO_JE(nallocx);

void *je_malloc(size_t size) { return ebb_malloc(size); }
void *je_calloc(size_t count, size_t size) { return ebb_calloc(count, size); }
void *je_realloc(void *p, size_t size) { return ebb_realloc(p, size); }
void je_free(void *p) { ebb_free(p); }
void *je_aligned_alloc(size_t align, size_t size) { return ebb_aligned_alloc(align, size); }
void *je_memalign(size_t align, size_t size) { return ebb_memalign(align, size); }
int je_posix_memalign(void **out, size_t align, size_t size)
{
    return ebb_posix_memalign(out, align, size);
}
size_t je_malloc_usable_size(const void *p) { return ebb_malloc_usable_size(p); }
