#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs that are built with a sanitizer and linked with the library, for its regions, say: malloc is the sanitizer's own, and
# the helper is a thread that it has not seen begin. (ThreadSanitizer reports races where blocks come again, as it does not see
# the library's own code: they are none.)
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
cat >"$work/program.c" <<'P'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef ALONE
#define ebb_malloc malloc
#define ebb_free free
#define ebb_helper_start() 0
#define ebb_retire_with(p, destroy, context) destroy(p, context)
#else
void *ebb_malloc(size_t bytes), ebb_free(void *p);
void ebb_retire_with(void *p, void (*destroy)(void *, void *), void *context);
int ebb_helper_start(void);
#endif

static void destroy(void *p, void *unused)
{
    *(volatile char *)p = 1; // also where it runs in no thread of the program's
    ebb_free(p);
    (void)unused;
}

static void *works(void *unused)
{
    for (int i = 1; i < 3000; i++) {
        free(malloc((size_t)i * 10));
        char *volatile p = ebb_malloc((size_t)i * 10);
        p[0] = 1;
        ebb_free(p);
        ebb_retire_with(ebb_malloc(100), destroy, NULL);
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
    usleep(700000);
    puts("ok");
    return 0;
}
P
ln -s "$library" "$work/libebbtide.so"
ln -s "$library" "$work/libebbtide.so.0"
tried=0
for sanitizer in thread leak address undefined; do
    build "$work/program.c" "$work/alone" -pthread -fsanitize=$sanitizer -DALONE
    [ "$("$work/alone" 2>&1)" = ok ] || continue # it does not run on this machine
    build "$work/program.c" "$work/linked" -pthread -fsanitize=$sanitizer -L"$work" -lebbtide -Wl,-rpath,"$work"
    for _ in 1 2 3; do
        same ok "$(TSAN_OPTIONS=report_bugs=0 timeout -k 5 "$time_limit" "$work/linked" 2>>"$work/stderr")" "output with -fsanitize=$sanitizer"
    done
    tried=$((tried + 1))
done
[ $tried -gt 0 ] || skip "no sanitizer runs here"
finish
