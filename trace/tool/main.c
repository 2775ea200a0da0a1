// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb-trace: the verbs of tool.h.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/tool/tool.h"

enum { EXIT_USAGE = 2, COPIES_MAX = 1024 };

static _Noreturn void usage(void)
{
    fputs("usage: ebb-trace finish FILE...\n"
          "       ebb-trace info FILE\n"
          "       ebb-trace compile FILE PROGRAM\n"
          "       ebb-trace cut FILE NEW FIRST LAST\n"
          "       ebb-trace anonymise FILE NEW\n"
          "       ebb-trace scale FILE NEW COPIES\n",
          stderr);
    exit(EXIT_USAGE);
}

static uint64_t parse(const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value > most) {
        fprintf(stderr, "ebb-trace: %s is no number from 0 to %llu\n", text,
                (unsigned long long)most);
        exit(EXIT_USAGE);
    }
    return value;
}

static void finish_all(char **paths)
{
    for (; *paths != NULL; paths++) {
        finish_recording(*paths);
    }
}

int main(int argc, char **argv)
{
    const char *verb = argc > 2 ? argv[1] : "";
    if (strcmp(verb, "finish") == 0) {
        finish_all(argv + 2);
    } else if (strcmp(verb, "info") == 0 && argc == 3) {
        info(argv[2]);
    } else if (strcmp(verb, "compile") == 0 && argc == 4) {
        compile(argv[2], argv[3]);
    } else if (strcmp(verb, "cut") == 0 && argc == 6) {
        cut(argv[2], argv[3], parse(argv[4], UINT64_MAX), parse(argv[5], UINT64_MAX));
    } else if (strcmp(verb, "anonymise") == 0 && argc == 4) {
        anonymise(argv[2], argv[3]);
    } else if (strcmp(verb, "scale") == 0 && argc == 5) {
        scale(argv[2], argv[3], (uint32_t)parse(argv[4], COPIES_MAX));
    } else {
        usage();
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
