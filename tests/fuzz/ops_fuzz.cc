// SPDX-License-Identifier: MIT OR Apache-2.0
// Bytes become operations on 64 slots. Every block carries a pattern, so lost contents, an overlap
// or a double hand-out is found when a slot is next touched. A finding traps.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ebbtide.h"

namespace {

constexpr std::size_t slot_count = 64;
constexpr std::size_t live_limit = std::size_t{256} << 20;

struct Slot {
    unsigned char *data;
    std::size_t bytes;
    unsigned char seed;
};

class Input {
public:
    Input(const std::uint8_t *data, std::size_t size) : data_(data), size_(size) {}
    bool done() const { return at_ >= size_; }
    std::uint8_t byte() { return done() ? 0 : data_[at_++]; }
    // One byte chooses the magnitude, two the place in it: every class and large spans are in
    // reach.
    std::size_t bytes()
    {
        const unsigned shift = byte() % 24;
        const std::size_t low = byte();
        const std::size_t high = byte();
        return ((low | (high << 8)) << shift) >> 16;
    }

private:
    const std::uint8_t *data_;
    std::size_t size_;
    std::size_t at_ = 0;
};

void require(bool condition)
{
    if (!condition)
        __builtin_trap();
}

// Dense in small blocks; in large ones both ends and one byte per page.
template <typename Visit> void for_each_marked(std::size_t bytes, Visit visit)
{
    for (std::size_t i = 0; i < bytes; i += i < 512 || i + 64 >= bytes ? 1 : 61)
        visit(i);
}

unsigned char mark_at(std::size_t index, unsigned char seed)
{
    return static_cast<unsigned char>((index * 31 + (index >> 7) + seed) | 1);
}

class Heap {
public:
    ~Heap()
    {
        for (Slot &slot : slots_)
            drop(slot);
    }
    Slot &slot(std::size_t index) { return slots_[index % slot_count]; }

    void admit(Slot &slot, void *data, std::size_t bytes, std::size_t alignment)
    {
        require(data != nullptr);
        require(reinterpret_cast<std::uintptr_t>(data) % alignment == 0);
        require(ebb_malloc_usable_size(data) >= bytes);
        slot = {static_cast<unsigned char *>(data), bytes, ++seed_};
        live_bytes_ += bytes;
        for_each_marked(bytes, [&](std::size_t i) { slot.data[i] = mark_at(i, slot.seed); });
    }

    void check(const Slot &slot, std::size_t bytes)
    {
        for_each_marked(slot.bytes, [&](std::size_t i) {
            require(i >= bytes || slot.data[i] == mark_at(i, slot.seed));
        });
    }

    void drop(Slot &slot)
    {
        if (slot.data == nullptr)
            return;
        check(slot, slot.bytes);
        live_bytes_ -= slot.bytes;
        ebb_free(slot.data);
        slot = {};
    }

    void resize(Slot &slot, std::size_t bytes)
    {
        if (slot.data != nullptr && bytes == 0)
            return drop(slot);
        check(slot, slot.bytes);
        const Slot old = slot;
        auto *data = static_cast<unsigned char *>(ebb_realloc(old.data, bytes));
        require(data != nullptr);
        slot.data = data;
        check(slot, bytes < old.bytes ? bytes : old.bytes);
        live_bytes_ -= old.bytes;
        admit(slot, data, bytes, 16);
    }

    bool full() const { return live_bytes_ > live_limit; }

private:
    Slot slots_[slot_count] = {};
    std::size_t live_bytes_ = 0;
    unsigned char seed_ = 0;
};

void allocate_zeroed(Heap &heap, Slot &slot, std::size_t bytes)
{
    auto *data = static_cast<unsigned char *>(ebb_calloc(bytes, 1));
    for (std::size_t i = 0; data != nullptr && i < bytes; i++)
        require(data[i] == 0);
    heap.admit(slot, data, bytes, 16);
}

void allocate_aligned(Heap &heap, Slot &slot, std::size_t bytes, unsigned shift)
{
    const std::size_t alignment = std::size_t{16} << shift % 17;
    heap.admit(slot, ebb_aligned_alloc(alignment, bytes), bytes, alignment);
}

// Sizes that must be refused, and leave the block and the heap as they were.
void ask_too_much(Heap &heap, const Slot &slot, std::size_t less)
{
    errno = 0;
    require(ebb_malloc(SIZE_MAX - less) == nullptr && errno == ENOMEM);
    require(ebb_calloc(SIZE_MAX / 2, 3) == nullptr);
    require(ebb_realloc(slot.data, SIZE_MAX - less) == nullptr);
    heap.check(slot, slot.bytes);
}

void step(Heap &heap, Input &input)
{
    const std::uint8_t operation = input.byte();
    Slot &slot = heap.slot(input.byte());
    const std::size_t bytes = input.bytes();
    if (operation % 8 < 5 && operation % 8 != 3)
        heap.drop(slot);
    if (heap.full())
        return heap.drop(slot);
    switch (operation % 8) {
    case 0:
    case 1:
        return heap.admit(slot, ebb_malloc(bytes), bytes, 16);
    case 2:
        return allocate_zeroed(heap, slot, bytes);
    case 3:
    case 5:
        return heap.resize(slot, bytes);
    case 4:
        return allocate_aligned(heap, slot, bytes, operation / 8);
    case 6:
        return ask_too_much(heap, slot, bytes);
    default:
        return heap.drop(slot);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    Heap heap;
    Input input(data, size);
    while (!input.done())
        step(heap, input);
    return 0;
}
