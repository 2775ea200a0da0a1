// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: what lies beside a large object, whichever kind it is: a span with that tag, or a mapping of
// its own.
#include "arena/arena.h"

struct ebbi_large *ebbi_large_of(const void *p)
{
    if (ebbi_tag_of(p) != EBBI_TAG_LARGE) {
        return NULL;
    }
    struct ebbi_large *large = ebbi_large_in(ebbi_span_of(p));
    return (uintptr_t)p % EBBI_GRANULE == large->shift ? large : NULL;
}

struct ebbi_note *ebbi_large_note(void *p)
{
    struct ebbi_large *large = ebbi_large_of(p);
    return large != NULL ? &large->note : ebbi_huge_note(p);
}
