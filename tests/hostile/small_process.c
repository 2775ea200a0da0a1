// SPDX-License-Identifier: MIT OR Apache-2.0
// What a process pays for one malloc: written pages, of the library's own data and of the chunk that the block
// is in. Linux maps them one by one, so the counts are exact but for where the block lies by chance.
//   small_process data | chunk
#include "hostile.h"
#include <link.h>

enum { PAGE_KIB = 4 };

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
    uintptr_t inside, from, to;
};

static int measure(struct dl_phdr_info *info, size_t size, void *p)
{
    struct library *library = p;
    (void)size;
    uintptr_t from = info->dlpi_addr, to = from;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            to < from + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz)
            to = from + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    if (library->inside < from || library->inside >= to)
        return 0;
    library->from = from;
    library->to = to;
    return 1;
}

static long library_pages(void)
{
    struct library library = {(uintptr_t)dlsym(RTLD_DEFAULT, "ebb_stats_get"), 0, 0};
    MUST(dl_iterate_phdr(measure, &library) == 1, "no library");
    return written_pages(library.from, library.to);
}

int main(int argc, char **argv)
{
    MUST(argc == 2, "usage: small_process data | chunk");
    if (sysconf(_SC_PAGESIZE) != PAGE_KIB * KIB)
        skip("pages of another size");
    volatile char *block = malloc(100);
    MUST(block != NULL, "no memory");
    block[0] = 1;
    uintptr_t chunk = (uintptr_t)block / (uintptr_t)GIB * (uintptr_t)GIB;
    int data = strcmp(argv[1], "data") == 0;
    long most = data ? 13 : 14;
    long pages = data ? library_pages() : written_pages(chunk, chunk + (uintptr_t)GIB);
    MUST(pages > 0 && pages <= most, "%ld pages written, at most %ld", pages, most);
    return pass("%ld pages", pages);
}
