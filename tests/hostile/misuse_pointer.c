// SPDX-License-Identifier: MIT OR Apache-2.0
// Frees of what is no block: inside one, of the stack, of globals, of code, of other mappings. Each
// ends the process by a line that starts with "ebbtide: ", foreign pointers at once.
#include "misuse.h"
#include <malloc.h>

static const size_t sizes[] = {16, 48, 64, 100, 500, 2000, 30000, 100000, 64 << 20, 0};
static char global[4096] __attribute__((aligned(4096)));

static void *take(void *p, long kind)
{
    if (kind == 0)
        free(p);
    else if (kind == 1)
        return realloc(p, 100);
    else
        (void)malloc_usable_size(p);
    return NULL;
}

// The second number says which function gets the pointer.
static long function;

static void inside(size_t size, long offset)
{
    char *p = keep(size);
    if ((size_t)offset >= size)
        offset = 8;
    take(p + offset, function);
}

static void at_the_end(size_t size, long unused)
{
    (void)unused;
    char *p = keep(size);
    take(p + malloc_usable_size(p) - 1, function);
}

static void before_it(size_t size, long offset) { take(keep(size) - offset, function); }

static void stack(size_t size, long unused)
{
    (void)unused;
    char array[256] __attribute__((aligned(64)));
    memset(array, (int)size, sizeof array);
    take(array, function);
}

static void globals(size_t size, long offset)
{
    (void)size;
    take(global + offset, function);
}

static void code(size_t size, long unused)
{
    (void)size, (void)unused;
    take((void *)(uintptr_t)stack, function);
}

static void small_number(size_t size, long number)
{
    (void)size;
    take((void *)number, function);
}

static void mapping(size_t size, long unused)
{
    (void)unused;
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    take(p, function);
}

// Near blocks, where the library keeps what is its own. (A block may begin there: then not.)
static void start_of_unit(size_t size, long shift)
{
    for (int i = 0; i < 3; i++)
        keep(size);
    uintptr_t p = (uintptr_t)record->kept[2] >> shift << shift;
    for (int i = 0; i < 3; i++)
        if (((uintptr_t)record->kept[i] - p) % malloc_usable_size(record->kept[i]) == 0)
            record->impossible = 1;
    if (!record->impossible)
        take((void *)p, function);
}

static void wild(size_t size, long number)
{
    unsigned seed = (unsigned)(size + (size_t)number);
    uintptr_t p = (uintptr_t)chance(&seed) << 40 ^ (uintptr_t)chance(&seed) << 16 ^ chance(&seed);
    take((void *)(p & ~(uintptr_t)15), function);
}

static void sign(size_t size, long unused)
{
    (void)unused;
    take((void *)((uintptr_t)keep(size) | (uintptr_t)1 << 63), function);
}

int main(int argc, char **argv)
{
    static const struct misuse list[] = {{"inside", inside},
                                         {"at_the_end", at_the_end},
                                         {"before_it", before_it},
                                         {"stack", stack},
                                         {"globals", globals},
                                         {"code", code},
                                         {"small_number", small_number},
                                         {"mapping", mapping},
                                         {"start_of_unit", start_of_unit},
                                         {"wild", wild},
                                         {"sign", sign},
                                         {NULL, NULL}};
    MUST(argc > 1, "no case");
    if (!under_ebbtide())
        skip("only Ebbtide promises it");
    function = argc > 3 ? atol(argv[3]) : 0;
    // A free of what looks like a block may be found when the block would be handed out.
    const struct misuse *misuse = find_misuse(list, argv[1]);
    int near = misuse->run == inside || misuse->run == at_the_end || misuse->run == before_it ||
               misuse->run == start_of_unit;
    try_misuse(misuse, sizes, argc > 2 ? atol(argv[2]) : 0, !near || function != 0);
    return pass("all were found");
}
