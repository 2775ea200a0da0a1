// SPDX-License-Identifier: MIT OR Apache-2.0
// malloc is Ebbtide's, as the library that answers is the one that the header describes.
#include <ebbtide.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char header[32];
    snprintf(header, sizeof header, "%d.%d.%d", EBB_VERSION_MAJOR, EBB_VERSION_MINOR,
             EBB_VERSION_PATCH);
    char *p = malloc(100);
    if (p == NULL || strcmp(header, ebb_version()) != 0) {
        return 1;
    }
    memset(p, 1, 100);
    ebb_free(p); // aborts if the block is another allocator's
    return 0;
}
