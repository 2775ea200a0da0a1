// SPDX-License-Identifier: MIT OR Apache-2.0
// What an attacker can foretell: which block malloc returns next, where blocks lie to one another,
// and the addresses of another run of the program or of a forked sibling.
#include "security.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

enum { TRIES = 32, ROW = 64 };

static byte *old[ROW], *fresh[ROW];

static void take(struct run *run, byte **blocks, int count)
{
    for (int i = 0; i < count; i++)
        blocks[i] = block_of(run->size);
}
static void give(byte **blocks, int count)
{
    for (int i = 0; i < count; i++)
        free(hide(blocks[i]));
}

// The attacker's guess comes true `hits` times of `tries`: half is enough for an attack.
static void judge(struct run *run, int hits, int tries)
{
    mark('A');
    run->prevented = hits * 2 < tries;
}

// Frees one block; is it among the next `window` results?
static void next_is_freed(struct run *run, int window)
{
    int hits = 0;
    take(run, old, TRIES);
    mark('F');
    for (int i = 0; i < TRIES; i++) {
        uintptr_t freed = address_of(old[i]);
        bool hit = false;
        free(old[i]);
        take(run, fresh, window);
        for (int k = 0; k < window; k++)
            hit = hit || address_of(fresh[k]) == freed;
        hits += hit;
        old[i] = fresh[0];
        for (int k = 1; k < window; k++)
            keep(run, fresh[k]);
    }
    judge(run, hits, TRIES);
    give(old, TRIES);
}
static void predict_next(struct run *run) { next_is_freed(run, 1); }
static void predict_within_8(struct run *run) { next_is_freed(run, 8); }
static void predict_within_64(struct run *run) { next_is_freed(run, ROW); }

// Frees a row; do the next blocks come back in the order of the frees, or in its reverse?
static void order_of_row(struct run *run, bool reverse)
{
    int hits = 0;
    take(run, old, 8);
    mark('F');
    give(old, 8);
    take(run, fresh, 8);
    for (int i = 0; i < 8; i++)
        hits += address_of(fresh[i]) == address_of(old[reverse ? 7 - i : i]);
    judge(run, hits, 8);
    give(fresh, 8);
}
static void predict_last_in(struct run *run) { order_of_row(run, true); }
static void predict_first_in(struct run *run) { order_of_row(run, false); }

static void *hand_over(void *p)
{
    free(hide(p));
    return NULL;
}
static void *ask(void *size) { return block_of((size_t)size); }
static void predict_across_threads(struct run *run)
{
    int hits = 0;
    mark('F');
    for (int i = 0; i < 8; i++) {
        byte *p = block_of(run->size);
        in_thread(hand_over, p);
        byte *q = block_of(run->size), *r = in_thread(ask, (void *)run->size);
        hits += hide(p) == q || hide(p) == r;
        keep(run, q);
        keep(run, r);
    }
    judge(run, hits, 8);
}

// Fresh blocks: does the most frequent step from one to the next make up most of them?
static void predict_sequence(struct run *run)
{
    int most = 0;
    for (int i = 0; i < 100; i++) // uses up what lies about
        keep(run, block_of(run->size));
    mark('F');
    take(run, fresh, ROW);
    for (int i = 1; i < ROW; i++) {
        int same = 0;
        for (int k = 1; k < ROW; k++)
            same += address_of(fresh[k]) - address_of(fresh[k - 1]) ==
                    address_of(fresh[i]) - address_of(fresh[i - 1]);
        most = same > most ? same : most;
    }
    judge(run, most, ROW - 1);
    give(fresh, ROW);
}

// Two blocks taken one after the other: is the second less than two sizes behind the first?
static void predict_neighbour(struct run *run)
{
    int hits = 0;
    for (int i = 0; i < 100; i++)
        keep(run, block_of(run->size));
    mark('F');
    take(run, fresh, ROW);
    for (int i = 1; i < ROW; i++)
        hits += address_of(fresh[i]) - address_of(fresh[i - 1]) < run->size * 2;
    judge(run, hits, ROW - 1);
    give(fresh, ROW);
}

// The attacker makes a hole between two blocks of his: does the next block fall into one?
static void predict_hole(struct run *run)
{
    int hits = 0;
    take(run, old, ROW);
    mark('F');
    for (int i = 8; i < ROW; i += 8)
        free(hide(old[i]));
    take(run, fresh, 7);
    for (int i = 0; i < 7; i++)
        for (int k = 8; k < ROW; k += 8)
            hits += address_of(fresh[i]) == address_of(old[k]);
    judge(run, hits, 7);
    give(fresh, 7);
    for (int i = 0; i < ROW; i++)
        if (i == 0 || i % 8 != 0)
            free(hide(old[i]));
}

// Forked siblings, as the workers of a server: is what one learns true of the other?
static void write_next(struct run *run, int file)
{
    uintptr_t address[8];
    take(run, fresh, 8);
    for (int i = 0; i < 8; i++)
        address[i] = address_of(fresh[i]);
    _exit(write(file, address, sizeof address) == sizeof address ? 0 : 1);
}
static void predict_sibling(struct run *run)
{
    uintptr_t seen[2][8] = {{0}};
    int hits = 0;
    mark('F');
    for (int i = 0; i < 2; i++) {
        int ends[2];
        if (pipe(ends) != 0)
            broken("no pipe");
        pid_t child = fork();
        if (child == 0)
            write_next(run, ends[1]);
        if (read(ends[0], seen[i], sizeof seen[i]) != sizeof seen[i])
            broken("nothing from the child");
        waitpid(child, NULL, 0);
        close(ends[0]);
        close(ends[1]);
    }
    for (int i = 0; i < 8; i++)
        hits += seen[0][i] == seen[1][i];
    judge(run, hits, 8);
}

// The program run again: what a fresh process says of its first blocks.
struct report {
    uintptr_t first, second, tenth, program, stack;
};
void print_address(size_t size)
{
    struct report report = {0};
    for (int i = 0; i < 10; i++)
        fresh[i] = block_of(size);
    report.first = address_of(fresh[0]);
    report.second = address_of(fresh[1]);
    report.tenth = address_of(fresh[9]);
    report.program = (uintptr_t)hide((void *)write);
    report.stack = address_of(&report);
    if (write(1, &report, sizeof report) != sizeof report)
        _exit(1);
}

static struct report run_again(size_t size)
{
    char text[32];
    struct report report;
    int ends[2];
    snprintf(text, sizeof text, "%zu", size);
    char *arguments[] = {"security", SELF_COMMAND, text, NULL};
    if (pipe(ends) != 0)
        broken("no pipe");
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    close(ends[1]);
    if (read(ends[0], &report, sizeof report) != sizeof report)
        broken("nothing from the program run again");
    close(ends[0]);
    waitpid(child, NULL, 0);
    return report;
}

typedef uintptr_t view_fn(const struct report *report);

// The attacker looks at one run and guesses the same of seven others.
static void again(struct run *run, view_fn *view)
{
    struct report first = run_again(run->size);
    int hits = 0, stacks = 0;
    mark('F');
    for (int i = 0; i < 7; i++) {
        struct report other = run_again(run->size);
        hits += view(&other) == view(&first);
        stacks += other.stack == first.stack;
    }
    judge(run, hits, 7);
    if (stacks == 7)
        skip_run(); // nothing is random here
}
static uintptr_t view_whole(const struct report *report) { return report->first; }
static uintptr_t view_low_12(const struct report *report) { return report->first % 4096; }
static uintptr_t view_low_20(const struct report *report) { return report->first % (1 << 20); }
static uintptr_t view_step(const struct report *report) { return report->second - report->first; }
static uintptr_t view_tenth(const struct report *report) { return report->tenth - report->first; }
static uintptr_t view_libc(const struct report *report) { return report->first - report->program; }
static void predict_address(struct run *run) { again(run, view_whole); }
static void predict_low_12(struct run *run) { again(run, view_low_12); }
static void predict_low_20(struct run *run) { again(run, view_low_20); }
static void predict_step(struct run *run) { again(run, view_step); }
static void predict_tenth(struct run *run) { again(run, view_tenth); }
static void predict_libc(struct run *run) { again(run, view_libc); }

#define PREDICT(name, text) CASE("predictability", name, text)
const struct test_case predict_cases[] = {
    PREDICT(predict_next, "the freed block is the very next"),
    PREDICT(predict_within_8, "the freed block is among the next 8"),
    PREDICT(predict_within_64, "the freed block is among the next 64"),
    PREDICT(predict_last_in, "8 freed blocks come back in reverse"),
    PREDICT(predict_first_in, "8 freed blocks come back in order"),
    PREDICT(predict_across_threads, "a thread's free is the next malloc"),
    PREDICT(predict_sequence, "fresh blocks come at one step"),
    PREDICT(predict_neighbour, "the next block lies right behind"),
    PREDICT(predict_hole, "the next blocks fill the attacker's holes"),
    PREDICT(predict_sibling, "forked siblings get the same blocks"),
    PREDICT(predict_address, "two runs: the same address"),
    PREDICT(predict_low_12, "two runs: the same place in its page"),
    PREDICT(predict_low_20, "two runs: the same place in its megabyte"),
    PREDICT(predict_step, "two runs: the same way from the first to the second block"),
    PREDICT(predict_tenth, "two runs: the same way from the first to the tenth block"),
    PREDICT(predict_libc, "two runs: the same way from libc to the heap"),
    CASES_END,
};
