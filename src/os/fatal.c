// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the one way out. One line, one write, no allocation, then abort.
// The thread may hold locks: ebbi_before_abort lets it allocate without them in a SIGABRT handler.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/os.h"

void (*ebbi_before_abort)(void);

void ebbi_fatal(const char *format, ...)
{
    char line[512] = "ebbtide: ";
    const size_t prefix = sizeof "ebbtide: " - 1;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line + prefix, sizeof line - prefix - 1, format, args);
    va_end(args);
    size_t end = prefix + ebbi_min(length > 0 ? (size_t)length : 0, sizeof line - prefix - 2);
    line[end] = '\n';
    ebbi_os_write(2, line, end + 1);
    if (ebbi_before_abort != NULL) {
        ebbi_before_abort();
    }
    abort();
}
