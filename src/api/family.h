// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer api: the parts of the malloc family that are more than a call of the heap, shared by ebb_*
// and by libc's names.
#ifndef EBB_API_FAMILY_H
#define EBB_API_FAMILY_H

#include <errno.h>

#include "front/fast.h"

EBBI_INLINE void *ebbi_family_aligned(size_t align, size_t bytes, enum ebbi_family family)
{
    if (EBBI_UNLIKELY(!ebbi_is_power_of_two(align))) {
        errno = EINVAL;
        return NULL;
    }
    return align <= EBBI_QUANTUM ? ebbi_malloc(bytes, family)
                                 : ebbi_aligned(align, bytes, EBBI_SITE(family));
}

EBBI_INLINE int ebbi_family_posix_memalign(void **out, size_t align, size_t bytes)
{
    if (EBBI_UNLIKELY(!ebbi_is_power_of_two(align) || align % sizeof(void *) != 0)) {
        return EINVAL;
    }
    void *block = ebbi_aligned_fast(align, bytes);
    if (EBBI_LIKELY(block != NULL)) {
        *out = block;
        return 0;
    }
    int saved = errno;
    void *p = ebbi_family_aligned(align, bytes, EBBI_BY_ALIGNED);
    errno = saved;
    if (p == NULL) {
        return ENOMEM;
    }
    *out = p;
    return 0;
}

#endif
