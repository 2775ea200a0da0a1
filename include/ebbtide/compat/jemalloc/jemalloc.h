// SPDX-License-Identifier: MIT OR Apache-2.0
// The calls of jemalloc 5, answered by Ebbtide: link libebbtide_compat beside libebbtide. It is found as
// <jemalloc/jemalloc.h> where pkg-config's ebbtide-compat or CMake's Ebbtide::ebbtide_compat sets the include path.
// docs/compat.md says what each name of mallctl answers. What Ebbtide has no answer for is ENOENT.
//
// Every function may be called by any thread, and after fork(); none is async-signal-safe. Each has a second name
// with the prefix je_. malloc, free and their family are those of <stdlib.h>; their names with je_ are here.
#ifndef EBBTIDE_COMPAT_JEMALLOC_H
#define EBBTIDE_COMPAT_JEMALLOC_H

#include <ebbtide.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Of jemalloc, whose calls these are. mallctl("version") has Ebbtide's.
#define JEMALLOC_VERSION "5.3.0"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 0
#define JEMALLOC_VERSION_NREV 0

// Flags. Those of tcaches and arenas change nothing.
#define MALLOCX_LG_ALIGN(lg) ((int)(lg))
#define MALLOCX_ALIGN(align) ((int)__builtin_ctzll(align)) // align: a power of two
#define MALLOCX_ZERO ((int)0x40)
#define MALLOCX_TCACHE(tcache) ((int)(((tcache) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(arena) ((int)(((unsigned)(arena) + 1) << 20))

#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

#ifdef __cplusplus
extern "C" {
#endif

// A block of at least `size` bytes, NULL where memory is refused. MALLOCX_ZERO clears the whole block.
EBB_EXPORT void *mallocx(size_t size, int flags) EBB_NOEXCEPT;
EBB_EXPORT void *je_mallocx(size_t size, int flags) EBB_NOEXCEPT;

// The block resized, moved if need be. MALLOCX_ZERO clears what lies behind the old block's real size. NULL where memory
// is refused; then the block is as it was.
EBB_EXPORT void *rallocx(void *p, size_t size, int flags) EBB_NOEXCEPT;
EBB_EXPORT void *je_rallocx(void *p, size_t size, int flags) EBB_NOEXCEPT;

// The block's real size. Ebbtide resizes no block in place, so it stays as it was.
EBB_EXPORT size_t xallocx(void *p, size_t size, size_t extra, int flags) EBB_NOEXCEPT;
EBB_EXPORT size_t je_xallocx(void *p, size_t size, size_t extra, int flags) EBB_NOEXCEPT;

// A block's real size.
EBB_EXPORT size_t sallocx(const void *p, int flags) EBB_NOEXCEPT;
EBB_EXPORT size_t je_sallocx(const void *p, int flags) EBB_NOEXCEPT;

EBB_EXPORT void dallocx(void *p, int flags) EBB_NOEXCEPT;
EBB_EXPORT void je_dallocx(void *p, int flags) EBB_NOEXCEPT;
EBB_EXPORT void sdallocx(void *p, size_t size, int flags) EBB_NOEXCEPT;
EBB_EXPORT void je_sdallocx(void *p, size_t size, int flags) EBB_NOEXCEPT;

// What a block of mallocx(size, flags) has room for, at least, and all of which the program may use: mallocx and rallocx ask for
// so much. 0 above 2^47. O(log of the number of classes), without allocating.
EBB_EXPORT size_t nallocx(size_t size, int flags) EBB_NOEXCEPT;
EBB_EXPORT size_t je_nallocx(size_t size, int flags) EBB_NOEXCEPT;

// Reads, writes, or both, as jemalloc's manual says: 0, ENOENT (unknown name), EINVAL (wrong length: as much as fits is
// read), EPERM (not readable, or not to be changed) or EFAULT (this arena has no such value).
EBB_EXPORT int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp,
                       size_t newlen) EBB_NOEXCEPT;
EBB_EXPORT int je_mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp,
                          size_t newlen) EBB_NOEXCEPT;
EBB_EXPORT int mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp) EBB_NOEXCEPT;
EBB_EXPORT int je_mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp) EBB_NOEXCEPT;
EBB_EXPORT int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp,
                            void *newp, size_t newlen) EBB_NOEXCEPT;
EBB_EXPORT int je_mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp,
                               void *newp, size_t newlen) EBB_NOEXCEPT;

// Writes statistics by write_cb, or to standard error for NULL: Ebbtide's own text or, with J in opts, one JSON object:
// "jemalloc" has what mallctl answers, "ebbtide" what ebb_stats_json writes. Other letters change nothing.
EBB_EXPORT void malloc_stats_print(void (*write_cb)(void *, const char *), void *cbopaque,
                                   const char *opts) EBB_NOEXCEPT;
EBB_EXPORT void je_malloc_stats_print(void (*write_cb)(void *, const char *), void *cbopaque,
                                      const char *opts) EBB_NOEXCEPT;

EBB_EXPORT void *je_malloc(size_t size) EBB_NOEXCEPT;
EBB_EXPORT void *je_calloc(size_t count, size_t size) EBB_NOEXCEPT;
EBB_EXPORT void *je_realloc(void *p, size_t size) EBB_NOEXCEPT;
EBB_EXPORT void je_free(void *p) EBB_NOEXCEPT;
EBB_EXPORT void *je_aligned_alloc(size_t align, size_t size) EBB_NOEXCEPT;
EBB_EXPORT void *je_memalign(size_t align, size_t size) EBB_NOEXCEPT;
EBB_EXPORT int je_posix_memalign(void **out, size_t align, size_t size) EBB_NOEXCEPT;
EBB_EXPORT size_t je_malloc_usable_size(const void *p) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
