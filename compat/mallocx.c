// SPDX-License-Identifier: MIT OR Apache-2.0
// jemalloc's *allocx. Of the flags, alignment and zero count: there are no arenas and no tcaches to choose from.
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <string.h>

#include "both.h"
#include "figures.h"

#define LEAST_ALIGN 16 // of every block
#define MOST ((size_t)1 << 47)
#define LG_ALIGN_MASK 0x3f

static size_t align_of(int flags) { return (size_t)1 << (flags & LG_ALIGN_MASK); }

static size_t least_one(size_t size) { return size > 0 ? size : 1; }

// What blocks of the classes have room for, ascending.
static size_t rooms[EBB_SNAPSHOT_CLASSES];
static size_t room_count;

static void find_rooms(void)
{
    struct ebb_snapshot now;
    ebb_snapshot_get(&now);
    for (size_t i = 0; i < now.class_count; i++) {
        if (now.classes[i].block_bytes > 0) {
            rooms[room_count++] = now.classes[i].block_bytes;
        }
    }
}

// The number of the first that has room for it.
static size_t first_room(size_t size)
{
    size_t from = 0;
    for (size_t to = room_count; from < to;) {
        size_t middle = (from + to) / 2;
        bool fits = rooms[middle] >= size;
        to = fits ? middle : to;
        from = fits ? from : middle + 1;
    }
    return from;
}

// What is asked for in the place of `size`, so that a program may use all that nallocx says of it: a guarded or checked block
// has no more than was asked for. 0: nobody has so much.
static size_t whole_size(size_t size, int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t page = ebbi_compat_page();
    size_t align = align_of(flags);
    (void)pthread_once(&once, find_rooms);
    if (least_one(size) > MOST || align > MOST) {
        return 0;
    }
    for (size_t i = first_room(least_one(size)); i < room_count; i++) {
        if (rooms[i] % align == 0) {
            return rooms[i];
        }
    }
    return (least_one(size) + page - 1) / page * page;
}

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
    size_t whole = whole_size(size, flags);
    void *p = whole != 0 ? allocate(whole, flags) : NULL;
    if (p != NULL && (flags & MALLOCX_ZERO) != 0) { // calloc clears what was asked for
        clear_from(p, align_of(flags) > LEAST_ALIGN ? 0 : whole);
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
    size_t whole = whole_size(size, flags);
    if (whole == 0) {
        return NULL;
    }
    size_t before = ebb_malloc_usable_size(p);
    bool is_aligned = align_of(flags) <= LEAST_ALIGN;
    void *to = is_aligned ? ebb_realloc(p, whole) : move(p, whole, flags);
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

// Of mallocx, or of malloc, whose blocks are of what was asked for.
void sdallocx(void *p, size_t size, int flags)
{
    bool is_whole = ebb_malloc_usable_size(p) == size;
    ebb_free_aligned_sized(p, align_of(flags), is_whole ? size : whole_size(size, flags));
}
ALSO_JE(sdallocx);

size_t nallocx(size_t size, int flags) { return whole_size(size, flags); }
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
