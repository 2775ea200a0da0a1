// SPDX-License-Identifier: MIT OR Apache-2.0
// System call filters, in raw BPF.
#ifndef HOSTILE_SECCOMP_H
#define HOSTILE_SECCOMP_H

#include "hostile.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define HOSTILE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HOSTILE_ARCH AUDIT_ARCH_AARCH64
#else
#error "an architecture without filters"
#endif

enum { FILTER_CALLS = 64 };

// For the calls in the list `inside` happens, for all others `outside`; in all threads. By raw system calls:
// the library, which stands before prctl, is not to know.
MAYBE_UNUSED void install_filter(const int *calls, size_t count, unsigned inside, unsigned outside)
{
    struct sock_filter program[FILTER_CALLS + 8];
    unsigned short length = 0;
    MUST(count <= FILTER_CALLS, "too many calls for a filter");
#define ADD(...) program[length++] = (struct sock_filter)__VA_ARGS__
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, HOSTILE_ARCH, 1, 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (size_t i = 0; i < count; i++)
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], (unsigned char)(count - i), 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, outside));
    ADD(BPF_STMT(BPF_RET | BPF_K, inside));
#undef ADD
    struct sock_fprog whole = {length, program};
    if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        skip("no_new_privs: %s", strerror(errno));
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &whole) != 0)
        skip("seccomp: %s", strerror(errno));
}

#endif
