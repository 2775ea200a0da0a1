// SPDX-License-Identifier: MIT OR Apache-2.0
#include "trace/replay/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

static void read_part(void *to, uint64_t bytes, uint64_t at)
{
    char *p = to;
    while (bytes > 0) {
        ssize_t got = pread(replay.fd, p, bytes, (off_t)at);
        if (got <= 0) {
            fail("the program is cut off");
        }
        p += got;
        at += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
}

static void open_program(const char *path)
{
    replay.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (replay.fd < 0) {
        fail("cannot open %s: %s", path, strerror(errno));
    }
    read_part(&replay.head, sizeof replay.head, 0);
    if (memcmp(replay.head.magic, PROGRAM_MAGIC, sizeof replay.head.magic) != 0 ||
        replay.head.version != PROGRAM_VERSION) {
        fail("%s is no compiled recording of this version; make one by `ebb-trace compile`", path);
    }
}

static int by_thread(const void *left, const void *right)
{
    const struct program_chunk *a = left, *b = right;
    if (a->thread != b->thread) {
        return a->thread < b->thread ? -1 : 1;
    }
    return a->at < b->at ? -1 : a->at > b->at;
}

// Chunks stand in the file as they were filled; sorted they are each thread's, in its order.
static void open_chunks(void)
{
    uint64_t count = replay.head.chunks, thread = 0;
    struct program_chunk *chunks = map_shared(count * sizeof *chunks);
    uint64_t *first = map_shared((replay.head.threads + (uint64_t)2) * sizeof *first);
    read_part(chunks, count * sizeof *chunks, replay.head.chunks_at);
    qsort(chunks, count, sizeof *chunks, by_thread);
    for (uint64_t i = 0; i < count; i++) {
        if (chunks[i].thread >= replay.head.threads) {
            fail("the program has a chunk of no thread");
        }
        while (thread <= chunks[i].thread) {
            first[thread++] = i;
        }
    }
    while (thread <= replay.head.threads) {
        first[thread++] = count;
    }
    replay.chunks = chunks;
    replay.first_chunk = first;
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
    open_chunks();
    replay.slots = map_shared(replay.head.slots * sizeof *replay.slots);
    replay.samples = map_shared(replay.head.samples * sizeof *replay.samples);
    memory_open();
    order_open();
    struct spent spent;
    spent_start(&spent);
    replay.start_us = now_us();
    run_first_thread();
    await_threads();
    spent_stop(&spent);
    uint64_t end_bytes = anonymous_bytes();
    (void)usleep((useconds_t)(replay.settle_ms * 1000));
    return report(&spent, end_bytes, anonymous_bytes());
}
