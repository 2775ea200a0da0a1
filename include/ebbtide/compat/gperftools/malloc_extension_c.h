// SPDX-License-Identifier: MIT OR Apache-2.0
// The C face of tcmalloc's MallocExtension (gperftools), answered by Ebbtide: link libebbtide_compat beside libebbtide.
// docs/compat.md says what each property is. The C++ class is not given.
//
// Every function may be called by any thread, and after fork(); none is async-signal-safe.
#ifndef EBBTIDE_COMPAT_MALLOC_EXTENSION_C_H
#define EBBTIDE_COMPAT_MALLOC_EXTENSION_C_H

#include <ebbtide.h>

#include <stddef.h>

#define kMallocExtensionHistogramSize 64

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    MallocExtension_kUnknownOwnership = 0,
    MallocExtension_kOwned,
    MallocExtension_kNotOwned
} MallocExtension_Ownership;

// 1, as tcmalloc's own outside of its debug library: nothing is looked at. Ebbtide ends the process where it finds misuse.
EBB_EXPORT int MallocExtension_VerifyAllMemory(void) EBB_NOEXCEPT;
EBB_EXPORT int MallocExtension_VerifyNewMemory(const void *p) EBB_NOEXCEPT;
EBB_EXPORT int MallocExtension_VerifyArrayNewMemory(const void *p) EBB_NOEXCEPT;
EBB_EXPORT int MallocExtension_VerifyMallocMemory(const void *p) EBB_NOEXCEPT;

// 0 and zeros: there is no histogram.
EBB_EXPORT int MallocExtension_MallocMemoryStats(
    int *blocks, size_t *total, int histogram[kMallocExtensionHistogramSize]) EBB_NOEXCEPT;

// Ebbtide's statistics as text, cut to the buffer.
EBB_EXPORT void MallocExtension_GetStats(char *buffer, int length) EBB_NOEXCEPT;

// 1 and the value as of now, or 0: Ebbtide has no such figure, and *value is as before.
EBB_EXPORT int MallocExtension_GetNumericProperty(const char *property, size_t *value) EBB_NOEXCEPT;
// 0: nothing can be set while the program runs. Options are environment variables.
EBB_EXPORT int MallocExtension_SetNumericProperty(const char *property, size_t value) EBB_NOEXCEPT;

// The calling thread's free blocks return to their slabs (ebb_thread_idle).
EBB_EXPORT void MallocExtension_MarkThreadIdle(void) EBB_NOEXCEPT;
EBB_EXPORT void MallocExtension_MarkThreadTemporarilyIdle(void) EBB_NOEXCEPT;
// Nothing is needed: the thread's next malloc is enough.
EBB_EXPORT void MallocExtension_MarkThreadBusy(void) EBB_NOEXCEPT;

// Both return everything that is free to the operating system (ebb_trim).
EBB_EXPORT void MallocExtension_ReleaseToSystem(size_t bytes) EBB_NOEXCEPT;
EBB_EXPORT void MallocExtension_ReleaseFreeMemory(void) EBB_NOEXCEPT;

// The real size that malloc(size) would have; 0 where no block can have it. Up to 128 KiB it allocates such a block and
// frees it.
EBB_EXPORT size_t MallocExtension_GetEstimatedAllocatedSize(size_t size) EBB_NOEXCEPT;
// A block's real size, 0 for NULL.
EBB_EXPORT size_t MallocExtension_GetAllocatedSize(const void *p) EBB_NOEXCEPT;
// 0: not counted for one thread.
EBB_EXPORT size_t MallocExtension_GetThreadCacheSize(void) EBB_NOEXCEPT;
// Always unknown.
EBB_EXPORT MallocExtension_Ownership MallocExtension_GetOwnership(const void *p) EBB_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
