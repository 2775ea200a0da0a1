// SPDX-License-Identifier: MIT OR Apache-2.0
// malloc is Ebbtide's: ebb_free takes its block.
#include <ebbtide.h>
#include <stdlib.h>

int main(void)
{
    void *p = malloc(100);
    ebb_free(p);
    return p == NULL;
}
