// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer api: include/ebbtide.h, the malloc family.
#include "api/family.h"

#include <ebbtide.h>

#include "diag/load.h"
#include "os/options.h"
#include "process/board.h"

void *ebb_malloc(size_t bytes) { return ebbi_malloc(bytes, EBBI_BY_MALLOC); }
void *ebb_calloc(size_t count, size_t size) { return ebbi_calloc(count, size); }
void *ebb_realloc(void *p, size_t bytes) { return ebbi_realloc(p, bytes); }
void ebb_free(void *p) { ebbi_free(p, EBBI_BY_ANY); }
void *ebb_aligned_alloc(size_t align, size_t bytes)
{
    return ebbi_family_aligned(align, bytes, EBBI_BY_ALIGNED);
}
void *ebb_memalign(size_t align, size_t bytes)
{
    return ebbi_family_aligned(align, bytes, EBBI_BY_ALIGNED);
}
size_t ebb_malloc_usable_size(const void *p) { return ebbi_known_size(p); }
int ebb_is_sparse(const void *p) { return ebbi_block_is_sparse(p); }
void *ebb_compact(void *p)
{
    if (!ebbi_block_is_sparse(p)) {
        return p;
    }
    ebbi_stay_slow(p);
    void *to = ebbi_block_compact(p);
    ebbi_serve();
    return to;
}
size_t ebb_trim(void) { return ebbi_trim(ebbi_heap_get(), ebbi_threads_any()); }

int ebb_helper_start(void)
{
    bool done = ebbi_start() == 0 && ebbi_helper_keep();
    errno = done ? errno : EAGAIN;
    return done ? 0 : -1;
}

void ebb_free_sized(void *p, size_t bytes)
{
    (void)bytes;
    ebbi_free(p, EBBI_BY_ANY);
}

void ebb_free_aligned_sized(void *p, size_t align, size_t bytes)
{
    (void)align;
    (void)bytes;
    ebbi_free(p, EBBI_BY_ANY);
}

int ebb_posix_memalign(void **out, size_t align, size_t bytes)
{
    return ebbi_family_posix_memalign(out, align, bytes);
}

const char *ebb_option_value(unsigned index, size_t *value, int *is_set)
{
    if (index >= EBBI_OPTION_COUNT) {
        return NULL;
    }
    enum ebbi_option_id id = (enum ebbi_option_id)index;
    *value = ebbi_option(id);
    *is_set = ebbi_option_source(id) != EBBI_BY_DEFAULT;
    return ebbi_option_name(id);
}

const char *ebb_version(void) { return ebbi_board.release; }
