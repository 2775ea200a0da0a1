// SPDX-License-Identifier: MIT OR Apache-2.0
// The accounts of the heap for C++17: ebb::snapshot, and the difference of two of them. A thin cover of
// ebb_snapshot_get in ebbtide.h, which says what is counted and what it costs. Nothing here allocates or throws.
#ifndef EBBTIDE_SNAPSHOT_HPP
#define EBBTIDE_SNAPSHOT_HPP

#include <chrono>
#include <cstddef>

#include <ebbtide.h>

namespace ebb {

// The accounts as they were when the object was made: a value of 4 KB. The totals are the C struct's, by `->`; what it
// iterates over are the rows of the size classes, the smallest first.
class snapshot {
public:
    using value_type = ebb_class_stats;
    using const_iterator = const ebb_class_stats *;

    snapshot() noexcept { ebb_snapshot_get(&taken_); }

    const ebb_snapshot *operator->() const noexcept { return &taken_; }
    const ebb_snapshot &operator*() const noexcept { return taken_; }

    const_iterator begin() const noexcept { return taken_.classes; }
    const_iterator end() const noexcept { return taken_.classes + taken_.class_count; }
    std::size_t size() const noexcept { return taken_.class_count; }

    // The row of the smallest blocks that hold so many bytes; end() where those of no class do.
    const_iterator find(std::size_t bytes) const noexcept
    {
        const_iterator row = begin();
        while (row != end() && row->block_bytes < bytes)
            ++row;
        return row;
    }

private:
    ebb_snapshot taken_;
};

// What has changed in one size class: numbers, negative where there are fewer now.
struct class_difference {
    std::size_t block_bytes;
    std::ptrdiff_t slabs, live_blocks, cached_blocks, free_blocks;

    std::ptrdiff_t live_bytes() const noexcept
    {
        return live_blocks * static_cast<std::ptrdiff_t>(block_bytes);
    }
};

// What it iterates over are the classes in which anything has changed, the smallest first.
class snapshot_difference {
public:
    using value_type = class_difference;
    using const_iterator = const class_difference *;

    const_iterator begin() const noexcept { return rows_; }
    const_iterator end() const noexcept { return rows_ + count_; }
    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }
    // From the one snapshot to the other.
    std::chrono::milliseconds time() const noexcept { return time_; }

private:
    friend snapshot_difference operator-(const snapshot &later, const snapshot &earlier) noexcept;
    snapshot_difference() noexcept = default; // of rows those counted alone have values

    class_difference rows_[EBB_SNAPSHOT_CLASSES];
    std::size_t count_ = 0;
    std::chrono::milliseconds time_{};
};

// Of two snapshots of one process.
inline snapshot_difference operator-(const snapshot &later, const snapshot &earlier) noexcept
{
    const auto less = [](std::size_t now, std::size_t then) {
        return static_cast<std::ptrdiff_t>(now - then);
    };
    snapshot_difference found;
    const ebb_class_stats *before = earlier.begin();
    for (const ebb_class_stats &now : later) {
        const class_difference row = {now.block_bytes, less(now.slabs, before->slabs),
                                      less(now.live_blocks, before->live_blocks),
                                      less(now.cached_blocks, before->cached_blocks),
                                      less(now.free_blocks, before->free_blocks)};
        ++before;
        if (row.slabs != 0 || row.live_blocks != 0 || row.cached_blocks != 0 ||
            row.free_blocks != 0)
            found.rows_[found.count_++] = row;
    }
    found.time_ = std::chrono::milliseconds(
        static_cast<std::chrono::milliseconds::rep>(later->taken_ms - earlier->taken_ms));
    return found;
}

} // namespace ebb

#endif
