// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a pointer of the program is, and the report on what is none.
#include <string.h>

#include "debug/check.h"
#include "debug/guard.h"
#include "debug/quarantine.h"
#include "heap/blocks.h"
#include "report/report.h"

// True: it lies in an object of 32 MiB and more, or in what was one lately.
static bool report_huge(struct ebbi_report report, const void *p)
{
    struct ebbi_huge_place place;
    if (!ebbi_huge_around(p, &place)) {
        return false;
    }
    size_t inside = (size_t)((uintptr_t)p - place.start);
    report.block = (struct ebbi_extent){place.start, place.bytes};
    if (!place.freed) {
        ebbi_misuse_said(report, "%p is %zu bytes inside the block of %zu bytes at %p", p, inside,
                         place.bytes, (void *)place.start);
    } else if (inside == 0 && strcmp(report.kind[1], "free") == 0) {
        report.kind[0] = "double free";
        report.kind[1] = NULL;
        ebbi_misuse_said(report, "%p, a block of %zu bytes, is free already", p, place.bytes);
    } else {
        ebbi_misuse_said(report, "%p is %zu bytes inside a block of %zu bytes at %p, which is free",
                         p, inside, place.bytes, (void *)place.start);
    }
    return true;
}

void ebbi_report_invalid(const void *p, const char *what)
{
    if (ebbi_escape_report((uintptr_t)p, strcmp(what, "pointer") == 0 ? "use" : what) ||
        ebbi_guard_report((uintptr_t)p, what, NULL)) {
        return;
    }
    struct ebbi_report report = {.kind = {"invalid ", what}, .address = (uintptr_t)p};
    const struct ebbi_chunk *chunk = ebbi_chunk_of(p);
    uintptr_t granule = ((uintptr_t)p & (EBBI_CHUNK - 1)) >> EBBI_GRANULE_SHIFT;
    if (chunk == NULL || granule >= chunk->granules) {
        if (!report_huge(report, p)) {
            ebbi_misuse_said(report, "%p does not come from this allocator", p);
        }
        return;
    }
    ebbi_misuse_said(report, "%p is inside a large block, or was freed before, or never handed out",
                     p);
}

void ebbi_report_mismatch(const void *p, size_t bytes, size_t align)
{
    size_t has = ebbi_usable_size(p); // reports what is no block
    struct ebbi_report report = {
        .kind = {"mismatched free"}, .address = (uintptr_t)p, .block = {(uintptr_t)p, has}};
    if (align != 0 && (!ebbi_is_power_of_two(align) || ((uintptr_t)p & (align - 1)) != 0)) {
        ebbi_report_said(report, "aligned to %zu, as its call says, %p is not", align, p);
    }
    ebbi_report_said(report, "of %zu bytes, as its call says, %p is not: it has room for %zu",
                     bytes, p, has);
}

size_t ebbi_usable_size(const void *p)
{
    unsigned tag = ebbi_tag_of(p);
    if (p == NULL) {
        return 0;
    }
    if (tag == EBBI_TAG_REGION) {
        return ebbi_sheet_usable(p);
    }
    unsigned class_number = ebbi_tag_class(tag);
    if (class_number == 0) {
        return ebbi_large_bytes(p);
    }
    if (ebbi_check_is_on()) {
        return ebbi_check_bytes(p, "pointer");
    }
    if (EBBI_UNLIKELY(!ebbi_slab_has_place(p, ebbi_tag_load(ebbi_tag_at(p))))) {
        ebbi_slab_misuse_no_block(ebbi_slab_of(p), p, "pointer");
        ebbi_end();
    }
    return ebbi_class_bytes(class_number);
}

size_t ebbi_known_size(const void *p)
{
    size_t bytes = ebbi_usable_size(p);
    return bytes != EBBI_NO_BLOCK ? bytes : 0;
}
