// SPDX-License-Identifier: MIT OR Apache-2.0
// The C face of tcmalloc's MallocExtension, and its own names of malloc's family.
#include <ebbtide/region.h>
#include <gperftools/malloc_extension_c.h>
#include <gperftools/tcmalloc.h>
#include <jemalloc/jemalloc.h>
#include <string.h>

#include "figures.h"

// A property is the sum of its first figures, less the last.
struct property {
    const char *name;
    unsigned plus; // bits of figures
    unsigned minus;
};

#define OF(figure) (1U << EBBI_##figure)

// pageheap_unmapped_bytes: gperftools has total_physical_bytes = heap_size - pageheap_unmapped_bytes, and so have we.
static const struct property properties[] = {
    {"generic.current_allocated_bytes", OF(ALLOCATED), 0},
    {"generic.heap_size", OF(HEAP), 0},
    {"generic.total_physical_bytes", OF(RESIDENT), 0},
    {"tcmalloc.central_cache_free_bytes", OF(PINNED), 0},
    {"tcmalloc.current_total_thread_cache_bytes", OF(CACHED), 0},
    {"tcmalloc.pageheap_free_bytes", OF(FREE), 0},
    {"tcmalloc.pageheap_unmapped_bytes", OF(HEAP), OF(RESIDENT)},
    {"tcmalloc.slack_bytes", OF(HEAP) | OF(FREE), OF(RESIDENT)},
    {"tcmalloc.thread_cache_free_bytes", OF(CACHED), 0},
};

static size_t sum(const struct ebbi_compat_figures *figures, unsigned bits)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < EBBI_FIGURES; i++) {
        bytes += (bits >> i & 1) != 0 ? figures->of[i] : 0;
    }
    return bytes;
}

int MallocExtension_GetNumericProperty(const char *property, size_t *value)
{
    if (property == NULL || value == NULL) {
        return 0;
    }
    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
        if (strcmp(properties[i].name, property) == 0) {
            struct ebbi_compat_figures now = ebbi_compat_figures_now();
            size_t plus = sum(&now, properties[i].plus);
            size_t minus = sum(&now, properties[i].minus);
            *value = plus > minus ? plus - minus : 0;
            return 1;
        }
    }
    return 0;
}

int MallocExtension_SetNumericProperty(const char *property, size_t value)
{
    (void)property;
    (void)value;
    return 0;
}

int MallocExtension_VerifyAllMemory(void) { return 1; }

int MallocExtension_VerifyNewMemory(const void *p)
{
    (void)p;
    return 1;
}

int MallocExtension_VerifyArrayNewMemory(const void *p)
{
    (void)p;
    return 1;
}

int MallocExtension_VerifyMallocMemory(const void *p)
{
    (void)p;
    return 1;
}

int MallocExtension_MallocMemoryStats(int *blocks, size_t *total,
                                      int histogram[kMallocExtensionHistogramSize])
{
    *blocks = 0;
    *total = 0;
    memset(histogram, 0, kMallocExtensionHistogramSize * sizeof *histogram);
    return 0;
}

void MallocExtension_GetStats(char *buffer, int length)
{
    if (length > 0) {
        (void)ebb_stats_text(buffer, (size_t)length);
    }
}

void MallocExtension_MarkThreadIdle(void) { ebb_thread_idle(); }
void MallocExtension_MarkThreadTemporarilyIdle(void) { ebb_thread_idle(); }
void MallocExtension_MarkThreadBusy(void) {}

void MallocExtension_ReleaseToSystem(size_t bytes)
{
    (void)bytes;
    (void)ebb_trim();
}

void MallocExtension_ReleaseFreeMemory(void) { (void)ebb_trim(); }

size_t MallocExtension_GetEstimatedAllocatedSize(size_t size)
{
    return size != 0 ? nallocx(size, 0) : 0; // nobody may touch what malloc(0) gives
}
size_t MallocExtension_GetAllocatedSize(const void *p) { return ebb_malloc_usable_size(p); }
size_t MallocExtension_GetThreadCacheSize(void) { return 0; }

MallocExtension_Ownership MallocExtension_GetOwnership(const void *p)
{
    (void)p;
    return MallocExtension_kUnknownOwnership;
}

const char *tc_version(int *major, int *minor, const char **patch)
{
    if (major != NULL) {
        *major = EBB_VERSION_MAJOR;
    }
    if (minor != NULL) {
        *minor = EBB_VERSION_MINOR;
    }
    if (patch != NULL) {
        *patch = "";
    }
    return ebb_version();
}

void *tc_malloc(size_t size) { return ebb_malloc(size); }
void *tc_calloc(size_t count, size_t size) { return ebb_calloc(count, size); }
void *tc_realloc(void *p, size_t size) { return ebb_realloc(p, size); }
void tc_free(void *p) { ebb_free(p); }
void tc_free_sized(void *p, size_t size) { ebb_free_sized(p, size); }
void *tc_memalign(size_t align, size_t size) { return ebb_memalign(align, size); }
int tc_posix_memalign(void **out, size_t align, size_t size)
{
    return ebb_posix_memalign(out, align, size);
}
size_t tc_malloc_size(void *p) { return ebb_malloc_usable_size(p); }
