// SPDX-License-Identifier: MIT OR Apache-2.0
// Secrets of freed blocks that come back: in fresh blocks of malloc, in the tails of grown blocks,
// in slack, in the freed memory itself. A clean run wipes the secret before it frees.
#include "security.h"
#include <fcntl.h>

#define SECRET UINT64_C(0x5ec2e7c0de5ec2e7)
enum { TRIES = 64, MANY = 500 };

static void write_secret(byte *p, size_t size)
{
    volatile uint64_t *word = hide(p);
    for (size_t i = 0; i < size / 8; i++)
        word[i] = SECRET;
}

static void wipe(byte *p, size_t size)
{
    volatile byte *at = hide(p);
    for (size_t i = 0; i < size; i++)
        at[i] = 0;
}

static bool has_secret(const byte *p, size_t size)
{
    const volatile uint64_t *word = hide(p);
    for (size_t i = 0; i < size / 8; i++)
        if (word[i] == SECRET)
            return true;
    return false;
}

static void drop_secret(struct run *run, byte *p, size_t size)
{
    if (!run->fault)
        wipe(p, size);
    free(p);
}

static void free_secret(struct run *run)
{
    byte *p = block(run);
    write_secret(p, run->size);
    drop_secret(run, p, run->size);
}

// The secret is gone unless one of the fresh blocks has it.
static void look(struct run *run, size_t size)
{
    bool found = false;
    mark('F');
    for (int i = 0; i < TRIES && !found; i++) {
        byte *p = hide(malloc(size));
        found = has_secret(p, size);
        keep(run, p);
    }
    mark('A');
    run->prevented = !found;
    if (found && !run->fault)
        broken("a secret that had been wiped");
}

static void leak_same_size(struct run *run)
{
    free_secret(run);
    look(run, run->size);
}
static void leak_smaller(struct run *run)
{
    free_secret(run);
    look(run, run->size * 3 / 4);
}
static void leak_much_smaller(struct run *run)
{
    if (run->size < 256)
        skip_run();
    free_secret(run);
    look(run, 40);
}
static void leak_delayed(struct run *run)
{
    free_secret(run);
    nap_ms(300);
    look(run, run->size);
}
static void leak_many(struct run *run)
{
    static byte *p[MANY];
    int count = run->size > 4096 ? TRIES : MANY;
    for (int i = 0; i < count; i++) {
        p[i] = block_of(run->size);
        write_secret(p[i], run->size);
    }
    for (int i = 0; i < count; i++)
        drop_secret(run, p[i], run->size);
    look(run, run->size);
}
static void *thread_secret(void *run)
{
    free_secret(run);
    return NULL;
}
static void leak_from_thread(struct run *run)
{
    in_thread(thread_secret, run);
    look(run, run->size);
}
static void *thread_look(void *run)
{
    struct run *mine = run;
    look(run, mine->size);
    return NULL;
}
static void leak_to_thread(struct run *run)
{
    free_secret(run);
    in_thread(thread_look, run);
}

static void leak_aligned(struct run *run)
{
    bool found = false;
    free_secret(run);
    mark('F');
    for (int i = 0; i < TRIES && !found; i++) {
        void *p = NULL;
        if (posix_memalign(&p, 32, run->size) != 0)
            broken("posix_memalign failed");
        found = has_secret(p, run->size);
        keep(run, p);
    }
    mark('A');
    run->prevented = !found;
}

static void leak_calloc(struct run *run)
{
    bool found = false;
    free_secret(run);
    mark('F');
    for (int i = 0; i < TRIES && !found; i++) {
        byte *p = hide(calloc(1, run->size));
        found = has_secret(p, run->size);
        keep(run, p);
    }
    mark('A');
    run->prevented = !found;
}

static void leak_moved(struct run *run) // realloc leaves the old place behind
{
    byte *p = block(run);
    write_secret(p, run->size);
    if (!run->fault)
        wipe(p, run->size);
    byte *q = move_block(run, p);
    wipe(q, run->size);
    look(run, run->size);
}

static void leak_grown_tail(struct run *run)
{
    bool found = false;
    for (int i = 0; i < 8; i++)
        free_secret(run);
    mark('F');
    for (int i = 0; i < TRIES && !found; i++) {
        byte *p = hide(realloc(hide(malloc(8)), run->size));
        found = has_secret(p + 8, run->size - 8);
        keep(run, p);
    }
    mark('A');
    run->prevented = !found;
}

static void leak_shrunk_and_grown(struct run *run)
{
    byte *p = block(run);
    write_secret(p, run->size);
    if (!run->fault)
        wipe(p, run->size);
    p = hide(realloc(p, 8));
    mark('F');
    p = hide(realloc(p, run->size));
    mark('A');
    run->prevented = !has_secret(p + 8, run->size - 8);
    keep(run, p);
}

static void leak_slack(struct run *run) // between the size and the usable size
{
    bool found = false, any = false;
    byte *old[TRIES];
    for (int i = 0; i < TRIES; i++) {
        old[i] = block_of(run->size);
        write_secret(old[i], malloc_usable_size(old[i]));
    }
    for (int i = 0; i < TRIES; i++)
        drop_secret(run, old[i], malloc_usable_size(old[i]));
    mark('F');
    for (int i = 0; i < TRIES && !found; i++) {
        byte *p = hide(malloc(run->size - 7));
        size_t start = run->size & ~(size_t)7, usable = malloc_usable_size(p);
        any = any || usable >= start + 8;
        found = usable >= start + 8 && has_secret(p + start, usable - start);
        keep(run, p);
    }
    mark('A');
    if (!any)
        skip_run();
    run->prevented = !found;
}

// The freed memory itself, as a debugger or a core file shows it.
static void residue(struct run *run, long ms)
{
    static byte seen[1 << 20];
    byte *p = block(run);
    write_secret(p, run->size);
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (memory < 0)
        skip_run();
    drop_secret(run, p, run->size);
    nap_ms(ms);
    mark('F');
    ssize_t got = pread(memory, seen, run->size, (off_t)address_of(p));
    mark('A');
    close(memory);
    run->prevented = got <= 0 || !has_secret(seen, (size_t)got);
}
static void leak_residue(struct run *run) { residue(run, 0); }
static void leak_residue_delayed(struct run *run) { residue(run, 300); }

// Addresses in fresh blocks tell an attacker where the heap or libc is.
static void leak_pointer(struct run *run)
{
    static byte *old[TRIES];
    bool found = false;
    for (int i = 0; i < TRIES; i++) {
        old[i] = block(run);
        wipe(old[i], run->size);
    }
    for (int i = 0; i < TRIES; i++)
        free(old[i]);
    mark('F');
    for (int i = 0; i < TRIES; i++) {
        const volatile uintptr_t *word = hide(malloc(run->size));
        for (size_t at = 0; at < run->size / 8 && !found; at++) {
            uintptr_t page = word[at] & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
            found = page > 0xffff && page < (uintptr_t)1 << 47 &&
                    msync((void *)page, PAGE, MS_ASYNC) == 0;
        }
        keep(run, hide((void *)word));
    }
    mark('A');
    run->prevented = !found;
}

// What the program's own secret leaves behind in libc's buffers is the program's; what a fresh
// block of a size never used before shows is the allocator's.
static void leak_unused_size(struct run *run)
{
    for (int i = 0; i < 16; i++)
        free_secret(run);
    look(run, run->size + run->size / 3);
}

#define LEAK(name, text) CASE("leak", name, text)
const struct test_case leak_cases[] = {
    LEAK(leak_same_size, "a fresh block of the freed size"),
    LEAK(leak_smaller, "a fresh block of three quarters of the freed size"),
    LEAK(leak_much_smaller, "fresh blocks of 40 bytes"),
    LEAK(leak_unused_size, "a fresh block of a bigger size"),
    LEAK(leak_delayed, "a fresh block 300 ms after the free"),
    LEAK(leak_many, "a fresh block after hundreds of frees"),
    LEAK(leak_from_thread, "freed by a thread that has ended"),
    LEAK(leak_to_thread, "a fresh block of another thread"),
    LEAK(leak_aligned, "a fresh block of posix_memalign"),
    LEAK(leak_calloc, "a fresh block of calloc"),
    LEAK(leak_moved, "the place that realloc left"),
    LEAK(leak_grown_tail, "the tail of a block that realloc grew"),
    LEAK(leak_shrunk_and_grown, "the tail of a block that realloc shrank and grew"),
    LEAK(leak_slack, "the slack between size and usable size"),
    LEAK(leak_residue, "the freed memory itself, seen from outside"),
    LEAK(leak_residue_delayed, "the same 300 ms after the free"),
    LEAK(leak_pointer, "addresses in fresh blocks"),
    CASES_END,
};
