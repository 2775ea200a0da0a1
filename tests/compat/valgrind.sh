#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# valgrind runs a small program together with the library: callgrind, memcheck with and without its own malloc.
. "$(dirname "$0")/lib.bash"
find_program valgrind valgrind
find_program compiler gcc
cat >"$work/program.c" <<'P'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *work(void *sum)
{
    for (int i = 0; i < 2000; i++) {
        size_t size = (size_t)(i * 37 % 9000) + 1;
        char *p = malloc(size);
        memset(p, 1, size);
        p = realloc(p, size * 2);
        *(size_t *)sum += (size_t)p[size - 1];
        free(p);
    }
    char *large = calloc(1, 3 << 20);
    *(size_t *)sum += (size_t)large[12345];
    free(large);
    return NULL;
}
int main(void)
{
    size_t sums[2] = {0, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, work, &sums[1]);
    work(&sums[0]);
    pthread_join(thread, NULL);
    printf("%zu\n", sums[0] + sums[1]);
    return 0;
}
P
build "$work/program.c" "$work/program" -pthread
prove "$work/program"

run_tool() {
    local log=$work/tool.log status=0
    LD_PRELOAD=$library timeout -k 5 "$time_limit" "$valgrind" --trace-children=no "$@" --log-file="$log" \
        "$work/program" >"$work/out" 2>>"$work/stderr" || status=$?
    [ "$status" -eq 0 ] && [ "$(cat "$work/out")" = 4000 ] || { cat "$log" >&2; fail "status $status under valgrind $*"; }
}
run_tool --tool=callgrind --callgrind-out-file="$work/callgrind.out"
grep -q 'libebbtide' "$work/callgrind.out" || fail "callgrind did not see the library"
run_tool --tool=memcheck --error-exitcode=9
run_tool --tool=memcheck --soname-synonyms=somalloc=nouserintercepts --leak-check=no --undef-value-errors=no --error-exitcode=9
run_tool --tool=none
finish
