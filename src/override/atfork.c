// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: where a program registers fork handlers. Ours have to be the first: then its handlers run
// outside our locks, whether they were registered before its first allocation or behind it. Only in the
// shared library, as threads.c.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "process/process.h"

typedef int register_atfork_function(void (*)(void), void (*)(void), void (*)(void), void *);
register_atfork_function
    __register_atfork; // what glibc's pthread_atfork calls; no header declares it

__attribute__((visibility("default"))) int __register_atfork(void (*before)(void),
                                                             void (*in_parent)(void),
                                                             void (*in_child)(void), void *owner)
{
    static register_atfork_function *found;
    if (ebbi_start() == 0) {
        ebbi_fork_watch();
    }
    register_atfork_function *real = ebbi_load_relaxed(&found); // relaxed: one possible value
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "__register_atfork");
        __builtin_memcpy(&real, &symbol, sizeof real);
        ebbi_store_relaxed(&found, real); // relaxed: as above
    }
    return real(before, in_parent, in_child, owner);
}
