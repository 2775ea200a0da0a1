// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: what the debug mode of regions asks of Linux: refused accesses, stacks, whose code it is;
// and the signal that asks for statistics.
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#if defined(__has_include)
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define HAVE_BACKTRACE 1
#endif
#endif

#include "os/os.h"

static bool has_handler(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
           action.sa_handler != SIG_IGN;
}

bool ebbi_os_may_handle_signal(void)
{
    sigset_t blocked;
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0) {
        return true;
    }
    if (sigisemptyset(&blocked)) {
        return false;
    }
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (sigismember(&blocked, number) == 1 && has_handler(number)) {
            return true;
        }
    }
    return false;
}

// ---- faults --------------------------------------------------------------------------------------

static void (*fault_look)(uintptr_t address);
static struct sigaction before_fault[2]; // of SIGSEGV, SIGBUS

// The default and, for what the kernel itself sends, "ignore" too: the process ends, by this signal,
// where it was raised.
static void end_by_default(int number, bool again)
{
    struct sigaction plain = {0};
    plain.sa_handler = SIG_DFL;
    (void)sigaction(number, &plain, NULL);
    if (!again) {
        (void)raise(number); // when this handler returns
    }
}

static void pass_fault_on(int number, siginfo_t *info, void *context)
{
    EBBI_ASSERT(number == SIGSEGV || number == SIGBUS);
    struct sigaction *kept = &before_fault[number == SIGBUS];
    struct sigaction before = *kept;
    bool by_kernel = info->si_code > 0; // so it comes again when this handler returns
    bool takes_info = (before.sa_flags & SA_SIGINFO) != 0;
    if (!takes_info && before.sa_handler == SIG_IGN && !by_kernel) {
        return;
    }
    if (!takes_info && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
        end_by_default(number, by_kernel);
        return;
    }
    if ((before.sa_flags & (int)SA_RESETHAND) != 0) {
        kept->sa_handler = SIG_DFL;
        kept->sa_flags = 0;
    }
    if ((before.sa_flags & SA_NODEFER) != 0) {
        sigset_t own;
        (void)sigemptyset(&own);
        (void)sigaddset(&own, number);
        (void)pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    }
    if (takes_info) {
        before.sa_sigaction(number, info, context);
    } else {
        before.sa_handler(number);
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    EBBI_ASSERT(fault_look != NULL);
    if (info->si_code > 0) {
        fault_look((uintptr_t)info->si_addr);
    }
    errno = saved;
    pass_fault_on(number, info, context);
}

void ebbi_os_watch_faults(void (*look)(uintptr_t address))
{
    EBBI_ASSERT(look != NULL && (fault_look == NULL || fault_look == look));
    static const int signals[] = {SIGSEGV, SIGBUS};
    int saved = errno;
    fault_look = look;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction ours = {0};
        struct sigaction before;
        (void)sigaction(signals[i], NULL, &before);
        if (before.sa_sigaction == on_fault) {
            continue; // by a thread that a fork has left behind
        }
        before_fault[i] = before;
        ours.sa_sigaction = on_fault;
        ours.sa_mask = before_fault[i].sa_mask;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (before_fault[i].sa_flags & SA_RESTART);
        (void)sigaction(signals[i], &ours, NULL);
    }
    errno = saved;
}

// ---- signals that ask -----------------------------------------------------------------------------

static void (*signal_look)(void);

static void on_signal(int number)
{
    int saved = errno;
    (void)number;
    EBBI_ASSERT(signal_look != NULL);
    signal_look();
    errno = saved;
}

// Sent by the kernel for what an instruction did, which a handler that returns would repeat.
static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
}

bool ebbi_os_watch_signal(int number, void (*look)(void))
{
    EBBI_ASSERT(look != NULL && number > 0);
    int saved = errno;
    struct sigaction ours = {0};
    struct sigaction before;
    bool watched = !is_fault(number) && sigaction(number, NULL, &before) == 0 &&
                   (before.sa_flags & SA_SIGINFO) == 0 &&
                   (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
    if (watched) {
        signal_look = look;
        ours.sa_handler = on_signal;
        ours.sa_flags = SA_RESTART | SA_ONSTACK;
        watched = sigaction(number, &ours, NULL) == 0;
    }
    errno = saved;
    return watched;
}

// ---- stacks --------------------------------------------------------------------------------------

#ifdef HAVE_BACKTRACE
bool ebbi_os_stack_prepare(void)
{
    uintptr_t call;
    return ebbi_os_stack(&call, 1) == 1; // the first time it loads the unwinder
}

EBBI_NOINLINE size_t ebbi_os_stack(uintptr_t *calls, size_t room)
{
    int saved = errno;
    int depth = backtrace((void **)calls, (int)room);
    EBBI_ASSERT(depth <= (int)room);
    for (int i = 0; i < depth; i++) {
        calls[i]--; // into the call before the place where it returns to
    }
    errno = saved;
    return depth > 0 ? (size_t)depth : 0;
}
#else
bool ebbi_os_stack_prepare(void) { return false; }

EBBI_NOINLINE size_t ebbi_os_stack(uintptr_t *calls, size_t room)
{
    (void)calls;
    (void)room;
    return 0;
}
#endif

struct module_search {
    uintptr_t address;
    struct ebbi_os_module *module;
};

// The end of the path, where it does not fit. An empty one is the program's.
static void name_module(char *out, size_t room, const char *path)
{
    char program[512];
    size_t length = strlen(path);
    if (length == 0) {
        ssize_t got = readlink("/proc/self/exe", program, sizeof program);
        length = got > 0 ? (size_t)got : 0;
        path = program;
    }
    size_t kept = ebbi_min(length, room - 1);
    memcpy(out, path + length - kept, kept);
    out[kept] = '\0';
}

static int match_module(struct dl_phdr_info *info, size_t size, void *context)
{
    const struct module_search *search = context;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD &&
            search->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            search->module->base = info->dlpi_addr;
            name_module(search->module->name, sizeof search->module->name, info->dlpi_name);
            return 1;
        }
    }
    return 0;
}

bool ebbi_os_module_find(uintptr_t address, struct ebbi_os_module *module)
{
    int saved = errno;
    struct module_search search = {address, module};
    bool found = dl_iterate_phdr(match_module, &search) != 0;
    errno = saved;
    return found;
}

// ---- what is mapped to be executed ---------------------------------------------------------------------

struct mapping_list {
    struct ebbi_os_mapping *out;
    size_t room, count;
};

// The GNU build id among the notes of one part: each is three words (lengths of name and content, type),
// then both, padded to words.
static void find_id(struct ebbi_os_mapping *mapping, const char *notes, size_t bytes)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)notes;
        const char *name = notes + sizeof *note;
        size_t whole = sizeof *note + ebbi_align_up(note->n_namesz, 4);
        const char *content = notes + whole;
        whole += ebbi_align_up(note->n_descsz, 4);
        if (whole > bytes) {
            return;
        }
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            mapping->id_bytes = ebbi_min(note->n_descsz, sizeof mapping->id);
            memcpy(mapping->id, content, mapping->id_bytes);
        }
        notes += whole;
        bytes -= whole;
    }
}

static void list_part(struct mapping_list *list, const struct dl_phdr_info *info,
                      const ElfW(Phdr) * part)
{
    struct ebbi_os_mapping *mapping = &list->out[list->count++];
    size_t before = part->p_vaddr % ebbi_os_page_size();
    mapping->start = info->dlpi_addr + part->p_vaddr - before;
    mapping->bytes = ebbi_align_up(part->p_memsz + before, ebbi_os_page_size());
    mapping->offset = part->p_offset - before;
    mapping->id_bytes = 0;
    name_module(mapping->name, sizeof mapping->name, info->dlpi_name);
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *notes = &info->dlpi_phdr[i];
        if (notes->p_type == PT_NOTE) {
            find_id(mapping, (const char *)(info->dlpi_addr + notes->p_vaddr), notes->p_memsz);
        }
    }
}

static int list_module(struct dl_phdr_info *info, size_t size, void *context)
{
    struct mapping_list *list = context;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum && list->count < list->room; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            list_part(list, info, part);
        }
    }
    return list->count == list->room;
}

size_t ebbi_os_mappings(struct ebbi_os_mapping *out, size_t room)
{
    int saved = errno;
    struct mapping_list list = {out, room, 0};
    (void)dl_iterate_phdr(list_module, &list);
    errno = saved;
    return list.count;
}

struct own_code {
    uintptr_t start;
    size_t bytes;
};

static int match_own(struct dl_phdr_info *info, size_t size, void *context)
{
    struct own_code *own = context;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (uintptr_t)match_own - start < part->p_memsz) {
            *own = (struct own_code){start, info->dlpi_name[0] != '\0' ? part->p_memsz : 0};
            return 1;
        }
    }
    return 0;
}

void ebbi_os_own_code(uintptr_t *start, size_t *bytes)
{
    int saved = errno;
    struct own_code own = {0};
    (void)dl_iterate_phdr(match_own, &own);
    *start = own.start;
    *bytes = own.bytes;
    errno = saved;
}
