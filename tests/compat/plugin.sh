#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# dlopen and dlclose of a plugin that allocates, also with RTLD_DEEPBIND, from several threads.
. "$(dirname "$0")/lib.bash"
find_program compiler gcc
cat >"$work/plugin.c" <<'P'
#include <stdlib.h>
#include <string.h>
static void *early;
__attribute__((constructor)) static void open_plugin(void) { early = malloc(5000); }
__attribute__((destructor)) static void close_plugin(void) { free(early); }
void *plugin_make(size_t size) { void *p = malloc(size); if (p) memset(p, 1, size); return p; }
void plugin_drop(void *p) { free(p); }
P
cat >"$work/host.c" <<'P'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *path;
static int use(int flags)
{
    void *plugin = dlopen(path, flags);
    if (!plugin) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    void *(*make)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_make");
    void (*drop)(void *) = (void (*)(void *))dlsym(plugin, "plugin_drop");
    void *mine[200];
    for (int i = 0; i < 200; i++) mine[i] = make((size_t)i * 97 + 1);
    for (int i = 0; i < 200; i += 2) free(mine[i]);
    for (int i = 1; i < 200; i += 2) drop(mine[i]);
    drop(strdup("made by libc, dropped by the plugin"));
    void *late = make(70000);
    dlclose(plugin);
    free(late);
    return 0;
}
static void *run(void *flags)
{
    long bad = 0;
    for (int i = 0; i < 50; i++) bad += use(*(int *)flags);
    return (void *)bad;
}
int main(int argc, char **argv)
{
    (void)argc;
    path = argv[1];
    int kinds[] = {RTLD_NOW, RTLD_LAZY | RTLD_GLOBAL, RTLD_NOW | RTLD_DEEPBIND};
    for (int kind = 0; kind < 3; kind++) {
        pthread_t threads[3];
        void *bad;
        if (run(&kinds[kind])) return 1;
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, run, &kinds[kind]);
        for (int i = 0; i < 3; i++) { pthread_join(threads[i], &bad); if (bad) return 1; }
    }
    puts("ok");
    return 0;
}
P
build "$work/plugin.c" "$work/plugin.so" -shared -fPIC
build "$work/host.c" "$work/host" -ldl -pthread
prove "$work/host" "$work/plugin.so"
same ok "$(preloaded "$work/host" "$work/plugin.so")" "plain, global and deep-bound plugins"

# A relative RUNPATH of the caller must still be found through an interposed dlopen.
mkdir "$work/beside"
cp "$work/plugin.so" "$work/beside/byname.so"
build "$work/host.c" "$work/host-runpath" -ldl -pthread -Wl,--enable-new-dtags "-Wl,-rpath,\$ORIGIN/beside"
same ok "$(preloaded "$work/host-runpath" byname.so)" "a plugin found by RUNPATH"

# The library itself opened and closed late, in a process that runs on libc's allocator.
cat >"$work/late.c" <<'P'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    (void)argc;
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
        void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(library, "ebb_malloc");
        void (*release)(void *) = (void (*)(void *))dlsym(library, "ebb_free");
        if (!allocate || !release) { fputs("no ebb_malloc\n", stderr); return 1; }
        void *block = allocate(1000);
        void *own = malloc(1000);
        release(block);
        free(own);
        dlclose(library);
    }
    puts("ok");
    return 0;
}
P
build "$work/late.c" "$work/late" -ldl
same ok "$(timeout -k 5 "$time_limit" "$work/late" "$library" 2>>"$work/stderr")" "dlopen of the library itself"

# A second one in a namespace of its own, used by threads that end: the keys of the two libcs are the same.
cat >"$work/namespace.c" <<'P'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *(*allocate)(size_t);
static void (*release)(void *);
static int first;
static void *run(void *unused)
{
    (void)unused;
    if (first) free(malloc(100));
    void *theirs = allocate(1000), *own = malloc(1000);
    release(theirs);
    free(own);
    return NULL;
}
int main(int argc, char **argv)
{
    (void)argc;
    void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    allocate = (void *(*)(size_t))dlsym(library, "ebb_malloc");
    release = (void (*)(void *))dlsym(library, "ebb_free");
    if (!allocate || !release) { fputs("no ebb_malloc\n", stderr); return 1; }
    for (int i = 0; i < 100; i++) {
        pthread_t threads[2];
        first = i % 2;
        for (int t = 0; t < 2; t++) if (pthread_create(&threads[t], NULL, run, NULL)) return 1;
        for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    }
    puts("ok");
    return 0;
}
P
build "$work/namespace.c" "$work/namespace" -ldl -pthread
same ok "$(preloaded "$work/namespace" "$library")" "another one in a namespace of the loader"
finish
