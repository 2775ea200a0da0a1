// SPDX-License-Identifier: MIT OR Apache-2.0
// Guarded allocations as a program may find them: by their usable size, which is what was asked for.
#pragma once

#include <vector>

#include <time.h>

#include "support.h"

#include "ebbtide.h"

namespace guarded {

// Before the library starts.
__attribute__((constructor(101))) inline void switch_on() { setenv("EBB_GUARD", "1000", 1); }

// The largest that there are.
inline std::size_t most()
{
    return 64 * support::KiB - 2 * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

inline bool is(const void *p, std::size_t bytes)
{
    const std::size_t page = 4096; // whatever it is here, it is a multiple of this
    return ebb_malloc_usable_size(p) == bytes &&
           (support::address(p) + (bytes + 15) / 16 * 16) % page == 0;
}

// One of that size, which is no block's: guards come where a magazine is empty, so more are asked for than any holds.
// Gives up after a minute: NULL.
inline char *make(std::size_t bytes, std::size_t align = 16)
{
    std::vector<void *> others;
    void *found = nullptr;
    for (int i = 0; i < 60000 && found == nullptr; i++) {
        for (int one = 0; one < 1100 && found == nullptr; one++) {
            void *p = ebb_aligned_alloc(align, bytes);
            if (ebb_malloc_usable_size(p) == bytes)
                found = p;
            else
                others.push_back(p);
        }
        for (void *p : others)
            ebb_free(p);
        others.clear();
        const timespec pause = {0, 1000000};
        if (found == nullptr)
            nanosleep(&pause, nullptr);
    }
    return static_cast<char *>(found);
}

} // namespace guarded
