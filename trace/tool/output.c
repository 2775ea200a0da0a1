// SPDX-License-Identifier: MIT OR Apache-2.0
// A file that is made: it has its name when it is whole. Until then it lies beside, as NAME.part, and what had the name
// before is untouched.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/tool/reader.h"

static char target[PATH_MAX], part[PATH_MAX + 8];
static bool is_open;

// Where a link leads, if there is one: a device or a folder is not replaced by a file.
static void find_target(const char *path)
{
    struct stat status;
    if (strlen(path) >= sizeof target) {
        fail("%s: the name is too long", path);
    }
    strcpy(target, path);
    if (stat(path, &status) != 0) {
        return;
    }
    if (!S_ISREG(status.st_mode)) {
        fail("%s is no file", path);
    }
    if (realpath(path, target) == NULL) {
        fail("cannot write %s: %s", path, strerror(errno));
    }
}

int output_open(const char *path)
{
    find_target(path);
    snprintf(part, sizeof part, "%s.part", target);
    (void)unlink(part); // of one that was killed
    int fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        fail("cannot write %s: %s", path, strerror(errno));
    }
    is_open = true;
    return fd;
}

void output_keep(void)
{
    is_open = false;
    if (rename(part, target) != 0) {
        int error = errno;
        (void)unlink(part);
        fail("cannot write %s: %s", target, strerror(error));
    }
}

void output_drop(void)
{
    if (is_open) {
        (void)unlink(part);
    }
}
