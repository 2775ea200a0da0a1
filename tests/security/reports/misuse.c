// SPDX-License-Identifier: MIT OR Apache-2.0
// One kind of misuse, the library preloaded: `misuse KIND BYTES`. The first thread allocates, a second one frees, a third one
// misuses; their numbers, and the block's address, are on stdout before that. Exit status 7: it has come to its end.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void free_sized(void *p, size_t bytes) __attribute__((weak));

enum { OWN_STATUS = 7, USAGE = 2 };

static char *volatile block;
static size_t bytes;
static char foreign[64];

// ---- kinds -------------------------------------------------------------------------------------

static void free_block(void) { free(block); }
static void free_inside(void) { free(block + 16); }
static void free_foreign(void) { free(foreign + 16); }
static void free_size(void) { free_sized(block, bytes + 500); }
static void write_block(void) { block[bytes / 2]++; }

static void free_overflown(void)
{
    block[bytes] ^= 0x55;
    free(block);
}

static void free_underflown(void)
{
    block[-1] ^= 0x55;
    free(block);
}

static void resize_block(void)
{
    if (realloc(block, 2 * bytes) != NULL)
        abort();
}

static void resize_foreign(void)
{
    if (realloc(foreign + 16, 100) != NULL)
        abort();
}

static const struct kind {
    const char *name;
    void (*misuse)(void);
    int is_freed; // before it
} kinds[] = {
    {"double_free", free_block, 1},         {"invalid_free", free_inside, 0},
    {"foreign_free", free_foreign, 0},      {"mismatch", free_size, 0},
    {"overflow", free_overflown, 0},        {"underflow", free_underflown, 0},
    {"write_after_free", write_block, 1},   {"realloc_freed", resize_block, 1},
    {"realloc_foreign", resize_foreign, 0},
};

// ---- one, in three threads -----------------------------------------------------------------------

static void *free_it(void *number)
{
    *(int *)number = gettid();
    free(block);
    return NULL;
}

static void *misuse_it(void *kind)
{
    printf("%d %p\n", gettid(), block);
    fflush(stdout);
    ((const struct kind *)kind)->misuse();
    return NULL;
}

static void in_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0 || pthread_join(thread, NULL) != 0)
        exit(USAGE);
}

static void run_once(const struct kind *kind)
{
    int freed_by = 0;
    block = malloc(bytes);
    memset(block, 1, bytes);
    if (kind->is_freed)
        in_thread(free_it, &freed_by);
    printf("%d %d ", getpid(), freed_by);
    in_thread(misuse_it, (void *)kind);
}

int main(int count, char **arguments)
{
    for (size_t i = 0; count == 3 && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(arguments[1], kinds[i].name) == 0) {
            bytes = strtoul(arguments[2], NULL, 10);
            run_once(&kinds[i]);
            return OWN_STATUS;
        }
    }
    return USAGE;
}
