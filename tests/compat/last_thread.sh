#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A process ends when its last own thread returns, also after main has left by pthread_exit and also
# in a forked child: a thread of the library must not keep it alive.
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
cat >"$work/program.c" <<'P'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void burst(void)
{
    void *blocks[20000];
    for (int i = 0; i < 20000; i++) { blocks[i] = malloc(2000); memset(blocks[i], 1, 2000); }
    for (int i = 0; i < 20000; i++) free(blocks[i]);
    void *large = malloc(30 << 20);
    memset(large, 1, 30 << 20);
    free(large);
}

static void *work(void *unused)
{
    (void)unused;
    burst();
    usleep(300000);
    burst();
    return NULL;
}

static void *fork_then_work(void *unused)
{
    burst();
    pid_t child = fork();
    if (child == 0) return work(unused);
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) _exit(1);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argv;
    pthread_t thread;
    pthread_create(&thread, NULL, argc > 1 ? fork_then_work : work, NULL);
    pthread_detach(thread);
    burst();
    pthread_exit(NULL);
}
P
build "$work/program.c" "$work/program" -pthread
timeout 20 "$work/program" || fail "the program does not end even without the library"
time_limit=20
preloaded "$work/program" || fail "the process outlives its last thread (status $?)"
preloaded "$work/program" fork || fail "a forked child outlives its last thread (status $?)"
prove "$work/program"
finish
