// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: ranges of pages. Linux (glibc and musl).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

#define DONTNEED_LOCKED 24 // MADV_DONTNEED_LOCKED, which older headers lack

// What os.h says of the ranges that it is handed.
static bool are_pages(const void *start, size_t bytes)
{
    return bytes > 0 && (((uintptr_t)start | bytes) & (ebbi_os_page_size() - 1)) == 0;
}

// What is charged the kernel refuses if it never could give so much, once it is writable.
static void *map_pages(void *at, size_t bytes, int protection, bool charged)
{
    EBBI_ASSERT(are_pages(at, bytes));
    int saved = errno;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (charged ? 0 : MAP_NORESERVE);
    void *got = mmap(at, bytes, protection, flags, -1, 0); // `at` is a hint: never replaces
    errno = saved;
    if (got == MAP_FAILED) {
        return NULL;
    }
    if (at != NULL && got != at) {
        ebbi_os_release(got, bytes);
        return NULL;
    }
    return got;
}

// What nobody has committed is no part of a core file, which debuggers write out in full.
static void *reserve_pages(void *at, size_t bytes, int protection, bool charged)
{
    int saved = errno;
    void *got = map_pages(at, bytes, protection, charged);
    if (got != NULL) {
        (void)madvise(got, bytes, MADV_DONTDUMP);
    }
    errno = saved;
    return got;
}

void *ebbi_os_reserve(void *at, size_t bytes) { return reserve_pages(at, bytes, PROT_NONE, false); }

void *ebbi_os_reserve_charged(size_t bytes) { return reserve_pages(NULL, bytes, PROT_NONE, true); }

void *ebbi_os_reserve_readable(size_t bytes)
{
    return reserve_pages(NULL, bytes, PROT_READ, false);
}

void *ebbi_os_map(void *at, size_t bytes)
{
    return map_pages(at, bytes, PROT_READ | PROT_WRITE, true);
}

int ebbi_os_make_writable(void *start, size_t bytes)
{
    EBBI_ASSERT(are_pages(start, bytes));
    int saved = errno;
    int result = mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : -ENOMEM;
    errno = saved;
    return result;
}

int ebbi_os_commit(void *start, size_t bytes)
{
    int saved = errno;
    int result = ebbi_os_make_writable(start, bytes);
    if (result == 0) {
        (void)madvise(start, bytes, MADV_DODUMP);
    }
    errno = saved;
    return result;
}

bool ebbi_os_purge(void *start, size_t bytes)
{
    EBBI_ASSERT(are_pages(start, bytes));
    int saved = errno;
    // Of a program that has locked its memory (mlockall) another call is asked for; since Linux 5.18.
    bool done = madvise(start, bytes, MADV_DONTNEED) == 0 ||
                (errno == EINVAL && madvise(start, bytes, DONTNEED_LOCKED) == 0);
    errno = saved;
    return done;
}

int ebbi_os_close(void *start, size_t bytes)
{
    EBBI_ASSERT(are_pages(start, bytes));
    int saved = errno;
    int result = mprotect(start, bytes, PROT_NONE) == 0 ? 0 : -ENOMEM;
    errno = saved;
    return result;
}

int ebbi_os_guard(void *start, size_t bytes)
{
    int result = ebbi_os_close(start, bytes);
    if (result == 0) {
        (void)ebbi_os_purge(start, bytes);
    }
    return result;
}

void ebbi_os_release(void *start, size_t bytes)
{
    EBBI_ASSERT(are_pages(start, bytes));
    int saved = errno;
    if (munmap(start, bytes) != 0) { // as where that would be a mapping too many
        (void)ebbi_os_purge(start, bytes);
    }
    errno = saved;
}

// NULL: refused, nothing has changed.
static void *remap(void *start, size_t old_bytes, size_t new_bytes, int flags, void *to)
{
    EBBI_ASSERT(are_pages(start, old_bytes) && are_pages(start, new_bytes));
    int saved = errno;
    void *got = MAP_FAILED;
    if (ebbi_os_call_begins()) {
        got = mremap(start, old_bytes, new_bytes, flags, to);
        ebbi_os_call_ends();
    }
    errno = saved;
    return got != MAP_FAILED ? got : NULL;
}

bool ebbi_os_resize(void *start, size_t old_bytes, size_t new_bytes)
{
    if (new_bytes < old_bytes) {
        int saved = errno;
        bool done = munmap((char *)start + new_bytes, old_bytes - new_bytes) == 0;
        errno = saved;
        return done;
    }
    return remap(start, old_bytes, new_bytes, 0, NULL) != NULL;
}

void *ebbi_os_move(void *start, size_t old_bytes, void *to, size_t new_bytes)
{
    EBBI_ASSERT(to == NULL ||
                (are_pages(to, new_bytes) && (uintptr_t)to - (uintptr_t)start >= old_bytes &&
                 (uintptr_t)start - (uintptr_t)to >= new_bytes));
    int flags = MREMAP_MAYMOVE | (to != NULL ? MREMAP_FIXED : 0);
    return remap(start, old_bytes, new_bytes, flags, to);
}

void ebbi_os_pages_open(struct ebbi_os_pages *pages)
{
    int saved = errno;
    pages->file = -1;
    if (ebbi_os_call_begins()) {
        pages->file =
            (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        ebbi_os_call_ends();
    }
    errno = saved;
}

void ebbi_os_pages_close(struct ebbi_os_pages *pages)
{
    int saved = errno;
    if (pages->file >= 0) {
        (void)syscall(SYS_close, pages->file);
        pages->file = -1;
    }
    errno = saved;
}

// PAGEMAP_SCAN, as the kernel's documentation has it (admin-guide/mm/pagemap); older headers do not.
struct page_region {
    uint64_t start, end, categories;
};
struct page_scan {
    uint64_t size, flags, start, end, walk_end, regions, regions_count, max_pages;
    uint64_t inverted, mask, anyof_mask, return_mask;
};
#define PAGE_SCAN _IOWR('f', 16, struct page_scan)
#define PAGE_PRESENT (1u << 3)
#define PAGE_OF_ZEROES (1u << 5) // the kernel's own, under all that was only read
#define REGIONS_AT_ONCE 32

static bool scan_pages(int file, uintptr_t start, size_t bytes, unsigned char *vector)
{
    struct page_region regions[REGIONS_AT_ONCE];
    size_t page = ebbi_os_page_size();
    uintptr_t end = start + bytes;
    memset(vector, 0, bytes / page);
    for (uintptr_t at = start; at < end;) {
        struct page_scan scan = {.size = sizeof scan,
                                 .start = at,
                                 .end = end,
                                 .regions = (uintptr_t)regions,
                                 .regions_count = REGIONS_AT_ONCE,
                                 .inverted = PAGE_OF_ZEROES,
                                 .mask = PAGE_PRESENT | PAGE_OF_ZEROES,
                                 .return_mask = PAGE_PRESENT};
        long count = syscall(SYS_ioctl, file, PAGE_SCAN, &scan);
        if (count < 0 || scan.walk_end <= at) {
            return false;
        }
        for (long i = 0; i < count; i++) {
            memset(vector + (regions[i].start - start) / page, 1,
                   (regions[i].end - regions[i].start) / page);
        }
        at = scan.walk_end;
    }
    return true;
}

bool ebbi_os_resident(struct ebbi_os_pages *pages, const void *start, size_t bytes,
                      unsigned char *vector)
{
    EBBI_ASSERT(are_pages(start, bytes));
    int saved = errno;
    bool known = false;
    if (ebbi_os_call_begins()) {
        known = pages != NULL && pages->file >= 0 &&
                scan_pages(pages->file, (uintptr_t)start, bytes, vector);
        if (!known && pages != NULL) {
            ebbi_os_pages_close(pages); // this kernel cannot tell: not asked again
        }
        known = known || mincore((void *)(uintptr_t)start, bytes, vector) == 0;
        ebbi_os_call_ends();
    }
    errno = saved;
    return known;
}

void ebbi_os_advise_huge(void *start, size_t bytes, enum ebbi_os_huge advice)
{
    EBBI_ASSERT(are_pages(start, bytes));
    int saved = errno;
    if (advice == EBBI_HUGE_ALWAYS || advice == EBBI_HUGE_NEVER) {
        (void)madvise(start, bytes, advice == EBBI_HUGE_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    errno = saved;
}
