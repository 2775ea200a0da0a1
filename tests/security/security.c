// SPDX-License-Identifier: MIT OR Apache-2.0
// Heap misuse, one case a process: `security --list`, `security CASE SIZE fault|clean [SEED]`.
// This file has the driver: the table of all cases, the marks, the bystanders and the aftermath.
#include "security.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { AFTERMATH = 1000, AFTERMATH_LARGE = 200, EDGE = 256 };

static const struct test_case *const families[] = {
    double_cases, invalid_cases, mismatch_cases, overflow_cases,   stale_cases,
    zero_cases,   leak_cases,    predict_cases,  impossible_cases, metadata_cases};

static bool listened; // descriptor 3 was open from the start

void mark(char letter)
{
    int error = errno;
    if (listened && write(3, &letter, 1) < 0)
        errno = error; // the listener has gone
}

void harm(struct run *run)
{
    if (!run->harmed)
        mark('H');
    run->harmed = true;
}

void skip_run(void) { _exit(EXIT_SKIPPED); }

void broken(const char *text)
{
    if (write(2, text, strlen(text)) < 0 || write(2, "\n", 1) < 0)
        _exit(EXIT_BROKEN);
    _exit(EXIT_BROKEN);
}

unsigned chance(struct run *run)
{
    run->seed = run->seed * 1664525u + 1013904223u;
    return run->seed >> 8;
}

void nap_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        continue;
}

uintptr_t address_of(void *object) { return (uintptr_t)hide(object); }

void only_small(struct run *run)
{
    if (run->size > 64)
        skip_run();
}

// Every byte of a stamp has its high bit: no attacker's byte in here has.
static byte stamp_byte(unsigned id, size_t at) { return (byte)(0x80 | ((id * 37 + at) & 0x7f)); }

static size_t next_edge(size_t at, size_t size)
{
    return at == EDGE && size > 4096 ? size - EDGE : at;
}

static void stamp(const struct held *held)
{
    volatile byte *p = hide(held->start);
    for (size_t i = 0; i < held->size; i = next_edge(i + 1, held->size))
        p[i] = stamp_byte(held->id, i);
}

static bool stamp_is_whole(const struct held *held)
{
    const volatile byte *p = hide(held->start);
    for (size_t i = 0; i < held->size; i = next_edge(i + 1, held->size))
        if (p[i] != stamp_byte(held->id, i))
            return false;
    return true;
}

static bool overlap(const struct held *a, const struct held *b)
{
    return a->start < b->start + b->size && b->start < a->start + a->size;
}

byte *block_of(size_t size)
{
    byte *p = hide(malloc(size));
    if (p == NULL)
        broken("malloc returned NULL");
    if (size != 0)
        p[0] = p[size - 1] = 0x31;
    return p;
}

byte *block(struct run *run)
{
    byte *p = block_of(run->size);
    struct held whole = {p, run->size, 1};
    stamp(&whole);
    return p;
}

byte *hold(struct run *run, byte *p, size_t size)
{
    if (run->held_count == HOLD_MAX)
        broken("too many held blocks");
    struct held *held = &run->held[run->held_count];
    *held = (struct held){p, size, (unsigned)run->held_count + 2};
    run->held_count++;
    stamp(held);
    return p;
}

byte *hold_block(struct run *run) { return hold(run, block_of(run->size), run->size); }

byte *around(struct run *run)
{
    for (int i = 0; i < 16; i++)
        hold_block(run);
    byte *victim = hold_block(run);
    for (int i = 0; i < 16; i++)
        hold_block(run);
    return victim;
}

void keep(struct run *run, void *p)
{
    if (run->keep_count == KEEP_MAX)
        broken("too many kept blocks");
    run->keep[run->keep_count++] = p;
}

void zone(struct run *run, void *p, size_t length)
{
    if (run->zone_count < ZONE_MAX)
        run->zone[run->zone_count++] = (struct held){p, length, 0};
}

byte *reuse(struct run *run, const void *stale, size_t size)
{
    int limit = size > 4096 ? 100 : 2000;
    for (int i = 0; i < limit; i++) {
        byte *p = block_of(size);
        if ((uintptr_t)stale - (uintptr_t)p < size)
            return p;
        keep(run, p);
    }
    return NULL;
}

byte *move_block(struct run *run, byte *p)
{
    byte *old = hide(p);
    keep(run, block_of(run->size));
    for (size_t size = run->size * 2; size < (size_t)256 << 20; size *= 2) {
        byte *q = hide(realloc(p, size));
        if (q == NULL)
            broken("realloc returned NULL");
        if (q != old) {
            keep(run, q);
            return q;
        }
        p = q;
    }
    skip_run();
}

static void check_one(struct run *run, const struct held *fresh)
{
    for (int i = 0; i < run->held_count; i++)
        if (overlap(fresh, &run->held[i]))
            harm(run);
    for (int i = 0; i < run->zone_count; i++)
        if (overlap(fresh, &run->zone[i]))
            harm(run);
}

void provoke(struct run *run)
{
    static struct held fresh[AFTERMATH];
    unsigned count = run->size > 4096 ? AFTERMATH_LARGE : AFTERMATH;
    for (unsigned i = 0; i < count; i++) {
        byte *p = hide(malloc(run->size));
        if (p == NULL && !run->fault)
            broken("malloc returned NULL in the aftermath");
        if (p == NULL) { // the heap is of no more use
            harm(run);
            return;
        }
        fresh[i] = (struct held){p, run->size, i + 1000};
        check_one(run, &fresh[i]);
        for (unsigned j = 0; j < i; j++)
            if (overlap(&fresh[i], &fresh[j]))
                harm(run);
        stamp(&fresh[i]);
    }
    for (unsigned i = 0; i < count; i++)
        if (!stamp_is_whole(&fresh[i]))
            harm(run);
    for (int i = 0; i < run->held_count; i++)
        if (!stamp_is_whole(&run->held[i]))
            harm(run);
    for (unsigned i = 0; i < count; i++)
        free(fresh[i].start);
}

void *in_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, body, argument) != 0 || pthread_join(thread, &result) != 0)
        broken("no thread");
    return result;
}

void in_child(struct run *run, void (*body)(struct run *, void *), void *argument)
{
    int status = 0;
    pid_t child = fork();
    if (child < 0)
        broken("no child");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(9);
        body(run, argument);
        provoke(run);
        _exit(run->harmed ? 4 : 0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status)) { // as the child, so the parent
        signal(WTERMSIG(status), SIG_DFL);
        kill(getpid(), WTERMSIG(status));
        nap_ms(1000);
    }
    if (WEXITSTATUS(status) == 4)
        run->harmed = true;
    else if (status != 0)
        _exit(WEXITSTATUS(status));
}

void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL && strncmp(name, "_Z", 2) == 0 &&
        dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL) != NULL)
        found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL)
        skip_run();
    return found;
}

static const struct test_case *find_case(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (const struct test_case *c = families[i]; c->name != NULL; c++)
            if (strcmp(c->name, name) == 0)
                return c;
    return NULL;
}

static int list_cases(void)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (const struct test_case *c = families[i]; c->name != NULL; c++)
            printf("%s\t%s\t%s\n", c->name, c->family, c->text);
    return 0;
}

static int usage(void)
{
    fputs("usage: security --list | security CASE SIZE fault|clean [SEED]\n", stderr);
    return EXIT_USAGE;
}

// A heap that has been used, differently for each seed.
static void warm(struct run *run)
{
    byte *waste[64];
    int count = 16 + (int)(chance(run) % 48);
    for (int i = 0; i < count; i++)
        waste[i] = block_of(run->size);
    for (int i = 0; i < count; i++) {
        if (chance(run) % 4 == 0)
            keep(run, waste[i]);
        else
            free(waste[i]);
    }
    for (int i = 0; i < 24; i++)
        hold_block(run);
}

static int finish(struct run *run)
{
    provoke(run);
    for (int i = 0; i < run->held_count; i++)
        free(hide(run->held[i].start));
    run->held_count = 0;
    for (int i = 0; i < run->keep_count; i++)
        free(hide(run->keep[i]));
    provoke(run);
    mark('E');
    if (!run->fault)
        return run->harmed ? EXIT_BROKEN : 0;
    return run->prevented ? EXIT_PREVENTED : EXIT_MISSED;
}

int main(int argc, char **argv)
{
    static struct run run;
    struct rlimit none = {0, 0};
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_cases();
    if (argc < 3)
        return usage();
    run.size = strtoul(argv[2], NULL, 10);
    if (strcmp(argv[1], SELF_COMMAND) == 0) {
        print_address(run.size);
        return 0;
    }
    const struct test_case *found = find_case(argv[1]);
    if (argc > 5 || argc < 4 || found == NULL || run.size < 16)
        return usage();
    run.fault = strcmp(argv[3], "fault") == 0;
    if (!run.fault && strcmp(argv[3], "clean") != 0)
        return usage();
    run.seed = argc == 5 ? (unsigned)strtoul(argv[4], NULL, 10) : 1;
    listened = fcntl(3, F_GETFD) >= 0;
    setrlimit(RLIMIT_CORE, &none);
    alarm(10);
    warm(&run);
    found->body(&run);
    _exit(finish(&run));
}
