// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: where a program registers fork handlers. Ours have to be the first: then its handlers run
// outside our locks, whether they were registered before its first allocation or behind it. Only in the
// shared library, as threads.c.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "process/process.h"

// libc's function, its parameters, and how those are passed on.
#ifdef __GLIBC__ // what its pthread_atfork, which is a part of each program, calls; no header declares it
#define REGISTER __register_atfork
#define PARAMETERS                                                                                 \
    void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *owner
#define ARGUMENTS before, in_parent, in_child, owner
int __register_atfork(PARAMETERS);
#else
#define REGISTER pthread_atfork
#define PARAMETERS void (*before)(void), void (*in_parent)(void), void (*in_child)(void)
#define ARGUMENTS before, in_parent, in_child
#endif
#define TEXT_OF(name) #name
#define NAME_OF(macro) TEXT_OF(macro)

typedef int register_function(PARAMETERS);

__attribute__((visibility("default"))) int REGISTER(PARAMETERS)
{
    static register_function *found;
    if (ebbi_start() == 0) {
        ebbi_fork_watch();
    }
    register_function *real = ebbi_load_relaxed(&found); // relaxed: one possible value
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, NAME_OF(REGISTER));
        __builtin_memcpy(&real, &symbol, sizeof real);
        ebbi_store_relaxed(&found, real); // relaxed: as above
    }
    return real(ARGUMENTS);
}
