// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: what dlopen needs of threads.c.
#ifndef EBB_OVERRIDE_THREADS_H
#define EBB_OVERRIDE_THREADS_H

// Looks up the functions that threads.c stands before, all at once. Idempotent, any thread, while the
// caller is not in the loader. NULL in the static library, which has no threads.c.
__attribute__((weak, visibility("hidden"))) void ebbi_threads_prepare(void);

#endif
