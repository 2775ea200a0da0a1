// SPDX-License-Identifier: MIT OR Apache-2.0
// A misuse in a child: it ends by a line of the library, or nobody ever gets memory that is another's.
#ifndef HOSTILE_MISUSE_H
#define HOSTILE_MISUSE_H

#include "hostile.h"

enum { KEPT = 256, LATER = 1000, ROUNDS = 3 };

// Shared with the parent, which judges also when the child has been ended.
struct record {
    int misused;    // the misuse has returned
    int impossible; // with this size
    int rounds;     // complete ones
    size_t count;   // blocks handed out in this round
    char *kept[KEPT], *later[LATER];
    size_t kept_count;
};
static struct record *record;

struct misuse {
    const char *name;
    void (*run)(size_t size, long number);
};

// A block that stays with the program for the rest of the child's life.
static char *keep(size_t size)
{
    char *p = malloc(size);
    MUST(p != NULL && record->kept_count < KEPT, "no memory");
    memset(p, 0x3c, size);
    record->kept[record->kept_count++] = p;
    return p;
}

static int by_address(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return x < y ? -1 : x > y;
}

// Whether two blocks of those that were handed out and of those that were kept share a byte; how.
static const char *shared_bytes(size_t size)
{
    static char *all[KEPT + LATER];
    static char text[200];
    size_t count = 0;
    for (size_t i = 0; i < record->kept_count; i++)
        all[count++] = record->kept[i];
    for (size_t i = 0; i < record->count; i++)
        all[count++] = record->later[i];
    qsort(all, count, sizeof *all, by_address);
    for (size_t i = 1; i < count; i++) {
        if ((size_t)(all[i] - all[i - 1]) >= size)
            continue;
        snprintf(text, sizeof text, "%zu bytes at %p and at %p have two owners (round %d)", size,
                 (void *)all[i - 1], (void *)all[i], record->rounds);
        return text;
    }
    return NULL;
}

struct task {
    const struct misuse *misuse;
    size_t size;
    long number;
};

static void commit(void *argument)
{
    const struct task *task = argument;
    task->misuse->run(task->size, task->number);
    record->misused = 1;
    if (record->impossible)
        return;
    for (record->rounds = 0; record->rounds < ROUNDS; record->rounds++) {
        record->count = 0;
        for (int i = 0; i < LATER && (size_t)i * task->size < 300u << 20; i++) {
            char *p = malloc(task->size);
            MUST(p != NULL, "no memory");
            record->later[record->count++] = p;
        }
        for (size_t i = 0; i < record->kept_count; i++)
            for (size_t k = 0; k < task->size; k += 8)
                MUST(record->kept[i][k] == 0x3c, "a live block was written");
        if (shared_bytes(task->size) != NULL)
            _exit(0); // the parent will see it
        for (size_t i = 0; i < record->count; i++)
            free(record->later[i]);
    }
    record->count = 0;
}

// Tries it in children, three for each size: the places are random. `at_once`: the library must end it before it goes on.
static void try_misuse(const struct misuse *misuse, const size_t *sizes, long number, int at_once)
{
    record = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(record != MAP_FAILED, "mmap: %s", strerror(errno));
    for (int attempt = 0; *sizes != 0; sizes += ++attempt % 3 == 0) {
        memset(record, 0, sizeof *record);
        struct task task = {misuse, *sizes, number};
        char err[4096];
        int status = run_child(commit, &task, 20, err, sizeof err);
        const char *shared = shared_bytes(*sizes);
        MUST(shared == NULL, "%s: %s", misuse->name, shared);
        if (record->impossible)
            continue;
        if (status != HUNG && WIFEXITED(status) && WEXITSTATUS(status) == 1)
            _exit(1);
        int ended = ended_by_the_library(status, err);
        MUST(ended || status == 0, "%s of %zu: %s, stderr: %s", misuse->name, *sizes,
             status_text(status), err);
        MUST(!at_once || (ended && !record->misused), "%s of %zu: not found (%s)", misuse->name,
             *sizes, ended ? "but later" : "never");
    }
}

static const struct misuse *find_misuse(const struct misuse *list, const char *name)
{
    for (; list->name != NULL; list++)
        if (strcmp(list->name, name) == 0)
            return list;
    fail("no such case");
}

#endif
