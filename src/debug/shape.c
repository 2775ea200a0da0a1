// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: whether a call that frees says of a block what the one that allocated it did.
#include "debug/check.h"

static bool any_family; // may free what another allocated; constant

void ebbi_shapes_begin(bool families) { any_family = !families; }

static const char *const made_by[] = {
    "made by malloc", "made by aligned_alloc", "made by new",
    "made by new[]",  "made by aligned new",   "made by aligned new[]",
};

const char *ebbi_check_differs(const struct ebbi_shape *made, const struct ebbi_shape *said)
{
    if (any_family) {
        return NULL;
    }
    bool both = said->family == EBBI_BY_ANY || said->family == made->family ||
                (said->family == EBBI_BY_MALLOC && made->family == EBBI_BY_ALIGNED &&
                 said->bytes == EBBI_UNSAID);
    if (!both) {
        EBBI_ASSERT(made->family < sizeof made_by / sizeof made_by[0]);
        return made_by[made->family];
    }
    if (said->bytes != EBBI_UNSAID && said->bytes != made->bytes) {
        return "of another size";
    }
    // Up to 16 all are alike, and none is noted.
    bool other = said->align != 0 && ebbi_max(said->align, 16) != ebbi_max(made->align, 16);
    return other ? "of another alignment" : NULL;
}
