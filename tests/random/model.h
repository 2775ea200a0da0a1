// SPDX-License-Identifier: MIT OR Apache-2.0
// What one thread knows of its blocks: an interval map finds a block that lies over another at once,
// patterns find what was written over. A block that was retired stays in the map as a ghost while
// something that the thread knows of holds it back.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ebbtide/region.h"
#include "report.h"

namespace random_test {

inline std::atomic<std::uint32_t> next_serial{1};

inline std::uint8_t mark(std::uint32_t serial, std::size_t index)
{
    const std::size_t word = (index >> 3) * 0x9e3779b97f4a7c15U + serial * std::size_t{0x85ebca6b};
    return static_cast<std::uint8_t>((word ^ word >> 29) >> (index & 7) * 8 | 1);
}

// Small blocks whole; of large ones both ends and one byte a page, of very large ones fewer.
template <typename Visit> void for_each_mark(std::size_t size, Visit visit)
{
    constexpr std::size_t whole = 600, end = 64;
    const std::size_t stride = size > (std::size_t{4} << 20) ? 65536 : 4096;
    if (size <= whole) {
        for (std::size_t i = 0; i < size; i++)
            visit(i);
        return;
    }
    for (std::size_t i = 0; i < end; i++)
        visit(i);
    for (std::size_t i = stride; i < size - end; i += stride)
        visit(i);
    for (std::size_t i = size - end; i < size; i++)
        visit(i);
}

inline void write_pattern(void *at, std::size_t size, std::uint32_t serial)
{
    auto *bytes = static_cast<unsigned char *>(at);
    for_each_mark(size, [=](std::size_t i) { bytes[i] = mark(serial, i); });
}

// `kept` of the `size` bytes are still what they were.
inline void check_pattern(const void *at, std::size_t size, std::size_t kept, std::uint32_t serial,
                          const char *what)
{
    const auto *bytes = static_cast<const unsigned char *>(at);
    for_each_mark(size, [=](std::size_t i) {
        if (i < kept && bytes[i] != mark(serial, i)) [[unlikely]]
            fail("expected byte %zu of %s %p (%zu bytes, serial %u) to be %#x: it is %#x", i, what,
                 at, size, serial, mark(serial, i), bytes[i]);
    });
}

struct Region {
    ebb_region *handle = nullptr;
    unsigned id = 0;
    std::string label;
    Region *parent = nullptr;
    std::vector<Region *> children;
    bool closes = false;     // asked for at the opening
    bool must_close = false; // a block of it or of a child went to another thread
    bool closed = false;
    bool gone = false;   // the handle has ended
    bool shared = false; // by all threads of the run; ended by the last
    std::size_t hard_limit = 0;
    unsigned entered = 0; // scopes of the thread that has it
    std::vector<struct Note *> notes;
};

struct Doom; // reclaim.h: a destructor that waits

struct Block {
    unsigned char *at;
    std::size_t size, usable;
    std::uint32_t serial;
    Region *region; // nullptr: heap, domain, or a region that was closed
    std::size_t index;
    enum class State { live, pinned, guarded, doomed } state;
    Doom *doom;
    const void *guard;   // the hazard pointer
    unsigned origin = 0; // the region that it was in before it was retired
    static constexpr const char *state_names[] = {
        "live", "held back by a pin", "under a hazard pointer", "waiting for its destructor"};
    std::size_t end() const { return reinterpret_cast<std::uintptr_t>(at) + (usable ? usable : 1); }
};

bool doom_is_over(const Doom *doom); // and frees no memory: the block's place may be used again

class Model {
public:
    using Owned = std::unique_ptr<Block>;

    Block *admit(void *p, std::size_t size, std::size_t align, Region *region)
    {
        auto *at = static_cast<unsigned char *>(p);
        RANDOM_CHECK(reinterpret_cast<std::uintptr_t>(p) % align == 0, "%p, %zu bytes, align %zu",
                     p, size, align);
        const std::size_t usable = ebb_malloc_usable_size(p);
        RANDOM_CHECK(usable >= size, "%p, usable %zu, asked %zu", p, usable, size);
        const Block fresh = {at,      size,    usable, next_serial++, region, 0, Block::State::live,
                             nullptr, nullptr, 0};
        Block *block = insert(std::make_unique<Block>(fresh));
        write_pattern(at, usable, block->serial);
        return block;
    }

    Block *insert(Owned owned)
    {
        Block *block = owned.get();
        require_apart(*block);
        if (block->state == Block::State::live) {
            block->index = live_.size();
            live_.push_back(block);
        }
        live_bytes_ += block->usable;
        by_address_[reinterpret_cast<std::uintptr_t>(block->at)] = std::move(owned);
        return block;
    }

    Owned remove(Block *block)
    {
        unlist(block);
        live_bytes_ -= block->usable;
        const auto found = by_address_.find(reinterpret_cast<std::uintptr_t>(block->at));
        Owned owned = std::move(found->second);
        by_address_.erase(found);
        return owned;
    }

    // It stays in the map, and no operation chooses it.
    void make_ghost(Block *block, Block::State state)
    {
        unlist(block);
        block->state = state;
        block->origin = block->region == nullptr ? 0 : block->region->id;
        block->region = nullptr;
    }

    static void check(const Block &block)
    {
        check_pattern(block.at, block.usable, block.usable, block.serial, "the block");
        if (block.state == Block::State::live) {
            const std::size_t now = ebb_malloc_usable_size(block.at);
            RANDOM_CHECK(now == block.usable, "%p, was %zu, is %zu", block.at, block.usable, now);
        }
    }

    template <typename Match, typename Visit> void for_each(Match match, Visit visit)
    {
        std::vector<Block *> matching;
        for (const auto &entry : by_address_)
            if (match(*entry.second))
                matching.push_back(entry.second.get());
        for (Block *block : matching)
            visit(block);
    }

    void check_all()
    {
        for (const auto &entry : by_address_)
            if (entry.second->state != Block::State::doomed)
                check(*entry.second);
    }

    Block *pick(std::size_t number)
    {
        return live_.empty() ? nullptr : live_[number % live_.size()];
    }
    std::size_t count() const { return live_.size(); }
    std::size_t bytes() const { return live_bytes_; }
    void absorb(Model &other)
    {
        for (auto &entry : other.by_address_)
            if (entry.second->doom == nullptr || !doom_is_over(entry.second->doom))
                insert(std::move(entry.second));
        other.by_address_.clear();
        other.live_.clear();
        other.live_bytes_ = 0;
    }

private:
    void unlist(Block *block)
    {
        if (block->state != Block::State::live)
            return;
        live_.back()->index = block->index;
        live_[block->index] = live_.back();
        live_.pop_back();
    }

    void require_apart(const Block &fresh)
    {
        for (Block *other = overlapping(fresh); other != nullptr; other = overlapping(fresh)) {
            if (other->state == Block::State::doomed && doom_is_over(other->doom)) {
                remove(other);
                continue;
            }
            fail("expected %p (%zu bytes, usable %zu, region %u) to lie apart from %p (%zu bytes, "
                 "usable %zu, region %u, %s)",
                 static_cast<void *>(fresh.at), fresh.size, fresh.usable,
                 fresh.region ? fresh.region->id : 0, static_cast<void *>(other->at), other->size,
                 other->usable, other->region ? other->region->id : other->origin,
                 Block::state_names[static_cast<unsigned>(other->state)]);
        }
    }

    Block *overlapping(const Block &fresh)
    {
        auto next = by_address_.lower_bound(reinterpret_cast<std::uintptr_t>(fresh.at));
        if (next != by_address_.end() && next->first < fresh.end())
            return next->second.get();
        if (next == by_address_.begin())
            return nullptr;
        Block *before = std::prev(next)->second.get();
        return before->end() > reinterpret_cast<std::uintptr_t>(fresh.at) ? before : nullptr;
    }

    std::map<std::uintptr_t, Owned> by_address_;
    std::vector<Block *> live_;
    std::size_t live_bytes_ = 0;
};

} // namespace random_test
