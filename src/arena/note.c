// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: what lies beside a large object, whichever kind it is: a span with that tag, or a mapping of
// its own.
#include "arena/arena.h"

struct ebbi_span *ebbi_large_span(const void *p)
{
    bool starts = ebbi_tag_of(p) == EBBI_TAG_LARGE && (uintptr_t)p % EBBI_GRANULE == 0;
    return starts ? ebbi_span_of(p) : NULL;
}

struct ebbi_note *ebbi_large_note(void *p)
{
    struct ebbi_span *span = ebbi_large_span(p);
    return span != NULL ? &span->note : ebbi_huge_note(p);
}
