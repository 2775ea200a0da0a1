#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program that stands before libc's malloc with a part of the family, or all of it but the questions, on glibc's own names.
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
cat >"$work/program.c" <<'P'
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t), __libc_free(void *), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
static _Atomic long calls;

void *malloc(size_t bytes) { calls++; return __libc_malloc(bytes); }
void free(void *p) { __libc_free(p); }
#if PART > 0
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *p, size_t bytes) { return __libc_realloc(p, bytes); }
#endif
#if PART > 1
void *memalign(size_t align, size_t bytes) { return __libc_memalign(align, bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return __libc_memalign(align, bytes); }
void *valloc(size_t bytes) { return __libc_valloc(bytes); }
void *pvalloc(size_t bytes) { return __libc_pvalloc(bytes); }
int posix_memalign(void **out, size_t align, size_t bytes)
{
    *out = __libc_memalign(align, bytes);
    return *out != NULL ? 0 : ENOMEM;
}
#endif

static void *works(void *unused)
{
    char *line = NULL;
    size_t room = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (getline(&line, &room, maps) > 0) {
    }
    fclose(maps);
    free(line);
    void *p = realloc(calloc(10, 100), 5000);
    free(p);
    if (posix_memalign(&p, 64, 100) != 0)
        return NULL;
    free(p);
    p = realloc(aligned_alloc(4096, 1), 100);
    if (malloc_usable_size(p) < 100)
        return NULL;
    free(p);
    free(valloc(1));
    free(pvalloc(1));
    free(unused);
    return strdup("abc");
}

int main(void)
{
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, works, malloc(300));
        pthread_join(thread, &result);
        if (result == NULL)
            return 1;
        free(result);
    }
    printf("%s\n", calls > 0 ? "ok" : "not called");
    return 0;
}
P
for part in 0 1 2; do
    build "$work/program.c" "$work/program" -w -pthread -fno-builtin -DPART=$part
    same ok "$("$work/program")" "output on glibc alone"
    for option in EBB_CHECK=0 EBB_CHECK=1 EBB_GUARD=1000; do
        same ok "$(preloaded env $option "$work/program")" "output with part $part, $option"
    done
done
finish
