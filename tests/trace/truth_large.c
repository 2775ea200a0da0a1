// SPDX-License-Identifier: MIT OR Apache-2.0
// Large blocks of which the program touches a part, also after they have grown. They are alive together.
#include "truth.h"

enum { BLOCKS = 24 };

#define MIB ((size_t)1 << 20)

static struct item items[BLOCKS * 3];

static size_t touch(const struct item *item, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 4096) {
        item->p[at] = 1;
    }
    return bytes;
}

int main(void)
{
    size_t touched = 0;
    for (int i = 0; i < BLOCKS; i++) {
        items[i] = make(16 * MIB);
        touched += touch(&items[i], (size_t)i * MIB / 16);
        items[BLOCKS + i] = make_zero(16, MIB);
        touched += touch(&items[BLOCKS + i], MIB / 2);
        items[2 * BLOCKS + i] = resize(make(2 * MIB), 3 * MIB); // touched only when it has grown
        touched += touch(&items[2 * BLOCKS + i], 2 * MIB);
    }
    for (int i = 0; i < 3 * BLOCKS; i += 2) { // what is touched of the others is seen at the exit
        items[i].maker = items[i].p[0];
        end(items[i]);
    }
    char line[64];
    int length = snprintf(line, sizeof line, "{\"touched_bytes\": %zu}\n", touched);
    MUST(write(1, line, (size_t)length) == length);
    return 0;
}
