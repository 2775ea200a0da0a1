// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that asks tcmalloc where it is there, by weak names, as many do. Prints what it is told of a burst.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int MallocExtension_GetNumericProperty(const char *property, size_t *value) __attribute__((weak));
void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));

static size_t get(const char *property)
{
    size_t value;
    return MallocExtension_GetNumericProperty(property, &value) ? value : 0;
}

int main(void)
{
    if (MallocExtension_GetNumericProperty == NULL) {
        puts("no tcmalloc");
        return 0;
    }
    const size_t burst = 64 << 20;
    size_t before = get("generic.current_allocated_bytes");
    void *p = malloc(burst);
    memset(p, 1, burst);
    size_t during = get("generic.current_allocated_bytes"),
           held = get("generic.total_physical_bytes");
    free(p);
    MallocExtension_ReleaseFreeMemory();
    size_t after = get("generic.current_allocated_bytes");
    printf("%s %s %s\n", during - before >= burst ? "allocated" : "not seen",
           held >= burst ? "resident" : "not there",
           after < during && get("generic.total_physical_bytes") < burst ? "released" : "kept");
    return 0;
}
