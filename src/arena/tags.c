// SPDX-License-Identifier: MIT OR Apache-2.0
#include "arena/tags.h"

#include "os/os.h"

#include <errno.h>

// A limit on address space below this leaves no room for the whole table.
#define ROOMY ((size_t)32 << 30)

static uint16_t null_granule[1];
uint16_t *ebbi_tags = null_granule;
size_t ebbi_tag_count = 1;

static bool cover(size_t granules)
{
    uint16_t *table = ebbi_os_reserve_readable(granules * sizeof *table);
    if (table == NULL) {
        return false;
    }
    ebbi_tags = table;
    ebbi_tag_count = granules;
    return true;
}

int ebbi_tags_init(void)
{
    if (ebbi_os_address_limit() >= ROOMY &&
        cover((size_t)1 << (EBBI_ADDRESS_BITS - EBBI_GRANULE_SHIFT))) {
        return 0;
    }
    return cover(EBBI_WINDOW_END >> EBBI_GRANULE_SHIFT) ? 0 : -ENOMEM;
}

int ebbi_tags_prepare(const void *start, size_t bytes)
{
    size_t page = ebbi_os_page_size();
    uintptr_t first = (uintptr_t)(ebbi_tags + ebbi_granule_of(start));
    uintptr_t end = (uintptr_t)(ebbi_tags + ebbi_granule_of((const char *)start + bytes - 1) + 1);
    uintptr_t from = ebbi_align_down(first, page);
    return ebbi_os_commit((void *)from, ebbi_align_up(end, page) - from);
}
