// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: what lies beside a large object, whichever kind it is: a span with that tag, or a mapping of
// its own.
#include "arena/arena.h"

struct ebbi_note *ebbi_large_note(void *p)
{
    struct ebbi_large *large = ebbi_large_of(p);
    return large != NULL ? &large->note : ebbi_huge_note(p);
}
