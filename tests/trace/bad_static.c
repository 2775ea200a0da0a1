// SPDX-License-Identifier: MIT OR Apache-2.0
// Linked statically: nothing of it is seen.
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    void *volatile p = malloc(100);
    free(p);
    return write(1, "static\n", 7) == 7 ? 0 : 1;
}
