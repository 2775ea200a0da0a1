// SPDX-License-Identifier: MIT OR Apache-2.0
// jemalloc's and tcmalloc's headers and calls, as a program would include them.
#include <gperftools/malloc_extension_c.h>
#include <gperftools/tcmalloc.h>
#include <jemalloc/jemalloc.h>

#include <stdlib.h>

int main(void)
{
    size_t before = 0, after = 0, length = sizeof after;
    uint64_t epoch = 1;
    if (!MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &before)) {
        return 1;
    }
    void *p = mallocx(1 << 20, MALLOCX_ALIGN(64));
    if (p == NULL || mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 ||
        mallctl("stats.allocated", &after, &length, NULL, 0) != 0 || after < before + (1 << 20)) {
        return 2;
    }
    free(p); // malloc's block
    tc_free(je_malloc(10));
    return mallctl("arena.0.purge", NULL, NULL, NULL, 0);
}
