// SPDX-License-Identifier: MIT OR Apache-2.0
#include "trace/replay/replay.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

struct replay replay = {.has_samples = true};

void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("ebb-replay: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    _exit(EXIT_USAGE);
}

void *map_shared(size_t bytes)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE;
    void *p = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) {
        fail("cannot map %zu bytes: %s", bytes, strerror(errno));
    }
    return p;
}

static bool parse_flag(const char *text)
{
    struct {
        const char *name;
        bool *value;
        bool set_to;
    } flags[] = {{"--serial", &replay.is_serial, true},
                 {"--paced", &replay.is_paced, true},
                 {"--floor", &replay.is_floor, true},
                 {"--no-samples", &replay.has_samples, false}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(text, flags[i].name) == 0) {
            *flags[i].value = flags[i].set_to;
            return true;
        }
    }
    return false;
}

static _Noreturn void usage(void)
{
    fail("usage: ebb-replay [--serial] [--paced] [--floor] [--no-samples] [--settle MILLISECONDS] "
         "PROGRAM");
}

static uint64_t parse_number(const char *text)
{
    char *end;
    unsigned long long value = text != NULL ? strtoull(text, &end, 10) : 0;
    if (text == NULL || *text < '0' || *text > '9' || *end != '\0') {
        usage();
    }
    return value;
}

static const char *parse(char **argv)
{
    for (argv++; *argv != NULL; argv++) {
        if (strcmp(*argv, "--settle") == 0) {
            replay.settle_ms = parse_number(*++argv);
        } else if (!parse_flag(*argv)) {
            break;
        }
    }
    if (*argv == NULL || argv[1] != NULL) {
        usage();
    }
    return *argv;
}

int main(int argc, char **argv)
{
    (void)argc;
    open_program(parse(argv));
    replay.slots = map_shared(replay.head.slots * sizeof *replay.slots);
    replay.head.samples++; // the end
    replay.samples = map_shared(replay.head.samples * sizeof *replay.samples);
    memory_open();
    order_open();
    struct spent spent;
    spent_start(&spent);
    replay.start_us = now_us();
    run_first_thread();
    await_threads();
    spent_stop(&spent);
    take_sample(replay.head.events, replay.head.end_bytes);
    uint64_t end_bytes = anonymous_bytes();
    (void)usleep((useconds_t)(replay.settle_ms * 1000));
    return report(&spent, end_bytes, anonymous_bytes());
}
