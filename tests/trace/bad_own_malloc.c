// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that brings its own malloc, which nobody preloads over.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static _Alignas(16) char heap[1 << 22];
static size_t used;

void *malloc(size_t bytes)
{
    char *p = heap + used + 16;
    used += (bytes + 31) / 16 * 16;
    memcpy(p - 8, &bytes, sizeof bytes);
    return used <= sizeof heap ? p : NULL;
}

void free(void *p) { (void)p; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *p, size_t bytes)
{
    size_t old = 0;
    if (p != NULL) {
        memcpy(&old, (char *)p - 8, sizeof old);
    }
    void *moved = malloc(bytes);
    if (moved != NULL && old > 0) {
        memcpy(moved, p, old < bytes ? old : bytes);
    }
    return moved;
}

int main(void)
{
    for (size_t i = 0; i < 1000; i++) {
        void *p = realloc(calloc(1, i), 2 * i + 1);
        if ((char *)p < heap || (char *)p >= heap + sizeof heap) {
            return 1;
        }
        free(p);
    }
    return write(1, "own\n", 4) == 4 ? 0 : 1;
}
