// SPDX-License-Identifier: MIT OR Apache-2.0
// The magazines of the calling thread's heap, in a process of one thread whose clock stands.
#ifndef UNIT_MAGAZINES_H
#define UNIT_MAGAZINES_H

#include <algorithm>
#include <bit>

#include "support/engine.h"

namespace unit {

struct Heap : Fake {
    ebbi_heap *heap = nullptr;

    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(1000);
        fake_os_threaded(false);
        heap = ebbi_heap_get();
        ASSERT_NE(nullptr, heap);
    }

    static ebbi_owner *owner_of(ebbi_heap *heap, unsigned class_number)
    {
        ebbi_owner *owner = ebbi_lock_owner(heap, class_number);
        ebbi_unlock_owner(heap, owner);
        return owner;
    }

    ebbi_magazine &magazine(std::size_t bytes) { return heap->magazines[ebbi_class_for(bytes)]; }

    // Both ways, again and again.
    static void fill_and_empty(std::size_t bytes, int count)
    {
        std::vector<void *> blocks;
        for (int round = 0; round < 40; round++) {
            for (int i = 0; i < count; i++)
                blocks.push_back(ebb_malloc(bytes));
            for (void *p : blocks)
                ebb_free(p);
            blocks.clear();
        }
    }

    // Of EBB_CACHE, before a magazine has grown.
    static void set_cache(const char *bytes)
    {
        setenv("EBB_CACHE", bytes, 1);
        ebbi_options_read();
    }

    // Of a class that has room for it.
    static std::size_t first_slots(const ebbi_class &c)
    {
        const std::size_t fitting = std::bit_floor(std::max<std::size_t>(8 * KiB / c.size, 2));
        return std::min<std::size_t>({c.slots, 16, fitting});
    }

    std::size_t in_magazine(std::size_t bytes)
    {
        unsigned c = ebbi_class_for(bytes);
        void **top = heap->fast.top[ebbi_class_bin(c, heap->lane)];
        return static_cast<std::size_t>(top - heap->magazines[c].base) - 1;
    }
};

} // namespace unit

#endif
