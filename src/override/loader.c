// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: what the shared library asks of the dynamic loader when it is loaded, as nobody holds a lock then. A
// profile's first stack may be taken in a malloc that the loader itself has called.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "os/os.h"

__attribute__((constructor)) static void see_loader(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "_dl_find_object");
    if (symbol == NULL) {
        (void)dlerror(); // musl keeps it, through calls that succeed, for the program's own
    }
    ebbi_os_unwind_by(symbol);
}
