#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# EBB_DOMAIN_TICK=block: an unchanged program whose threads wait in every call that the library stands
# before. Each wait ends the thread's epoch, and waits as it does without the library: results, errno,
# cancellation, signals. Without the option there is no such domain.
. "$(dirname "$0")/lib.bash"
find_program compiler g++
find_program c_compiler gcc
tests=$(dirname "$0")/block
for program in waits disturbed; do
    build "$tests/$program.cc" "$work/$program" -std=c++17 -I "$tests/../../../include" -pthread -ldl
    prove "$work/$program" off
    same ok "$(preloaded "$work/$program" off)" "$program without the option"
    same ok "$(EBB_DOMAIN_TICK=off preloaded "$work/$program" off)" "$program with the option off"
    for _ in 1 2 3; do
        same ok "$(EBB_DOMAIN_TICK=block preloaded "$work/$program" on)" "$program with the option"
    done
done
LD_BIND_NOW=1 LD_DEBUG=bindings LD_DEBUG_OUTPUT=$work/bound LD_PRELOAD=$library "$work/waits" off >/dev/null
for call in accept epoll_wait nanosleep poll pthread_cond_wait select; do
    grep -hqF "to $library [0]: normal symbol \`$call'" "$work"/bound.* || fail "$call is not bound to $library"
done

# Waits in a constructor that runs before the library's own, and in one that dlopen runs while the
# loader's lock is held: the thread that waits first must not need that lock.
cat >"$work/early.c" <<'P'
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
static void *wait_first(void *unused)
{
    struct timespec soon = {0, 1000000};
    free(malloc(100));
    return poll(NULL, 0, 1) != 0 || nanosleep(&soon, NULL) != 0 ? (void *)1 : unused;
}
__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    void *failed;
    if (pthread_create(&thread, NULL, wait_first, NULL) != 0 || pthread_join(thread, &failed) != 0 || failed)
        abort();
}
P
cat >"$work/opens.c" <<'P'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    if (argc > 1 && dlopen(argv[1], RTLD_NOW) == NULL)
        return 1;
    puts("ok");
    return 0;
}
P
compiler=$c_compiler
build "$work/early.c" "$work/early.so" -shared -fPIC -pthread
build "$work/opens.c" "$work/opens" -ldl
for mode in off block; do
    same ok "$(EBB_DOMAIN_TICK=$mode LD_PRELOAD="$library $work/early.so" timeout -k 5 20 "$work/opens" 2>>"$work/stderr")" \
        "waits before the library's constructor, $mode"
    same ok "$(EBB_DOMAIN_TICK=$mode time_limit=20 preloaded "$work/opens" "$work/early.so")" \
        "waits in a constructor under dlopen, $mode"
done

preloaded env EBB_DOMAIN_TICK=never true
grep -q '^ebbtide: true\[[0-9]*\]: EBB_DOMAIN_TICK=never is not one of off, block: ignored$' "$work/stderr" ||
    fail "a wrong value is not named"
sed -i '/EBB_DOMAIN_TICK=never/d' "$work/stderr"
finish
