// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer debug: what a call of the program tells the slow paths of itself, for reports and for EBB_CHECK.
#ifndef EBB_DEBUG_SITE_H
#define EBB_DEBUG_SITE_H

#include "base/base.h"

// Where this function was called, or the one that it is inlined into, and in the highest byte of which family of
// functions that one is (enum ebbi_family): for reports.
typedef uintptr_t ebbi_site;
#define EBBI_SITE_FAMILY 56
#define EBBI_SITE(family)                                                                          \
    ((ebbi_site)__builtin_return_address(0) | (ebbi_site)(family) << EBBI_SITE_FAMILY)

#define EBBI_UNSAID SIZE_MAX // a size that a call that frees does not say

// By whom a block is allocated, or was if it is right to free it so.
enum ebbi_family {
    EBBI_BY_MALLOC,
    EBBI_BY_ALIGNED, // aligned_alloc and its like; free takes both
    EBBI_BY_NEW,
    EBBI_BY_NEW_ARRAY,
    EBBI_BY_ALIGNED_NEW,
    EBBI_BY_ALIGNED_NEW_ARRAY,
    EBBI_BY_ANY, // ebb_free
};
EBBI_INLINE enum ebbi_family ebbi_family_of(ebbi_site site)
{
    return (enum ebbi_family)(site >> EBBI_SITE_FAMILY);
}
EBBI_INLINE uintptr_t ebbi_caller_of(ebbi_site site)
{
    return site & (((ebbi_site)1 << EBBI_SITE_FAMILY) - 1);
}

#endif
