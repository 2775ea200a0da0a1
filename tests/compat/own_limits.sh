#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program that limits its own address space, or locks its memory: what is reserved must be little.
. "$(dirname "$0")/lib.bash"
find_program cc cc

cat >"$work/own.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static long status_mib(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name) + 1);
    if (file != NULL)
        fclose(file);
    return kib / 1024;
}

/* limit MiB, block bytes: prints how many MiB can be had, twice, the second time after all was freed. */
static int limited(long limit_mib, size_t bytes)
{
    struct rlimit limit = {(rlim_t)limit_mib << 20, (rlim_t)limit_mib << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    for (int round = 0; round < 2; round++) {
        void *chain = NULL, **block;
        size_t total = 0;
        while ((block = malloc(bytes)) != NULL) {
            *block = chain;
            chain = block;
            total += bytes;
        }
        while ((block = chain) != NULL) {
            chain = *block;
            free(block);
        }
        printf("%zu%c", total >> 20, round == 0 ? ' ' : '\n');
    }
    return 0;
}

int main(int argc, char **argv)
{
    void *volatile keep = malloc(100);
    if (argc == 3)
        return limited(atol(argv[1]), (size_t)atol(argv[2]));
    if (argc == 2 && mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        return 77;
    for (int i = 0; i < 10000; i++)
        keep = malloc(100);
    printf("%ld\n", status_mib(argc == 2 ? "VmLck:" : "VmSize:"));
    return keep == NULL;
}
END
compiler=$cc build "$work/own.c" "$work/own"
prove "$work/own"

# Of a limit in MiB the library's start, libc and the program take up to 64, and 4 in 5 of the rest are used.
for mib in 256 512 1024 2048 4096; do
    for bytes in 100 4096 1048576 41943040; do
        [ "$bytes" -gt 4096 ] || [ "$mib" -le 1024 ] || continue
        read -r first again <<<"$(preloaded "$work/own" $mib $bytes)"
        least=$(((mib - 64) * 4 / 5))
        [ "$first" -ge $least ] || fail "blocks of $bytes bytes under $mib MiB: only $first MiB"
        [ "$again" -ge $least ] || fail "blocks of $bytes bytes under $mib MiB: only $again MiB the second time"
    done
done

plain=$("$work/own")
size=$(preloaded "$work/own")
[ $((size - plain)) -le 128 ] || fail "the virtual size of a small program is $size MiB, without the library $plain"
if locked=$(preloaded "$work/own" lock); then
    [ "$locked" -le 64 ] || fail "a small program locks $locked MiB"
fi
finish
