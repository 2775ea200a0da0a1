// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: dlopen without RTLD_DEEPBIND. A library opened with it binds free to libc's and
// would hand libc blocks of ours. The real dlopen is tail-called: it looks up DT_RUNPATH by its
// caller's return address, which must stay the program's. musl has no such flag, and so keeps its dlopen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "ebbtide/detail/atomic.h"
#include "os/options.h"
#include "override/threads.h"
#include "unwind/unwind.h"

#ifdef RTLD_DEEPBIND
typedef void *(*dlopen_function)(const char *file, int mode);

static dlopen_function real_dlopen;
static int cleared_flags = RTLD_DEEPBIND;

static dlopen_function find_real(void)
{
    dlopen_function found;
    if (ebbi_threads_prepare != NULL) {
        ebbi_threads_prepare(); // in the shared library; while nobody holds the loader's lock
    }
    void *symbol = dlsym(RTLD_NEXT, "dlopen");
    __builtin_memcpy(&found, &symbol, sizeof found);
    if (ebbi_option(EBBI_OPTION_DEEPBIND) != 0) {
        ebbi_store_relaxed(&cleared_flags, 0); // relaxed: every writer stores the same value
    }
    ebbi_store_relaxed(&real_dlopen, found); // relaxed: as above
    return found;
}

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode)
{
    dlopen_function real = ebbi_load_relaxed(&real_dlopen); // relaxed: one possible value
    if (EBBI_UNLIKELY(real == NULL)) {
        real = find_real();
    }
    ebbi_unwind_forget();
    return real(file, mode & ~ebbi_load_relaxed(&cleared_flags)); // relaxed: as above
}
#endif
