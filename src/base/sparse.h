// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer base: copies that leave what is zero untouched.
#ifndef EBB_BASE_SPARSE_H
#define EBB_BASE_SPARSE_H

#include <string.h>

#include "base/base.h"

#define EBBI_SPARSE_STEP ((size_t)4096) // a page, or a part of one

EBBI_INLINE bool ebbi_is_zero(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < ebbi_min(bytes, 16); i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return bytes <= 16 ||
           memcmp(at, at + 16, bytes - 16) == 0; // each byte is as the 16th before it
}

// To where all reads as zero, by steps from the start: a page of it is written only if something else comes there. What is
// in use throughout costs a look at the first bytes of each step. O(bytes).
EBBI_INLINE void ebbi_copy_to_zeros(void *to, const void *from, size_t bytes)
{
    unsigned char *target = (unsigned char *)to;
    const unsigned char *source = (const unsigned char *)from;
    size_t begun = 0; // of what is copied in one go
    for (size_t at = 0; at < bytes; at += EBBI_SPARSE_STEP) {
        size_t step = ebbi_min(EBBI_SPARSE_STEP, bytes - at);
        if (ebbi_is_zero(source + at, step)) {
            memcpy(target + begun, source + begun, at - begun);
            begun = at + step;
        }
    }
    memcpy(target + begun, source + begun, bytes - begun);
}

#endif
