// SPDX-License-Identifier: MIT OR Apache-2.0
// For the models: what the blocks of lockfree/ ask of the library.
#ifndef EBBTIDE_RECLAIM_H
#define EBBTIDE_RECLAIM_H

#include "ebbtide/detail/pin.h"

#define EBB_EXPORT
#define EBB_NOEXCEPT

extern "C" {
void *ebb_malloc(size_t bytes);
void *ebb_aligned_alloc(size_t alignment, size_t bytes);
void ebb_free(void *p);
void ebb_pin(void);
void ebb_unpin(void);
void ebb_retire(void *p);
}

#endif
