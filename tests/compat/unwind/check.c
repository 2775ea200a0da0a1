// SPDX-License-Identifier: MIT OR Apache-2.0
// Preloaded: takes the stack of every EVERYth malloc twice, by the library's unwinder (src/one.c is linked in) and by
// libgcc's, and tells at the end how many there were and how many differ. Ours may go on where libgcc's ends; then it
// has found its way through code that nobody described. A place in an interrupted call may be one byte behind.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "os/os.h"
#include "unwind/unwind.h"

#define EVERY 53
#define MOST 200
#define SELDOM 200 // stacks; a process with fewer says nothing

void *__libc_malloc(size_t bytes);

static bool ready;
static long mallocs, stacks, different, longer; // atomic
static __thread bool busy;

__attribute__((constructor)) static void start(void)
{
    void *call;
    busy = true;
    (void)backtrace(&call, 1);
    ebbi_os_unwind_by(dlsym(RTLD_DEFAULT, "_dl_find_object"));
    ready = true;
    busy = false;
}

static bool fits(uintptr_t ours, const void *theirs)
{
    return ours == (uintptr_t)theirs - 1 || ours == (uintptr_t)theirs;
}

// The two innermost of ours and the innermost of theirs are in here.
static __attribute__((noinline)) void compare(void)
{
    uintptr_t ours[MOST];
    void *theirs[MOST];
    long depth = (long)ebbi_unwind(ours, MOST);
    long depth_there = backtrace(theirs, MOST - 1) + 1;
    bool same = depth >= depth_there;
    for (long i = 2; same && i < depth_there; i++) {
        same = fits(ours[i], theirs[i - 1]);
    }
    __atomic_fetch_add(&stacks, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&different, !same, __ATOMIC_RELAXED);
    __atomic_fetch_add(&longer, same && depth > depth_there, __ATOMIC_RELAXED);
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    if (ready && !busy && __atomic_add_fetch(&mallocs, 1, __ATOMIC_RELAXED) % EVERY == 0) {
        busy = true;
        compare();
        busy = false;
    }
    return __libc_malloc(bytes);
}

__attribute__((destructor)) static void tell(void)
{
    char line[120];
    const char *file = getenv("UNWIND_CHECK");
    FILE *out = stacks > SELDOM && file != NULL ? fopen(file, "a") : NULL;
    if (out != NULL) {
        (void)snprintf(line, sizeof line, "%ld stacks, %ld differ, %ld go further\n", stacks,
                       different, longer);
        (void)fputs(line, out);
        (void)fclose(out);
    }
}
