// SPDX-License-Identifier: MIT OR Apache-2.0
// malloc and its family over glibc's, with a header in front of each block. The event of a new block is made after
// libc gave it, that of a block's end before libc gets it back: so no other thread can be given the memory
// by an event that stands earlier.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/record/record.h"

// glibc's own names, which no program replaces.
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *p);

void cfree(void *p);

enum {
    FRONT = 64, // keeps the alignment of a cache line where libc gave it
    ALIGN_MIN = 16,
};

_Static_assert(sizeof(struct header) <= FRONT, "a header fits in front of a block");

static struct header *header_of(void *p)
{
    return (struct header *)((char *)p - sizeof(struct header));
}

static uint32_t check_of(const void *p)
{
    return (uint32_t)(((uintptr_t)p * 0x9e3779b97f4a7c15U) >> 32) | 1;
}

static bool is_ours(void *p) { return header_of(p)->check == check_of(p); }

static void *start_of(void *p) { return (char *)p - header_of(p)->front; }

static void end(struct stream *stream)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    stream->is_busy = false;
}

// The stream of this thread, marked busy; NULL where nothing is recorded.
static struct stream *begin(void)
{
    if (!LIKELY(*is_own_process)) {
        become_child();
    }
    struct stream *stream = self;
    if (LIKELY(stream != NULL && !stream->is_busy)) {
        stream->is_busy = true;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (has_room(stream)) {
            return stream;
        }
        end(stream);
        return NULL;
    }
    if (stream != NULL) {
        stream->lost++;
        return NULL;
    }
    return attach();
}

// The program's block within libc's, with its header filled.
static void *dress(void *start, size_t front, size_t size)
{
    char *p = (char *)start + front;
    *header_of(p) = (struct header){
        .check = check_of(p), .front = (uint32_t)front, .size = size, .thread = TRACE_NO_THREAD};
    return p;
}

static void name_object(struct stream *stream, struct header *header)
{
    header->object = stream->coder.made - 1;
    header->turn = (uint32_t)stream->coder.turn;
    header->thread = stream->thread;
    if (header->size >= TRACE_LARGE) {
        large_made(header);
    }
}

static void *make(void *start, size_t front, size_t size, enum trace_kind kind, uint32_t small)
{
    if (start == NULL) {
        return NULL;
    }
    void *p = dress(start, front, size);
    struct stream *stream = begin();
    if (stream != NULL) {
        note_made(stream, kind, size, small);
        name_object(stream, header_of(p));
        end(stream);
    }
    return p;
}

static void *refuse(void)
{
    errno = ENOMEM;
    return NULL;
}

static bool is_too_much(size_t bytes) { return bytes > (size_t)PTRDIFF_MAX - FRONT; }

static void *make_aligned(size_t align, size_t bytes)
{
    size_t front = align > FRONT ? align : FRONT;
    if (front > (size_t)1 << 30 || bytes > (size_t)PTRDIFF_MAX - front) {
        return refuse();
    }
    return make(__libc_memalign(align, bytes + front), front, bytes, TRACE_ALIGNED,
                (uint32_t)__builtin_ctzl(align));
}

// Out of the list of large blocks, whether or not its end can be written down.
static uint64_t forget_large(struct header *header)
{
    return header->size >= TRACE_LARGE ? large_ends(header) : 0;
}

static void let_go(struct header *header)
{
    uint64_t pages = forget_large(header);
    struct stream *stream = begin();
    if (stream == NULL) {
        return;
    }
    if (header->size >= TRACE_LARGE) {
        note_touched(stream, header, pages);
    }
    note_free(stream, header);
    end(stream);
}

EXPORT void *malloc(size_t bytes)
{
    if (is_too_much(bytes)) {
        return refuse();
    }
    return make(__libc_malloc(bytes + FRONT), FRONT, bytes, TRACE_MALLOC, 0);
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || is_too_much(bytes)) {
        return refuse();
    }
    return make(__libc_calloc(1, bytes + FRONT), FRONT, bytes, TRACE_CALLOC, 0);
}

EXPORT void free(void *p)
{
    if (p == NULL) {
        return;
    }
    if (!is_ours(p)) {
        __libc_free(p);
        return;
    }
    int saved = errno;
    struct header *header = header_of(p);
    if (header->thread != TRACE_NO_THREAD) {
        let_go(header);
    }
    header->check = 0;
    __libc_free(start_of(p));
    errno = saved;
}

EXPORT void cfree(void *p) { free(p); }

// A block that moves between the forms of header, or that libc would not keep aligned, is made anew.
static void *move(void *p, size_t bytes)
{
    void *start = __libc_malloc(bytes + FRONT);
    if (start == NULL) {
        return NULL;
    }
    size_t size = header_of(p)->size;
    void *moved = dress(start, FRONT, bytes);
    memcpy(moved, p, size < bytes ? size : bytes);
    header_of(p)->check = 0;
    __libc_free(start_of(p));
    return moved;
}

static void *resize(void *p, size_t bytes)
{
    if (header_of(p)->front != FRONT) {
        return move(p, bytes);
    }
    header_of(p)->check = 0;
    void *start = __libc_realloc(start_of(p), bytes + FRONT);
    if (start == NULL) {
        header_of(p)->check = check_of(p);
        return NULL;
    }
    return dress(start, FRONT, bytes);
}

static void note_resized(struct stream *stream, const struct header *old, uint64_t pages, void *p)
{
    if (old->size >= TRACE_LARGE) {
        note_touched(stream, old, pages);
    }
    note_realloc(stream, old, header_of(p)->size);
    name_object(stream, header_of(p));
}

static void *resize_recorded(void *p, size_t bytes)
{
    struct header old = *header_of(p);
    uint64_t pages = forget_large(header_of(p));
    struct stream *stream = begin();
    void *resized = resize(p, bytes);
    if (resized == NULL && old.size >= TRACE_LARGE) {
        large_made(header_of(p));
    }
    if (resized != NULL && stream != NULL) {
        note_resized(stream, &old, pages, resized);
    }
    if (stream != NULL) {
        end(stream);
    }
    return resized;
}

EXPORT void *realloc(void *p, size_t bytes)
{
    if (p == NULL) {
        return malloc(bytes);
    }
    if (bytes == 0) {
        free(p);
        return NULL;
    }
    if (is_too_much(bytes)) {
        return refuse();
    }
    if (!is_ours(p)) {
        return __libc_realloc(p, bytes);
    }
    return header_of(p)->thread != TRACE_NO_THREAD ? resize_recorded(p, bytes) : resize(p, bytes);
}

EXPORT size_t malloc_usable_size(void *p)
{
    if (p == NULL) {
        return 0;
    }
    return header_of(p)->size; // what is recorded is what the program asked for
}

static bool is_power(size_t align) { return align != 0 && (align & (align - 1)) == 0; }

EXPORT void *memalign(size_t align, size_t bytes)
{
    if (align > SIZE_MAX / 2 + 1) { // no power of two is as large
        errno = EINVAL;
        return NULL;
    }
    while (!is_power(align)) { // glibc takes the next power of two
        align = align == 0 ? 1 : (align | (align - 1)) + 1;
    }
    return make_aligned(align < ALIGN_MIN ? ALIGN_MIN : align, bytes);
}

EXPORT void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }

EXPORT int posix_memalign(void **out, size_t align, size_t bytes)
{
    if (!is_power(align) || align % sizeof(void *) != 0) {
        return EINVAL;
    }
    int saved = errno;
    void *p = memalign(align, bytes);
    errno = saved;
    if (p == NULL) {
        return ENOMEM;
    }
    *out = p;
    return 0;
}

EXPORT void *valloc(size_t bytes) { return memalign((size_t)sysconf(_SC_PAGESIZE), bytes); }

EXPORT void *pvalloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes > SIZE_MAX - page ? refuse() : memalign(page, (bytes + page - 1) / page * page);
}
