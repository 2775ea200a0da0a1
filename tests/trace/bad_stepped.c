// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs a recorded program up to its third write of the recording, the second block, then instruction by instruction, and
// copies the recording and its spool after each: what a kill would leave there. bad_stepped STEPS BASE PROGRAM...
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITES = 3 };

static void check(int is_right)
{
    if (!is_right) {
        perror("bad_stepped");
        exit(2);
    }
}

static pid_t start(char **program)
{
    pid_t child = fork();
    if (child == 0) {
        check(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        execv(program[0], program);
        _exit(127);
    }
    check(waitpid(child, NULL, 0) == child);
    check(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD) == 0);
    return child;
}

static void go_on(pid_t child, enum __ptrace_request how)
{
    int status;
    check(ptrace(how, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child);
    check(WIFSTOPPED(status));
}

static int has_entered(pid_t child, long call)
{
    struct __ptrace_syscall_info info;
    check(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0);
    return info.op == PTRACE_SYSCALL_INFO_ENTRY && (long)info.entry.nr == call;
}

static void copy(const char *from, const char *to)
{
    struct stat status;
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    check(in >= 0 && out >= 0 && fstat(in, &status) == 0);
    check(sendfile(out, in, NULL, (size_t)status.st_size) == status.st_size);
    close(in);
    close(out);
}

static void copy_recording(const char *base, pid_t child, int step)
{
    char from[512], to[512];
    snprintf(from, sizeof from, "%s.%d.0", base, (int)child);
    snprintf(to, sizeof to, "%s.step.%d", base, step);
    copy(from, to);
    snprintf(from, sizeof from, "%s.%d.0.spool", base, (int)child);
    snprintf(to, sizeof to, "%s.step.%d.spool", base, step);
    copy(from, to);
}

int main(int argc, char **argv)
{
    check(argc > 3);
    pid_t child = start(argv + 3);
    for (int writes = 0; writes < WRITES;) {
        go_on(child, PTRACE_SYSCALL);
        writes += has_entered(child, SYS_pwritev);
    }
    go_on(child, PTRACE_SYSCALL);
    for (int step = 0; step < atoi(argv[1]); step++) {
        copy_recording(argv[2], child, step);
        go_on(child, PTRACE_SINGLESTEP);
    }
    return 0;
}
