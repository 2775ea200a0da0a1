#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program whose first malloc comes before libc's own constructors (.preinit_array, as that of UBSan's runtime; an auditor of
# the loader has it so, too): its options are in force all the same.
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
cat >"$work/program.c" <<'P'
#include <pthread.h>
#include <stdlib.h>

static void *works(void *unused)
{
    free(malloc(100));
    return unused;
}

static void early(int count, char **arguments, char **environment)
{
    (void)count, (void)arguments, (void)environment;
    pthread_t thread;
    pthread_create(&thread, NULL, works, NULL);
    pthread_join(thread, NULL);
}
#ifdef EARLY
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = early;
#endif

int main(int count, char **arguments)
{
    volatile char *p = malloc(100);
    early(count, arguments, NULL);
    p[count > 1 ? 100 : 99] = 'x';
    free((void *)p);
    return 0;
}
P
cat >"$work/auditor.c" <<'P'
#define _GNU_SOURCE
#include <link.h>

unsigned int la_version(unsigned int version) { return version; }
unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)map, (void)space, (void)cookie;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int number, uintptr_t *from, uintptr_t *to, unsigned int *flags,
                       const char *name)
{
    (void)number, (void)from, (void)to, (void)flags, (void)name;
    return symbol->st_value;
}
P
build "$work/program.c" "$work/late" -pthread
build "$work/program.c" "$work/early" -pthread -DEARLY
build "$work/auditor.c" "$work/auditor.so" -shared -fPIC
prove "$work/early"

holds() { # command
    preloaded env EBB_CHECK=1 "$@" || fail "a right program fails: $*"
    if LD_PRELOAD=$library EBB_CHECK=1 timeout -k 5 "$time_limit" "$@" wrong 2>"$work/said"; then
        fail "EBB_CHECK is not in force: $*"
    fi
    grep -q 'overflow: 1 bytes were written' "$work/said" || fail "EBB_CHECK says nothing: $*"
    LD_PRELOAD=$library EBB_STATS=exit timeout -k 5 "$time_limit" "$@" 2>"$work/said"
    grep -q 'where the resident memory is' "$work/said" || fail "EBB_STATS is not in force: $*"
    rm -f "$work/metrics"
    LD_PRELOAD=$library EBB_METRICS_FILE=$work/metrics timeout -k 5 "$time_limit" "$@"
    [ -s "$work/metrics" ] || fail "EBB_METRICS_FILE is not in force: $*"
}
holds "$work/late"
holds "$work/early"
holds env LD_AUDIT="$work/auditor.so" "$work/late"
finish
