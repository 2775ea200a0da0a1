// SPDX-License-Identifier: MIT OR Apache-2.0
// tcmalloc's own names of malloc's family (gperftools): link libebbtide_compat beside libebbtide. Blocks are those of
// malloc where libebbtide is malloc.
#ifndef EBBTIDE_COMPAT_TCMALLOC_H
#define EBBTIDE_COMPAT_TCMALLOC_H

#include <ebbtide.h>

#include <stddef.h>

// Of gperftools, whose names these are.
#define TC_VERSION_MAJOR 2
#define TC_VERSION_MINOR 10
#define TC_VERSION_PATCH ""
#define TC_VERSION_STRING "gperftools 2.10"

#ifdef __cplusplus
extern "C" {
#endif

// Ebbtide's version, as text and in parts; each of these may be NULL.
EBB_EXPORT const char *tc_version(int *major, int *minor, const char **patch) EBB_NOEXCEPT;

EBB_EXPORT void *tc_malloc(size_t size) EBB_NOEXCEPT;
EBB_EXPORT void *tc_calloc(size_t count, size_t size) EBB_NOEXCEPT;
EBB_EXPORT void *tc_realloc(void *p, size_t size) EBB_NOEXCEPT;
EBB_EXPORT void tc_free(void *p) EBB_NOEXCEPT;
EBB_EXPORT void tc_free_sized(void *p, size_t size) EBB_NOEXCEPT;
EBB_EXPORT void *tc_memalign(size_t align, size_t size) EBB_NOEXCEPT;
EBB_EXPORT int tc_posix_memalign(void **out, size_t align, size_t size) EBB_NOEXCEPT;
EBB_EXPORT size_t tc_malloc_size(void *p) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
