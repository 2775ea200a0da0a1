// SPDX-License-Identifier: MIT OR Apache-2.0
// What a process pays for one malloc: written pages, of the library's own data and of the chunk that the block
// is in, which Linux maps one by one; code, of which it maps 64 KiB at a time; and what an idle thread pays for one.
//   small_process data | chunk | code | threads
#include "hostile.h"
#include <link.h>

enum { PAGE_KIB = 4, WINDOW_KIB = 64, THREADS = 100, THREAD_KIB = 30 };

// Pages of [from, to) that are the process's own: neither a file's nor shared, in memory or swapped. (Mappings do not tell: the
// kernel joins neighbours.)
static long written_pages(uintptr_t from, uintptr_t to)
{
    enum { AT_ONCE = 4096 };
    static uint64_t entries[AT_ONCE];
    const uint64_t present = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62,
                   of_file = UINT64_C(1) << 61;
    const uintptr_t page = PAGE_KIB * KIB;
    long pages = 0;
    int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        skip("no /proc/self/pagemap");
    uintptr_t end = (to + page - 1) / page;
    for (uintptr_t at = from / page; at < end; at += AT_ONCE) {
        size_t wanted = end - at < AT_ONCE ? end - at : AT_ONCE;
        ssize_t got =
            pread(file, entries, wanted * sizeof entries[0], (off_t)(at * sizeof entries[0]));
        MUST(got == (ssize_t)(wanted * sizeof entries[0]), "pagemap: %zd bytes", got);
        for (size_t k = 0; k < wanted; k++)
            pages += (entries[k] & (present | swapped)) != 0 && (entries[k] & of_file) == 0;
    }
    close(file);
    return pages;
}

struct library {
    uintptr_t inside, from, to, code_end;
};

static int measure(struct dl_phdr_info *info, size_t size, void *p)
{
    struct library *library = p;
    (void)size;
    uintptr_t from = info->dlpi_addr, to = from, code_end = from;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t end = from + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        if (to < end)
            to = end;
        if ((info->dlpi_phdr[i].p_flags & PF_X) != 0)
            code_end = end;
    }
    if (library->inside < from || library->inside >= to)
        return 0;
    *library = (struct library){library->inside, from, to, code_end};
    return 1;
}

static struct library find_library(void)
{
    struct library library = {(uintptr_t)dlsym(RTLD_DEFAULT, "ebb_stats_get"), 0, 0, 0};
    MUST(dl_iterate_phdr(measure, &library) == 1, "no library");
    return library;
}

static uintptr_t library_start;

static void outside(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    fail("0x%lx of the library is touched, which is not in its first %d KiB: packaging/order.ld",
         (unsigned long)((uintptr_t)info->si_addr - library_start), WINDOW_KIB);
}

// All that the first malloc and free touch of the library's code and constants is in one window.
static int code(void)
{
    const uintptr_t page = PAGE_KIB * KIB;
    struct library library = find_library();
    uintptr_t from = library.from + WINDOW_KIB * KIB, to = library.code_end / page * page;
    struct sigaction action = {.sa_sigaction = outside, .sa_flags = SA_SIGINFO};
    library_start = library.from;
    MUST(from < to && sigaction(SIGSEGV, &action, NULL) == 0, "a library of another kind");
    MUST(mprotect((void *)from, to - from, PROT_NONE) == 0, "mprotect: %d", errno);
    void *volatile block = malloc(100);
    free(block);
    MUST(mprotect((void *)from, to - from, PROT_READ | PROT_EXEC) == 0, "mprotect: %d", errno);
    return pass("%d KiB", WINDOW_KIB);
}

static long anonymous_kib(void)
{
    static char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        skip("no /proc/self/smaps_rollup");
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    const char *line = length > 0 ? strstr(text, "\nAnonymous:") : NULL;
    MUST(line != NULL, "no line of anonymous memory");
    return atol(line + strlen("\nAnonymous:"));
}

static pthread_barrier_t ready;

static void *idle(void *unused)
{
    void *volatile block = malloc(100);
    free(block);
    pthread_barrier_wait(&ready);
    pause();
    return unused;
}

static void start_threads(int count)
{
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, idle, NULL) == 0, "no thread");
        pthread_barrier_wait(&ready);
    }
}

// Stack and libc's own pages included; when the helper has parked their heaps.
static int threads(void)
{
    const int tries = 300;
    MUST(pthread_barrier_init(&ready, NULL, 2) == 0, "no barrier");
    start_threads(8); // the helper, and what the first ones bring
    long before = anonymous_kib(), more = 0;
    start_threads(THREADS);
    for (int i = 0; i < tries; i++) {
        more = anonymous_kib() - before;
        if (more <= (long)THREADS * THREAD_KIB)
            return pass("%ld KiB for %d threads", more, THREADS);
        usleep(50000);
    }
    fail("%ld KiB for %d threads, at most %d each", more, THREADS, THREAD_KIB);
}

int main(int argc, char **argv)
{
    MUST(argc == 2, "usage: small_process data | chunk | code | threads");
    if (sysconf(_SC_PAGESIZE) != PAGE_KIB * KIB)
        skip("pages of another size");
    if (strcmp(argv[1], "code") == 0)
        return code();
    if (strcmp(argv[1], "threads") == 0)
        return threads();
    volatile char *block = malloc(100);
    MUST(block != NULL, "no memory");
    block[0] = 1;
    uintptr_t chunk = (uintptr_t)block / (uintptr_t)GIB * (uintptr_t)GIB;
    int data = strcmp(argv[1], "data") == 0;
    long most = data ? DATA_PAGES : 13;
    struct library library = find_library();
    long pages = data ? written_pages(library.from, library.to)
                      : written_pages(chunk, chunk + (uintptr_t)GIB);
    MUST(pages > 0 && pages <= most, "%ld pages written, at most %ld", pages, most);
    return pass("%ld pages", pages);
}
