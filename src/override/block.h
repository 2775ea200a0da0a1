// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: what dlopen needs of block.c and threads.c.
#ifndef EBB_OVERRIDE_BLOCK_H
#define EBB_OVERRIDE_BLOCK_H

// Looks up the functions that block.c stands before, all at once. Idempotent, any thread, while the
// caller is not in the loader. NULL in the static library, which has no block.c.
__attribute__((weak, visibility("hidden"))) void ebbi_block_prepare(void);
__attribute__((weak, visibility("hidden"))) void ebbi_threads_prepare(
    void); // the same of threads.c

#endif
