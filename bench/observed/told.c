// SPDX-License-Identifier: MIT OR Apache-2.0
// See told.h. By descriptors alone: stdio has buffers of malloc's.
#include "told.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

bool told_next(char *line, size_t size, int wait_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    size_t length = 0;
    line[0] = 0;
    if (poll(&input, 1, wait_ms) == 0)
        return true;
    while (length + 1 < size) {
        if (read(STDIN_FILENO, line + length, 1) != 1)
            return false;
        if (line[length] == '\n')
            break;
        length++;
    }
    line[length] = 0;
    return true;
}

void told_answer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool is_told = vdprintf(STDOUT_FILENO, format, arguments) >= 0;
    va_end(arguments);
    if (!is_told || write(STDOUT_FILENO, "\n", 1) != 1)
        bench_fail("nobody reads the answers");
}
