// SPDX-License-Identifier: MIT OR Apache-2.0
// An allocator with a fault, over glibc's: what a replay must find. BAD_ALLOCATOR is twice, dirty, shifted, lost or refuses.
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t bytes);
void __libc_free(void *p);

static _Alignas(64) char shared[512];

static int has(const char *fault)
{
    const char *asked = getenv("BAD_ALLOCATOR");
    return asked != NULL && strcmp(asked, fault) == 0;
}

static int is_shared(const char *p) { return p >= shared && p < shared + sizeof shared; }

void *malloc(size_t bytes)
{
    if (has("refuses") && bytes > 1900) {
        return NULL;
    }
    if (has("twice") && bytes > 150 && bytes < 160) {
        return shared;
    }
    return has("shifted") && bytes > 150 && bytes < 160 ? shared + 8 : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t size)
{
    char *p = __libc_calloc(count, size);
    if (p != NULL && has("dirty") && count * size > 1000) {
        p[count * size / 2] = 1;
    }
    return p;
}

void *realloc(void *p, size_t bytes)
{
    if (is_shared(p)) {
        return memcpy(__libc_malloc(bytes), p, bytes < 160 ? bytes : 160);
    }
    char *moved = __libc_realloc(p, bytes);
    if (moved != NULL && has("lost") && bytes > 1000) {
        moved[0] ^= 1;
    }
    return moved;
}

void free(void *p)
{
    if (!is_shared(p)) {
        __libc_free(p);
    }
}
