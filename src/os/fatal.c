// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the one way out. One line, one write, no allocation, then abort.
// The thread may hold locks: ebbi_before_abort lets it allocate without them in a SIGABRT handler.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/probe.h"
#include "os/os.h"
#include "os/text.h"

void (*ebbi_before_abort)(void);

static char program[EBBI_NAME_ROOM]; // empty before start-up

// But for those that would end or garble a line.
static char as_it_is(char c)
{
    if ((unsigned char)c < ' ' || c == 0x7F) {
        return '?';
    }
    return c;
}

static size_t put_name(char *out, size_t room, const char *name)
{
    size_t length = 0;
    for (; name != NULL && name[length] != '\0' && length < room; length++) {
        out[length] = as_it_is(name[length]);
    }
    return length;
}

void ebbi_message_start(void)
{
    program[put_name(program, sizeof program - 1, program_invocation_short_name)] = '\0';
}

static size_t put_number(char *out, uint32_t number)
{
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    for (size_t i = 0; i < count; i++) {
        out[i] = digits[count - 1 - i];
    }
    return count;
}

void ebbi_message_name(char out[EBBI_NAME_ROOM])
{
    const char *name = program[0] != '\0' ? program : program_invocation_short_name;
    out[put_name(out, EBBI_NAME_ROOM - 1, name)] = '\0';
}

size_t ebbi_message_head(char out[EBBI_HEAD_ROOM])
{
    static const char prefix[] = "ebbtide: ";
    size_t length = sizeof prefix - 1;
    __builtin_memcpy(out, prefix, length);
    ebbi_message_name(out + length);
    length += strlen(out + length);
    out[length++] = '[';
    length += put_number(out + length, ebbi_os_process_number());
    __builtin_memcpy(out + length, "]: ", sizeof "]: ");
    return length + sizeof "]: " - 1;
}

// strerror is not for signal handlers.
static const char *reason(int error)
{
    static const struct {
        int error;
        const char *is;
    } reasons[] = {{ENOENT, "no such file or directory"},
                   {ENOTDIR, "not a directory"},
                   {EISDIR, "a directory"},
                   {EACCES, "permission denied"},
                   {EPERM, "not permitted"},
                   {EROFS, "read-only file system"},
                   {ENOSPC, "no space left"},
                   {EFBIG, "too large"},
                   {ENAMETOOLONG, "name too long"},
                   {EINVAL, "no regular file"},
                   {ENXIO, "nobody reads it"},
                   {EMFILE, "too many open files"},
                   {ENOMEM, "no memory"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].error == error) {
            return reasons[i].is;
        }
    }
    return "refused";
}

void ebbi_message_file(const char *what, int error, const char *file)
{
    char line[EBBI_HEAD_ROOM + 512];
    size_t head = ebbi_message_head(line);
    struct ebbi_text text = {line + head, line + sizeof line - 1};
    ebbi_text_put(&text, what);
    ebbi_text_put(&text, ": ");
    ebbi_text_put(&text, reason(-error));
    ebbi_text_put(&text, " (errno ");
    ebbi_text_number(&text, (uint64_t)-error, 10);
    ebbi_text_put(&text, "): ");
    ebbi_text_put(&text, file);
    for (char *at = line + head; at < text.at; at++) {
        *at = as_it_is(*at);
    }
    *text.at++ = '\n';
    ebbi_os_write(2, line, (size_t)(text.at - line));
}

static EBBI_PRINTF(1, 0) void write_line(const char *format, va_list args)
{
    char line[512];
    const size_t head = ebbi_message_head(line);
    int length = vsnprintf(line + head, sizeof line - head - 1, format, args);
    size_t end = head + ebbi_min(length > 0 ? (size_t)length : 0, sizeof line - head - 2);
    for (size_t i = head; i < end; i++) {
        line[i] = as_it_is(line[i]); // names of files are the user's
    }
    line[end] = '\n';
    ebbi_os_write(2, line, end + 1);
    EBBI_PROBE2(message, line, end + 1);
}

void ebbi_message(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}

void ebbi_end(void)
{
    if (ebbi_before_abort != NULL) {
        ebbi_before_abort();
    }
    abort();
}

void ebbi_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
    ebbi_end();
}
