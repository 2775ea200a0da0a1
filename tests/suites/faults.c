// SPDX-License-Identifier: MIT OR Apache-2.0
// Faults for a program to load while it runs, each under a name; what it is handed is not looked at, so that any
// language's way of calling C will do. `nothing` is the same without a fault.
#include <stdlib.h>
#include <string.h>

static char *volatile block; // volatile: the compiler shall not see through it

int overflow(void)
{
    block = malloc(40);
    memset(block, 1, 41);
    free(block);
    return 0;
}

int double_free(void)
{
    block = malloc(40);
    free(block);
    free(block);
    return 0;
}

int use_after_free(void)
{
    block = malloc(40);
    free(block);
    block[8] = 1;
    return 0;
}

int nothing(void)
{
    block = malloc(40);
    memset(block, 1, 40);
    free(block);
    return 0;
}
