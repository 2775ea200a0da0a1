#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs that are built with a sanitizer and linked with the library, for its regions, say: malloc is the sanitizer's own, and
# the helper is a thread that it has not seen begin.
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
cat >"$work/program.c" <<'P'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *ebb_malloc(size_t bytes), ebb_free(void *p);
int ebb_helper_start(void);

static void *works(void *unused)
{
    for (int i = 0; i < 3000; i++) {
        free(malloc((size_t)i * 10));
        ebb_free(ebb_malloc((size_t)i * 10));
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    ebb_helper_start();
    pthread_create(&thread, NULL, works, NULL);
    works(NULL);
    pthread_join(thread, NULL);
    puts("ok");
    return 0;
}
P
ln -s "$library" "$work/libebbtide.so"
ln -s "$library" "$work/libebbtide.so.0"
tried=0
for sanitizer in thread leak address undefined; do
    build "$work/program.c" "$work/alone" -pthread -fsanitize=$sanitizer -Debb_malloc=malloc -Debb_free=free \
        -Debb_helper_start=getpid -w
    [ "$("$work/alone" 2>&1)" = ok ] || continue # it does not run on this machine
    build "$work/program.c" "$work/linked" -pthread -fsanitize=$sanitizer -L"$work" -lebbtide -Wl,-rpath,"$work"
    for _ in 1 2 3; do
        same ok "$(timeout -k 5 "$time_limit" "$work/linked" 2>>"$work/stderr")" "output with -fsanitize=$sanitizer"
    done
    tried=$((tried + 1))
done
[ $tried -gt 0 ] || skip "no sanitizer runs here"
finish
