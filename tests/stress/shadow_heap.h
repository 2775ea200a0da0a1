// SPDX-License-Identifier: MIT OR Apache-2.0
// A second account of every live block. Each operation checks contents, alignment and, where the
// account holds addresses, that no two live blocks overlap (a double hand-out overlaps in full).
// One thread at a time uses a ShadowHeap; a Territory is shared by all.
#pragma once

#include <map>
#include <mutex>

namespace shadow {

using support::KiB;
using support::MiB;

// Feeds std::map from mmap, so that the account never disturbs the allocator under test.
template <typename T> class MapAllocator {
public:
    using value_type = T;
    MapAllocator() = default;
    template <typename U> explicit MapAllocator(const MapAllocator<U> &) {}
    T *allocate(std::size_t)
    {
        if (free_list == nullptr)
            refill();
        Node *node = free_list;
        free_list = node->next;
        return reinterpret_cast<T *>(node);
    }
    void deallocate(T *item, std::size_t)
    {
        Node *node = reinterpret_cast<Node *>(item);
        node->next = free_list;
        free_list = node;
    }
    bool operator==(const MapAllocator &) const { return true; }
    bool operator!=(const MapAllocator &) const { return false; }

private:
    union Node {
        Node *next;
        alignas(T) unsigned char item[sizeof(T)];
    };
    static void refill()
    {
        void *range =
            mmap(nullptr, MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (range == MAP_FAILED)
            std::abort();
        Node *nodes = static_cast<Node *>(range);
        for (std::size_t i = 0; i < MiB / sizeof(Node); i++) {
            nodes[i].next = free_list;
            free_list = &nodes[i];
        }
    }
    static inline Node *free_list = nullptr;
};

// The address ranges of all live blocks. Lock order: none, its lock is a leaf.
class Territory {
public:
    // Returns false when the range overlaps a live one.
    bool claim(const void *block, std::size_t bytes)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        const std::uintptr_t from = support::address(block);
        const std::uintptr_t to = from + (bytes == 0 ? 1 : bytes);
        const auto next = ranges_.lower_bound(from);
        if (next != ranges_.end() && next->first < to)
            return false;
        if (next != ranges_.begin() && std::prev(next)->second > from)
            return false;
        ranges_.emplace_hint(next, from, to);
        return true;
    }
    bool yield(const void *block)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        return ranges_.erase(support::address(block)) == 1;
    }

private:
    using Entry = std::pair<const std::uintptr_t, std::uintptr_t>;
    std::mutex lock_;
    std::map<std::uintptr_t, std::uintptr_t, std::less<std::uintptr_t>, MapAllocator<Entry>>
        ranges_;
};

struct Block {
    unsigned char *data;
    std::size_t bytes;
    unsigned seed;
};

// Small blocks are filled in full, large ones at both ends and once per page.
template <typename Visit> void for_each_marked_byte(std::size_t bytes, Visit visit)
{
    const std::size_t edge = bytes < 8 * KiB ? bytes : 256;
    for (std::size_t i = 0; i < edge; i++)
        visit(i);
    for (std::size_t i = edge; i + edge < bytes; i += 4093)
        visit(i);
    for (std::size_t i = bytes > 2 * edge ? bytes - edge : edge; i < bytes; i++)
        visit(i);
}

inline void mark(const Block &block)
{
    for_each_marked_byte(
        block.bytes, [&](std::size_t i) { block.data[i] = support::pattern_byte(i, block.seed); });
}

inline bool is_marked(const Block &block, std::size_t bytes)
{
    bool right = true;
    for_each_marked_byte(block.bytes, [&](std::size_t i) {
        right = right && (i >= bytes || block.data[i] == support::pattern_byte(i, block.seed));
    });
    return right;
}

// Errors are counted and the first is kept: a thread cannot end its test by itself.
struct Errors {
    void add(const char *what, const Block &block)
    {
        if (count++ == 0) {
            first = what;
            first_bytes = block.bytes;
        }
    }
    void expect_none() const
    {
        EXPECT_EQ(count, 0U) << "first: " << first << " at a block of " << first_bytes << " bytes";
    }
    std::size_t count = 0;
    const char *first = "";
    std::size_t first_bytes = 0;
};

struct Mix {
    std::size_t largest;
    unsigned aligned_share;
    unsigned resize_share;
};

class ShadowHeap {
public:
    // territory may be null: then only contents tell of an overlap, and no lock slows the race.
    ShadowHeap(std::size_t slots, std::uint64_t seed, Mix mix, Territory *territory)
        : slots_(slots), random_(seed), mix_(mix), territory_(territory)
    {
    }
    ~ShadowHeap()
    {
        for (Block &block : slots_)
            drop(block);
    }

    void step()
    {
        Block &block = slots_[random_.below(slots_.size())];
        if (block.data == nullptr)
            block = create();
        else if (random_.below(100) < mix_.resize_share)
            resize(block);
        else
            drop(block);
    }

    Block create()
    {
        Block block = {nullptr, random_bytes(), static_cast<unsigned>(random_.next())};
        std::size_t alignment = 16;
        if (random_.below(100) < mix_.aligned_share) {
            alignment = std::size_t{1} << random_.between(4, 13);
            block.data =
                static_cast<unsigned char *>(api::allocate_aligned(alignment, block.bytes));
        } else if (random_.below(8) == 0) {
            block.data = static_cast<unsigned char *>(api::allocate_zeroed(1, block.bytes));
            check_zero(block);
        } else {
            block.data = static_cast<unsigned char *>(api::allocate(block.bytes));
        }
        admit(block, alignment);
        return block;
    }

    void drop(Block &block)
    {
        if (block.data == nullptr)
            return;
        if (!is_marked(block, block.bytes))
            errors_.add("contents changed", block);
        forget(block);
        api::release(block.data);
        block = {};
    }

    const Errors &errors() const { return errors_; }

private:
    void resize(Block &block)
    {
        const std::size_t bytes = random_bytes() + 1;
        const std::size_t kept = bytes < block.bytes ? bytes : block.bytes;
        forget(block);
        auto *data = static_cast<unsigned char *>(api::resize(block.data, bytes));
        if (data == nullptr) {
            errors_.add("realloc gave NULL", block);
            return;
        }
        block.data = data;
        if (!is_marked(block, kept))
            errors_.add("realloc lost contents", block);
        block.bytes = bytes;
        admit(block, 16);
    }

    void admit(Block &block, std::size_t alignment)
    {
        if (block.data == nullptr) {
            errors_.add("out of memory", block);
            return;
        }
        if (support::address(block.data) % alignment != 0)
            errors_.add("misaligned", block);
        if (api::usable_bytes(block.data) < block.bytes)
            errors_.add("usable size below the request", block);
        if (territory_ != nullptr && !territory_->claim(block.data, block.bytes))
            errors_.add("overlaps a live block", block);
        mark(block);
    }

    void forget(const Block &block)
    {
        if (territory_ != nullptr && !territory_->yield(block.data))
            errors_.add("was not in the account", block);
    }

    void check_zero(const Block &block)
    {
        if (block.data != nullptr && !support::all_zero(block.data, block.bytes))
            errors_.add("calloc gave dirty memory", block);
    }

    // Spread over magnitudes: most blocks are small, every class up to the largest is met.
    std::size_t random_bytes()
    {
        std::size_t limit = 16;
        while (limit < mix_.largest && random_.below(4) != 0)
            limit *= 2;
        return random_.below(limit < mix_.largest ? limit : mix_.largest);
    }

    support::MappedArray<Block> slots_;
    support::Random random_;
    Mix mix_;
    Territory *territory_;
    Errors errors_;
};

} // namespace shadow
