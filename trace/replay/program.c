// SPDX-License-Identifier: MIT OR Apache-2.0
// The program, held against its checks before it runs: what a damaged one would do is not known.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/format/format.h"
#include "trace/replay/replay.h"

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

static uint64_t open_file(const char *path)
{
    struct stat status;
    replay.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (replay.fd < 0 || fstat(replay.fd, &status) != 0) {
        fail("cannot open %s: %s", path, strerror(errno));
    }
    return S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
}

static void read_head(const char *path, uint64_t bytes)
{
    struct program_head *head = &replay.head;
    if (bytes < sizeof *head) {
        fail("%s is no compiled recording", path);
    }
    read_part(head, sizeof *head, 0);
    if (memcmp(head->magic, PROGRAM_MAGIC, sizeof head->magic) != 0 ||
        head->version != PROGRAM_VERSION) {
        fail("%s is no compiled recording of this version; make one by `ebb-trace compile`", path);
    }
    uint64_t chunks = (bytes - sizeof *head) / sizeof(struct program_chunk);
    if (head->chunks > chunks ||
        head->chunks_at != bytes - head->chunks * sizeof(struct program_chunk)) {
        fail("%s is cut off", path);
    }
}

static void check_table(const struct program_chunk *chunks)
{
    struct program_head head = replay.head;
    head.check = 0;
    if (replay.head.check != trace_check(&head, sizeof head) +
                                 trace_check(chunks, (uint32_t)(head.chunks * sizeof *chunks))) {
        fail("the program is damaged");
    }
}

static void check_words(const struct program_chunk *chunks)
{
    uint64_t *words = map_shared(CHUNK_WORDS * sizeof *words);
    for (uint64_t i = 0; i < replay.head.chunks; i++) {
        if (chunks[i].words > CHUNK_WORDS || chunks[i].thread >= replay.head.threads) {
            fail("the program is damaged");
        }
        uint32_t bytes = chunks[i].words * (uint32_t)sizeof *words;
        read_part(words, bytes, chunks[i].at);
        if (trace_check(words, bytes) != chunks[i].check) {
            fail("the program is damaged at byte %llu", (unsigned long long)chunks[i].at);
        }
    }
    (void)munmap(words, CHUNK_WORDS * sizeof *words);
}

// Where each thread's chunks begin, and where the last one's end; one too far to the right, as sort_chunks needs it.
static uint64_t *count_chunks(const struct program_chunk *chunks)
{
    uint64_t *first = map_shared((replay.head.threads + (uint64_t)2) * sizeof *first);
    for (uint64_t i = 0; i < replay.head.chunks; i++) {
        first[chunks[i].thread + (uint64_t)2]++;
    }
    for (uint64_t thread = 2; thread < replay.head.threads + (uint64_t)2; thread++) {
        first[thread] += first[thread - 1];
    }
    return first;
}

// By thread, in their order. Not by qsort, which would ask the allocator for memory.
static void sort_chunks(const struct program_chunk *chunks)
{
    struct program_chunk *sorted = map_shared(replay.head.chunks * sizeof *sorted);
    uint64_t *first = count_chunks(chunks);
    for (uint64_t i = 0; i < replay.head.chunks; i++) {
        sorted[first[chunks[i].thread + (uint64_t)1]++] = chunks[i];
    }
    replay.chunks = sorted;
    replay.first_chunk = first;
}

// Chunks stand in the file as they were filled.
void open_program(const char *path)
{
    read_head(path, open_file(path));
    uint64_t count = replay.head.chunks;
    struct program_chunk *chunks = map_shared(count * sizeof *chunks);
    read_part(chunks, count * sizeof *chunks, replay.head.chunks_at);
    check_table(chunks);
    check_words(chunks);
    sort_chunks(chunks);
    (void)munmap(chunks, count * sizeof *chunks + 1);
}
