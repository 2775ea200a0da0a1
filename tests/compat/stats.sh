#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# EBB_STATS: at exit and by a signal, which a program that has a use of its own for it keeps.
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
cat >"$work/asks.c" <<'P'
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t got;
static void count(int number) { got += number != 0; }
#ifdef EARLY
static void say(int number) { count(number); (void)!write(1, "early\n", 6); }
__attribute__((constructor)) static void early(void) { signal(SIGUSR2, say); }
#endif
static const char *kind;
static int is(const char *name) { return strcmp(kind, name) == 0; }
int main(int argc, char **argv)
{
    sigset_t mask, wanted;
    int number = argc > 2 ? atoi(argv[2]) : SIGUSR2, waited = 0;
    kind = argv[1];
    free(malloc(100000));
    sigprocmask(SIG_SETMASK, NULL, &mask);
    if (sigismember(&mask, SIGUSR2) || sigismember(&mask, number))
        return 2;
    if (is("handler"))
        signal(number, count);
    if (is("waits")) {
        sigemptyset(&wanted);
        sigaddset(&wanted, number);
        sigprocmask(SIG_BLOCK, &wanted, NULL);
        kill(getpid(), number);
        if (sigwait(&wanted, &waited) != 0 || waited != number)
            return 3;
        puts("waited");
        return 0;
    }
    kill(getpid(), number);
    poll(NULL, 0, 300);
    puts(got ? "handled" : "went on");
    return 0;
}
P
build "$work/asks.c" "$work/asks" -pthread
build "$work/asks.c" "$work/early.so" -DEARLY -Dmain=unused -shared -fPIC -pthread

# What the program says, and how many reports there are.
run() {
    : >"$work/stderr"
    preloaded "$work/asks" "$@" || echo "status $?"
    grep -c '^ebbtide: asks\[[0-9]*\]: where the resident memory is$' "$work/stderr" || true
}
same $'went on\n1' "$(EBB_STATS=exit run plain 17)" "a report at exit" # SIGCHLD
same $'went on\n1' "$(EBB_STATS=signal run plain)" "a report by a signal"
same $'went on\n1' "$(EBB_STATS=signal EBB_STATS_SIGNAL=10 run plain 10)" "a report by another signal"
same $'status 140\n0' "$(EBB_STATS=signal EBB_STATS_SIGNAL=10 run plain 2>/dev/null)" "SIGUSR2 then is the program's"
same $'handled\n0' "$(EBB_STATS=signal run handler)" "a handler that the program installs"
same $'handled\n1' "$(EBB_STATS=exit run handler)" "without the option the signal is the program's"
same $'waited\n0' "$(EBB_STATS=signal run waits)" "a program that waits for the signal"

library="$library $work/early.so" # whose constructor runs first
same $'early\nwent on\n0' "$(EBB_STATS=signal run plain)" "a handler that was there before"
EBB_STATS=signal run plain >/dev/null
grep -q '^ebbtide: asks\[[0-9]*\]: EBB_STATS=signal: the program handles signal 12 itself' "$work/stderr" ||
    fail "that there is no report is not said"
: >"$work/stderr"
finish
