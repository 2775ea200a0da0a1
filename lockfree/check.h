// SPDX-License-Identifier: MIT OR Apache-2.0
// Assertions of the blocks, with EBB_ASSERT alone. Private to lockfree/.
#ifndef EBBTIDE_LOCKFREE_CHECK_H
#define EBBTIDE_LOCKFREE_CHECK_H

#ifdef EBB_ASSERT
#undef NDEBUG
#include <assert.h>
#define EBBI_LOCKFREE_ASSERT(cond) assert(cond)
#else
#define EBBI_LOCKFREE_ASSERT(cond) (0 ? (void)(cond) : (void)0)
#endif

#endif
