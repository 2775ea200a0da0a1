// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: what the kernel and the machine know of stacks.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/os.h"

// The kernel reads the set before it looks at what is to be done with it, which is nothing that there is: EFAULT or
// EINVAL. (As Abseil's AddressIsReadable does.)
static bool can_be_read(uintptr_t address)
{
    bool refused = syscall(SYS_rt_sigprocmask, ~0, address, NULL, (size_t)8) != 0;
    return refused && errno != EFAULT;
}

// By a call that malloc makes anyhow. Older kernels than 5.14 do not know it.
static bool can_be_populated(uintptr_t address)
{
    size_t page = ebbi_os_page_size();
    return madvise((void *)ebbi_align_down(address, page), page, EBBI_OS_POPULATE_READ) == 0;
}

bool ebbi_os_is_readable(uintptr_t address)
{
    int saved = errno;
    bool readable;
    if (ebbi_os_call_begins()) {
        readable = can_be_read(address);
        ebbi_os_call_ends();
    } else {
        readable = can_be_populated(address);
    }
    errno = saved;
    return readable;
}

#if defined(__x86_64__)
void ebbi_os_signal_places(uintptr_t sp, struct ebbi_signal_places *places)
{
    uintptr_t registers = sp + offsetof(ucontext_t, uc_mcontext.gregs);
    *places = (struct ebbi_signal_places){.pc = registers + REG_RIP * sizeof(greg_t),
                                          .sp = registers + REG_RSP * sizeof(greg_t),
                                          .fp = registers + REG_RBP * sizeof(greg_t)};
}

uintptr_t ebbi_os_peek(uintptr_t address)
{
    uintptr_t word;
    __asm__ volatile("mov (%1), %0" : "=r"(word) : "r"(address) : "memory");
    return word;
}

uintptr_t ebbi_os_code_address(uintptr_t return_to) { return return_to; }
#elif defined(__aarch64__)
void ebbi_os_signal_places(uintptr_t sp, struct ebbi_signal_places *places)
{
    uintptr_t context = sp + sizeof(siginfo_t);
    *places = (struct ebbi_signal_places){
        .pc = context + offsetof(ucontext_t, uc_mcontext.pc),
        .sp = context + offsetof(ucontext_t, uc_mcontext.sp),
        .fp = context + offsetof(ucontext_t, uc_mcontext.regs) + 29 * sizeof(uint64_t),
        .lr = context + offsetof(ucontext_t, uc_mcontext.regs) + 30 * sizeof(uint64_t)};
}

uintptr_t ebbi_os_peek(uintptr_t address)
{
    uintptr_t word;
    __asm__ volatile("ldr %0, [%1]" : "=r"(word) : "r"(address) : "memory");
    return word;
}

uintptr_t ebbi_os_code_address(uintptr_t return_to)
{
    register uintptr_t x30 __asm__("x30") = return_to;
    __asm__("hint 7" : "+r"(x30)); // xpaclri
    return x30;
}
#endif
