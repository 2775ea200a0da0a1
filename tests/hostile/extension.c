// SPDX-License-Identifier: MIT OR Apache-2.0
// An extension with the library linked in, for unload.c.
#include <ebbtide.h>
#include <ebbtide/reclaim.h>

__attribute__((visibility("default"))) int extension_works(void);

int extension_works(void)
{
    char *block = ebb_malloc(100);
    if (block == NULL)
        return 0;
    *block = 1;
    ebb_pin();
    ebb_retire(block);
    ebb_unpin();
    ebb_free(ebb_malloc(300000));
    return 1;
}
