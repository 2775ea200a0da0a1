// SPDX-License-Identifier: MIT OR Apache-2.0
// What the files of the program `security` share: one run of a case, the marks on descriptor 3, the
// bystanders whose contents tell of harm, and helpers that keep the compiler from seeing a misuse.
#ifndef SECURITY_H
#define SECURITY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The programs misuse memory on purpose.
#if defined __clang__
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wfree-nonheap-object"
#elif defined __GNUC__
#pragma GCC diagnostic ignored "-Wuse-after-free"
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
#pragma GCC diagnostic ignored "-Wmismatched-dealloc"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Walloc-size-larger-than="
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

enum { EXIT_MISSED = 0, EXIT_BROKEN = 9, EXIT_USAGE = 2, EXIT_PREVENTED = 3, EXIT_SKIPPED = 77 };
enum { PAGE = 4096, KEEP_MAX = 8192, HOLD_MAX = 160, ZONE_MAX = 8 };

typedef unsigned char byte;

struct held {
    byte *start;
    size_t size;
    unsigned id;
};

struct run {
    size_t size;    // of the blocks of this run
    bool fault;     // false: the same program without the misuse
    bool prevented; // the case saw that the misuse came to nothing
    bool harmed;
    unsigned seed;
    int held_count;
    struct held held[HOLD_MAX]; // live blocks with a known content
    int zone_count;
    struct held zone[ZONE_MAX]; // memory that malloc must never return
    int keep_count;
    void *keep[KEEP_MAX]; // live blocks of any content, freed at the end
};

struct test_case {
    const char *name;
    const char *family;
    const char *text;
    void (*body)(struct run *run);
};
#define CASE(family, name, text)                                                                   \
    {                                                                                              \
#name, family, text, name                                                                  \
    }
#define CASES_END                                                                                  \
    {                                                                                              \
        NULL, NULL, NULL, NULL                                                                     \
    }

extern const struct test_case double_cases[], invalid_cases[], mismatch_cases[], overflow_cases[],
    stale_cases[], zero_cases[], leak_cases[], predict_cases[], impossible_cases[],
    metadata_cases[];

// Writes one byte to descriptor 3: F before the misuse, A after it, E at the end, H for harm.
void mark(char letter);
void harm(struct run *run);
_Noreturn void skip_run(void);
_Noreturn void broken(const char *text);

// The misuse between its two marks; a clean run does `right` instead.
#define FAULT_ELSE(run, wrong, right)                                                              \
    do {                                                                                           \
        mark('F');                                                                                 \
        if ((run)->fault) {                                                                        \
            wrong;                                                                                 \
        } else {                                                                                   \
            right;                                                                                 \
        }                                                                                          \
        mark('A');                                                                                 \
    } while (0)
#define FAULT(run, wrong) FAULT_ELSE(run, wrong, (void)0)

// The compiler forgets what it knew of the pointer.
static inline void *hide(const void *pointer)
{
    uintptr_t value = (uintptr_t)pointer;
    __asm__ volatile("" : "+r"(value) : : "memory");
    return (void *)value;
}

static inline size_t hide_size(size_t size)
{
    __asm__ volatile("" : "+r"(size));
    return size;
}

unsigned chance(struct run *run);
void nap_ms(long ms);

byte *block(struct run *run);                       // malloc(run->size), filled
byte *block_of(size_t size);                        // malloc(size), its first and last byte written
byte *hold(struct run *run, byte *p, size_t size);  // a bystander from now on
byte *hold_block(struct run *run);                  // block and hold
byte *around(struct run *run);                      // a held block with 16 held ones on both sides
void keep(struct run *run, void *p);                // to be freed at the end
void zone(struct run *run, void *p, size_t length); // malloc must not return this memory
void provoke(struct run *run);                      // many mallocs and frees, checked for overlap

// Allocates until a block of `size` covers `stale`; the others are kept. NULL: it did not happen.
byte *reuse(struct run *run, const void *stale, size_t size);
// Grows the block until realloc moves it (its new place is kept), or skips the run.
byte *move_block(struct run *run, byte *p);

void *in_thread(void *(*body)(void *), void *argument); // what the thread returned
void in_child(struct run *run, void (*body)(struct run *, void *), void *argument);
void *symbol(const char *name);     // skips the run when there is none
void only_small(struct run *run);   // for cases to which the size means nothing
uintptr_t address_of(void *object); // never a constant to the compiler
void print_address(size_t size);    // of predict.c: the body of a process run again
#define SELF_COMMAND "--address"

#endif
