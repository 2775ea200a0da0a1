// SPDX-License-Identifier: MIT OR Apache-2.0
#include "trace/record/text.h"

#include <fcntl.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COMMAND_MAX = 4096 };

// The arguments of the process, each ended by a zero; how many bytes.
static size_t read_command(char *command, size_t room)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t bytes = read(fd, command, room - 1);
    (void)close(fd);
    bytes = bytes < 0 ? 0 : bytes;
    command[bytes] = '\0';
    return (size_t)bytes;
}

// One line: what would end it, or an argument, is a blank.
static void flatten(char *command, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (command[i] == '\0' || command[i] == '\n') {
            command[i] = ' ';
        }
    }
}

static void read_program(char *path, size_t room)
{
    ssize_t bytes = readlink("/proc/self/exe", path, room - 1);
    path[bytes < 0 ? 0 : bytes] = '\0';
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool is_program(const char *name)
{
    char path[PATH_MAX], command[COMMAND_MAX];
    read_program(path, sizeof path);
    (void)read_command(command, sizeof command);
    return strcmp(base_name(path), name) == 0 || strcmp(base_name(command), name) == 0;
}

uint32_t describe_process(char *text, size_t room)
{
    char path[PATH_MAX], command[COMMAND_MAX];
    read_program(path, sizeof path);
    flatten(command, read_command(command, sizeof command));
    int length = snprintf(text, room,
                          "program=%s\ncommand=%s\npid=%d\nparent=%d\nfirst_thread=%u\npage_bytes=%"
                          "ld\nlibc=glibc %s\n",
                          path, command, (int)getpid(), (int)getppid(), first_thread(),
                          sysconf(_SC_PAGESIZE), gnu_get_libc_version());
    return (size_t)length < room ? (uint32_t)length : (uint32_t)room - 1;
}
