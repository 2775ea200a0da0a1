// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that load an extension with a copy of the library in it, use it, close it and end: what they call at their
// end must still be there. Its own helper runs on.
#include "hostile.h"

static void *uses(void *unused)
{
    for (int round = 0; round < 20; round++) {
        void *extension = dlopen(EXTENSION, RTLD_NOW | RTLD_LOCAL);
        MUST(extension != NULL, "%s", dlerror());
        int (*works)(void) = (int (*)(void))dlsym(extension, "extension_works");
        MUST(works != NULL && works(), "the extension does not work");
        dlclose(extension);
    }
    return unused;
}

int main(void)
{
    for (int round = 0; round < 10; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = start(uses, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    uses(NULL);
    nap_ms(700);
    return pass("closed, and still there");
}
