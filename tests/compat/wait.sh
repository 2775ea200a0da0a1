#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# libebbtide_wait.so: an unchanged program whose threads wait in every call that it stands before. Each wait
# ends the thread's epoch, and waits as it does without the library: results, errno, cancellation, signals.
# Without it there is no such domain.
. "$(dirname "$0")/lib.bash"
find_program compiler g++
find_program c_compiler gcc
tests=$(dirname "$0")/wait
wait_library=$(dirname "$library")/wait/libebbtide_wait.so
both="$library $wait_library"
[ -r "$wait_library" ] || fail "there is no $wait_library"

for program in waits disturbed; do
    build "$tests/$program.cc" "$work/$program" -std=c++17 -I "$tests/../../../include" -pthread -ldl
    prove "$work/$program" off
    same ok "$(preloaded "$work/$program" off)" "$program without the library of waits"
    for preload in "$both" "$wait_library $library" "$both"; do
        same ok "$(library=$preload preloaded "$work/$program" on)" "$program with it"
    done
done
same "$(nm -D --defined-only "$library" | grep -cE ' (accept|accept4|clock_nanosleep|poll|select|pthread_cond_wait)$')" 0 \
    "waits that the library itself stands before"
LD_BIND_NOW=1 LD_DEBUG=bindings LD_DEBUG_OUTPUT=$work/bound LD_PRELOAD=$both "$work/waits" on >/dev/null
for call in $(nm -D --defined-only "$wait_library" | sed -n 's/.* T //p'); do
    [ "$call" = pthread_cond_clockwait ] || grep -hqF "to $wait_library [0]: normal symbol \`$call'" "$work"/bound.* ||
        fail "$call is not bound to $wait_library"
done
LD_PRELOAD=$wait_library env true 2>"$work/alone"
grep -qx 'libebbtide_wait: libebbtide.so is not preloaded beside it: waits are as without' "$work/alone" ||
    fail "the library of waits alone says nothing"

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
for preload in "$library" "$both"; do
    same ok "$(LD_PRELOAD="$preload $work/early.so" timeout -k 5 20 "$work/opens" 2>>"$work/stderr")" \
        "waits before the libraries' constructors, $preload"
    same ok "$(time_limit=20 library=$preload preloaded "$work/opens" "$work/early.so")" \
        "waits in a constructor under dlopen, $preload"
done
finish
