// SPDX-License-Identifier: MIT OR Apache-2.0
// What a process pays for one malloc: written pages, of the library's own data and of the chunk that the block
// is in. Linux maps them one by one, so the counts are exact but for where the block lies by chance.
//   small_process data | chunk
#include "hostile.h"
#include <link.h>

enum { PAGE_KIB = 4 };

// The bytes that /proc/self/smaps calls anonymous, of the mappings in [from, to), in pages.
static long written_pages(uintptr_t from, uintptr_t to)
{
    static char text[256 * 1024];
    size_t length = 0;
    ssize_t got;
    int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        skip("no /proc/self/smaps");
    while ((got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = 0;
    long kib = 0;
    int within = 0;
    for (char *line = text; line != NULL && *line != 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        char *rest;
        uintptr_t start = strtoul(line, &rest, 16);
        if (rest != line && *rest == '-')
            within = start >= from && start < to;
        else if (within && strncmp(line, "Anonymous:", 10) == 0)
            kib += atol(line + 10);
    }
    return kib / PAGE_KIB;
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
