// SPDX-License-Identifier: MIT OR Apache-2.0
// Asks mallctl what jemalloc and Ebbtide must say alike, and prints it: linked with either, the lines are the same.
// Values are left out, but for those that mean the same in both.
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mallctl(const char *, void *, size_t *, void *, size_t);
int mallctlnametomib(const char *, size_t *, size_t *);
int mallctlbymib(const size_t *, size_t, void *, size_t *, void *, size_t);
void *mallocx(size_t, int);
void *rallocx(void *, size_t, int);
size_t xallocx(void *, size_t, size_t, int);
size_t nallocx(size_t, int);
size_t sallocx(const void *, int);
void dallocx(void *, int);

#define ZERO 0x40

static const char *error(int code)
{
    switch (code) {
    case 0:
        return "ok";
    case ENOENT:
        return "ENOENT";
    case EINVAL:
        return "EINVAL";
    case EPERM:
        return "EPERM";
    case EFAULT:
        return "EFAULT";
    default:
        return "?";
    }
}

static void reads(const char *name)
{
    for (size_t length = 0; length <= 9; length++) {
        char value[16];
        size_t got = length;
        int code = mallctl(name, value, &got, NULL, 0);
        printf("read %s, %zu: %s, %zu\n", name, length, error(code), got);
    }
}

static void writes(const char *name, const void *value, size_t length)
{
    printf("write %s, %zu: %s\n", name, length,
           error(mallctl(name, NULL, NULL, (void *)value, length)));
}

static void depths(const char *name)
{
    for (size_t most = 0; most <= 5; most++) {
        size_t mib[8], depth = most;
        int code = mallctlnametomib(name, mib, &depth);
        printf("mib %s, %zu: %s, %zu\n", name, most, error(code), depth);
        if (code == 0 && depth > 3) {
            printf("its third is %zu\n", mib[2]);
        }
    }
}

static void blocks(void)
{
    printf("%d %d %d\n", mallocx(SIZE_MAX, 0) == NULL, mallocx(1, 63) == NULL,
           mallocx(SIZE_MAX / 2 + 1, ZERO) == NULL);
    printf("%zu %zu %zu\n", nallocx(SIZE_MAX, 0), nallocx(1, 63), nallocx(100, 12));
    void *p = mallocx(100, ZERO | 6);
    size_t real = sallocx(p, 0);
    printf("%d %d\n", real >= 100, (int)((uintptr_t)p % 64));
    printf("%d %d\n", xallocx(p, 50, 0, 0) == real, rallocx(p, SIZE_MAX, 0) == NULL);
    memset(p, 1, real);
    p = rallocx(p, 10000, ZERO);
    size_t kept = 0, zeros = 0;
    for (size_t i = 0; i < sallocx(p, 0); i++) {
        kept += i < real && ((char *)p)[i] == 1;
        zeros += i >= real && ((char *)p)[i] == 0;
    }
    printf("%d\n", kept + zeros == sallocx(p, 0) && kept == real);
    dallocx(p, 0);
}

int main(void)
{
    static const char *const read[] = {
        "epoch",
        "version",
        "stats.allocated",
        "stats.active",
        "stats.resident",
        "stats.mapped",
        "stats.retained",
        "stats.metadata",
        "arenas.narenas",
        "arenas.nbins",
        "arenas.nhbins",
        "arenas.nlextents",
        "arenas.page",
        "arenas.quantum",
        "arenas.dirty_decay_ms",
        "arena.0.dirty_decay_ms",
        "arena.4096.dirty_decay_ms",
        "arena.0.initialized",
        "arena.4096.initialized",
        "arena.0.purge",
        "arena.0.decay",
        "stats.arenas.0.pactive",
        "stats.arenas.4096.pactive",
        "stats.arenas.4097.pactive",
        "stats.arenas.00.pdirty",
        "stats.arenas.0.pmuzzy",
        "stats.arenas.0.resident",
        "background_thread",
        "max_background_threads",
        "thread.arena",
        "thread.tcache.enabled",
        "thread.tcache.flush",
        "thread.idle",
        "opt.narenas",
        "opt.background_thread",
        "opt.dirty_decay_ms",
        "opt.muzzy_decay_ms",
        "opt.prof",
        "opt.retain",
        "opt.stats_print",
        "opt.tcache",

        "opt.zero",
        "opt.junk",
        "config.stats",
        "config.prof",
        "config.debug",
        "config.fill",
        "config.utrace",
        "config.xmalloc",
        "config.malloc_conf",
        "",
        ".",
        "stats",
        "stats.",
        "stats..allocated",
        "stats.allocated.x",
        "nothing",
        "arena.x.purge",
        "arena..purge",
        "arena.-1.purge",
        "arena.99999999999999999999.purge",
        "arena.300.purge",
    };
    uint64_t one = 1;
    bool yes = true;
    unsigned arena = 0, far = 5000;
    for (size_t i = 0; i < sizeof read / sizeof read[0]; i++) {
        reads(read[i]);
        depths(read[i]);
    }
    depths("stats.nothing");
    for (size_t length = 0; length <= 9; length++) {
        static const char *const written[] = {
            "epoch",   "stats.allocated", "arena.0.purge", "thread.arena", "thread.tcache.enabled",
            "version", "opt.narenas",     "nothing"};
        for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
            bool is_flag = strcmp(written[i], "thread.tcache.enabled") == 0;
            bool is_arena = strcmp(written[i], "thread.arena") == 0;
            writes(written[i],
                   is_flag    ? (void *)&yes
                   : is_arena ? (void *)&arena
                              : (void *)&one,
                   length);
            writes(written[i], NULL, length);
        }
    }
    writes("thread.arena", &far, sizeof far);
    writes("background_thread", &yes, 2);
    writes("background_thread", &yes, 1);
    for (arena = 0; arena <= 4096; arena += 4096) {
        char name[40];
        snprintf(name, sizeof name, "arena.%u.purge", arena);
        writes(name, NULL, 0);
        snprintf(name, sizeof name, "arena.%u.decay", arena);
        writes(name, NULL, 0);
    }
    size_t value, length = sizeof value;
    printf("%s %s\n", error(mallctl("stats.allocated", NULL, &length, NULL, 0)),
           error(mallctl("stats.allocated", &value, NULL, NULL, 0)));
    size_t mib[4], depth = 4;
    mallctlnametomib("stats.arenas.0.pactive", mib, &depth);
    for (arena = 4095; arena <= 4097; arena++) {
        mib[2] = arena;
        printf("%u: %s\n", arena, error(mallctlbymib(mib, depth, &value, &length, NULL, 0)));
    }
    blocks();
    return 0;
}
