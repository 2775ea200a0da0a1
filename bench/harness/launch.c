// SPDX-License-Identifier: MIT OR Apache-2.0
// launch: starts a program N times, one after the other, and prints for each run
// the time from start to exit, its CPU time and its peak resident memory, as one
// JSON object. Needed because a child's peak, as wait4 reports it, is at least
// that of the process that forked it: a Python parent would hide small programs.
//
//   launch [--count N] [--report FILE] [--set NAME=VALUE]... -- PROGRAM [ARGUMENT]...
//
// The report goes to standard output unless --report names a file. --set reaches the program only,
// so this process itself is never preloaded.
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define USAGE "use launch [--count N] [--report FILE] [--set NAME=VALUE]... -- PROGRAM"

enum { SETTINGS_MAX = 32, COUNT_MAX = 1000000, EXIT_USAGE = 2, EXIT_NOT_STARTED = 127 };

struct job {
    long count;
    FILE *report;
    char *settings[SETTINGS_MAX];
    size_t setting_count;
    char **command;
};

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "launch: %s\n", what);
    exit(EXIT_USAGE);
}

static long parse_count(const char *text)
{
    char *end = NULL;
    long count = strtol(text, &end, 10);
    if (*end != '\0' || count < 1 || count > COUNT_MAX)
        fail("--count wants a whole number from 1 to 1000000");
    return count;
}

static void add_setting(struct job *job, char *setting)
{
    if (strchr(setting, '=') == NULL)
        fail("--set wants NAME=VALUE");
    if (job->setting_count == SETTINGS_MAX)
        fail("too many --set");
    job->settings[job->setting_count++] = setting;
}

static FILE *open_report(const char *path)
{
    FILE *report = fopen(path, "we");
    if (report == NULL)
        fail("cannot write the file that --report names");
    return report;
}

static struct job parse(char **argv)
{
    struct job job = {.count = 1, .report = stdout};
    for (argv++; *argv != NULL && strcmp(*argv, "--") != 0; argv += 2) {
        if (argv[1] == NULL)
            fail("an option wants a value");
        if (strcmp(*argv, "--count") == 0)
            job.count = parse_count(argv[1]);
        else if (strcmp(*argv, "--report") == 0)
            job.report = open_report(argv[1]);
        else if (strcmp(*argv, "--set") == 0)
            add_setting(&job, argv[1]);
        else
            fail("unknown option; " USAGE);
    }
    if (*argv == NULL || argv[1] == NULL)
        fail("no program; " USAGE);
    job.command = argv + 1;
    return job;
}

static _Noreturn void become(const struct job *job)
{
    (void)signal(SIGTERM, SIG_DFL);
    for (size_t i = 0; i < job->setting_count; i++)
        putenv(job->settings[i]);
    execvp(job->command[0], job->command);
    fprintf(stderr, "launch: cannot start %s: %s\n", job->command[0], strerror(errno));
    _exit(EXIT_NOT_STARTED);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static pid_t wait_for(pid_t child, int *status, struct rusage *usage)
{
    for (;;) {
        pid_t done = wait4(child, status, 0, usage);
        if (done >= 0 || errno != EINTR)
            return done;
    }
}

static int run_once(const struct job *job, const char *separator)
{
    struct rusage usage;
    int status = 0;
    double start_s = now_s();
    pid_t child = fork();
    if (child < 0)
        fail("cannot fork");
    if (child == 0)
        become(job);
    (void)signal(SIGTERM,
                 SIG_IGN); // it is meant for the program; the report is written all the same
    if (wait_for(child, &status, &usage) < 0)
        fail("cannot wait for the program");
    double wall_s = now_s() - start_s;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    fprintf(job->report,
            "%s{\"wall_s\": %.9f, \"user_s\": %.6f, \"system_s\": %.6f, \"peak_rss_kb\": %ld, "
            "\"minor_faults\": %ld, \"major_faults\": %ld, \"exit_code\": %d}",
            separator, wall_s, seconds(usage.ru_utime), seconds(usage.ru_stime), usage.ru_maxrss,
            usage.ru_minflt, usage.ru_majflt, code);
    fflush(job->report);
    return code;
}

int main(int argc, char **argv)
{
    (void)argc;
    struct job job = parse(argv);
    int worst = 0;
    fprintf(job.report, "{\"schema\": 1, \"runs\": [");
    fflush(job.report);
    for (long i = 0; i < job.count; i++) {
        int code = run_once(&job, i == 0 ? "" : ", ");
        worst = code > worst ? code : worst;
    }
    fprintf(job.report, "]}\n");
    if (fclose(job.report) != 0)
        fail("cannot write the report");
    return worst;
}
