// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on regions: what they hold, how they end, what is current.
#pragma once

#include "ops_heap.h"

namespace random_test {

template <typename Match> bool any_of_tree(const Region *region, Match match)
{
    return match(*region) || std::any_of(region->children.begin(), region->children.end(),
                                         [&](const Region *c) { return any_of_tree(c, match); });
}

inline Region *pick_region(Worker &w, std::size_t number)
{
    const std::size_t own = w.regions.size(), all = own + (w.run.config.threads() ? 2 : 0);
    if (all == 0)
        return nullptr;
    Region *const region =
        number % all < own ? w.regions[number % all] : w.run.shared[number % all - own];
    return region->handle != nullptr ? region : nullptr;
}

inline const char *const labels[] = {nullptr, "random a", "random b",
                                     "random label of 31 letters or more"};

inline Region *new_region(Run &run)
{
    const std::lock_guard lock(run.mutex);
    run.regions.push_back(std::make_unique<Region>());
    run.regions.back()->id = run.next_region++;
    return run.regions.back().get();
}

inline void op_open(Worker &w, const Record &r)
{
    if (w.regions.size() >= w.run.config.max_regions)
        return;
    static constexpr std::size_t softs[] = {0, 0, 0, 65536, 262144, 1 << 20};
    static constexpr std::size_t hards[] = {0, 0, 0, 0, 0, 32768, 131072, 1 << 20, 4 << 20};
    Region *parent =
        r.x() % 3 == 0 && !w.regions.empty() ? w.regions[r.pick() % w.regions.size()] : nullptr;
    const ebb_region_options options = {labels[r.y() % 4], parent ? parent->handle : nullptr,
                                        softs[r.at[3] % std::size(softs)],
                                        hards[r.at[4] % std::size(hards)], r.at[5] % 4 == 0};
    const bool plain = r.at[5] % 8 == 7;
    errno = 0;
    ebb_region *const handle = ebb_region_open(plain ? nullptr : &options);
    if (!plain && parent != nullptr && parent->closed) {
        RANDOM_CHECK(handle == nullptr && errno == EINVAL, "%p, errno %d",
                     static_cast<void *>(handle), errno);
        return;
    }
    if (handle == nullptr)
        return expect_refused(w, nullptr, 0);
    Region *const region = new_region(w.run);
    region->handle = handle;
    if (!plain) {
        region->closes = options.closes != 0;
        region->hard_limit = options.hard_limit;
        region->parent = parent;
        if (parent != nullptr)
            parent->children.push_back(region);
    }
    region->label = plain || options.label == nullptr ? "region" : options.label;
    region->label.resize(std::min<std::size_t>(region->label.size(), EBB_LABEL_BYTES - 1));
    RANDOM_CHECK(region->label == ebb_region_label(handle), "label %s", ebb_region_label(handle));
    w.regions.push_back(region);
}

inline void op_region_alloc(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr)
        return;
    const std::size_t size = r.size(w.run.config.profile);
    errno = 0;
    admit(w, ebb_region_alloc(region->handle, size), size, 16, region);
}

inline void op_region_calloc(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr)
        return;
    const std::size_t size = r.size(w.run.config.profile), count = 1 + r.x() % 3;
    errno = 0;
    void *const p = ebb_region_calloc(region->handle, count, size);
    check_zero(p, count * size);
    admit(w, p, count * size, 16, region);
}

inline void op_region_aligned(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr)
        return;
    const std::size_t size = r.size(w.run.config.profile), align = std::size_t{1} << r.x() % 18;
    errno = 0;
    admit(w, ebb_region_aligned_alloc(region->handle, align, size), size, align, region);
    errno = 0;
    RANDOM_CHECK(ebb_region_aligned_alloc(region->handle, 48, size) == nullptr && errno == EINVAL,
                 "align 48");
    errno = 0;
    RANDOM_CHECK(ebb_region_alloc(region->handle, SIZE_MAX - r.number()) == nullptr &&
                     errno == ENOMEM,
                 "a size above PTRDIFF_MAX");
}

inline void op_region_realloc(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    Block *const block = w.model.pick(r.x());
    if (region == nullptr || block == nullptr)
        return;
    const std::size_t size = r.y() % 8 == 0 ? block->size + 16 : r.size(w.run.config.profile);
    Model::check(*block);
    Model::Owned old = w.model.remove(block);
    errno = 0;
    void *const p = ebb_region_realloc(region->handle, old->at, size);
    if (size == 0) {
        RANDOM_CHECK(p == nullptr, "realloc to 0 gave %p", p);
        return;
    }
    if (p != old->at || old->region == region || region->closes || region->closed ||
        region->must_close) // it may have been handed over and back
        return settle(w, std::move(old), p, size, region);
    fail("expected the block %p to move to region %u from region %u", p, region->id,
         id_of(old->region));
}

// The newest block, most of the time: it grows in place.
inline void op_grow(Worker &w, const Record &r)
{
    Block *const block = w.model.pick(w.model.count() - 1);
    if (block == nullptr || block->region == nullptr)
        return;
    Region *const region = block->region;
    const std::size_t size = block->size + r.number() % 5000 + 1;
    Model::check(*block);
    Model::Owned old = w.model.remove(block);
    errno = 0;
    void *const p = ebb_region_realloc(region->handle, old->at, size);
    settle(w, std::move(old), p, size, region);
}

inline void op_promote(Worker &w, const Record &r)
{
    Region *const to = r.y() % 2 == 0 ? nullptr : pick_region(w, r.pick());
    const Block *const block = w.model.pick(r.x());
    if (block == nullptr)
        return;
    errno = 0;
    void *const p = ebb_region_promote(block->at, to ? to->handle : nullptr);
    if (p != nullptr)
        check_pattern(p, block->usable, block->usable, block->serial, "the copy");
    if (p != nullptr && to == nullptr)
        RANDOM_CHECK(ebb_region_of(p) == nullptr, "%p promoted to the heap", p);
    admit(w, p, block->usable, 16, to);
}

// ---- cleanups ------------------------------------------------------------------------------------

inline void run_note(void *argument)
{
    Note *const note = static_cast<Note *>(argument);
    Region *const region = note->region;
    RANDOM_CHECK(!region->notes.empty() && region->notes.back() == note,
                 "cleanups of region %u, newest first", region->id);
    region->notes.pop_back();
    if (note->block != nullptr) {
        check_pattern(note->block, 200, 200, note->serial, "a cleanup's block");
        ebb_free(note->block);
    }
    if (region->parent != nullptr && !region->parent->closed)
        ebb_free(ebb_region_alloc(region->parent->handle, 300));
}

inline void op_cleanup(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr || region->shared)
        return;
    const std::uint32_t serial = next_serial++;
    Note *note;
    {
        const std::lock_guard lock(w.run.mutex);
        w.run.notes.push_back(std::make_unique<Note>(Note{region, nullptr, serial}));
        note = w.run.notes.back().get();
    }
    if (r.x() % 2 == 0 && !region->closed)
        note->block = ebb_region_alloc(region->handle, 200);
    if (note->block != nullptr)
        write_pattern(note->block, 200, serial);
    errno = 0;
    const int result = ebb_region_cleanup(region->handle, run_note, note);
    if (region->closed) {
        RANDOM_CHECK(result == -1 && errno == EINVAL, "%d, errno %d", result, errno);
    } else if (result != 0) {
        expect_refused(w, region, 0);
        ebb_free(note->block);
    } else {
        region->notes.push_back(note);
    }
}

// ---- ends ----------------------------------------------------------------------------------------

// Their blocks are gone, but while this thread is pinned they may still be read.
inline void forget_blocks(Worker &w, Region *region)
{
    for (Region *child : region->children)
        forget_blocks(w, child);
    w.model.for_each([=](const Block &b) { return b.region == region; },
                     [&](Block *b) {
                         Model::check(*b);
                         if (w.clocks[0].depth > 0) {
                             b->guard = &w.clocks[0];
                             w.model.make_ghost(b, Block::State::pinned);
                         } else {
                             w.model.remove(b);
                         }
                     });
}

inline void keep_blocks(Worker &w, Region *region)
{
    w.model.for_each([=](const Block &b) { return b.region == region; },
                     [](Block *b) { b->region = nullptr; });
}

// Mostly the last of them: thousands are ended in a row.
inline void remove_region(Worker &w, const Region *region)
{
    if (!w.regions.empty() && w.regions.back() == region)
        w.regions.pop_back();
    else
        std::erase(w.regions, region);
}

inline void mark_ended(Worker &w, Region *region, bool by_close)
{
    while (!region->children.empty())
        mark_ended(w, region->children.back(), by_close);
    RANDOM_CHECK(region->notes.empty(), "%zu cleanups of region %u did not run",
                 region->notes.size(), region->id);
    if (by_close)
        keep_blocks(w, region);
    region->closed = true;
    if (region->parent != nullptr)
        std::erase(region->parent->children, region);
    if (region->entered == 0) {
        region->gone = true;
        remove_region(w, region);
    }
}

// A region that was closed while it is current may still take memory from those above it.
inline bool is_lent(const Worker &w, const Region *region)
{
    for (const Scope &scope : w.scopes) {
        const Region *const inner = scope.region;
        const bool takes = inner != nullptr && inner->closed;
        for (const Region *up = takes ? inner->parent : nullptr; up != nullptr; up = up->parent)
            if (up == region)
                return true;
    }
    return false;
}

inline bool may_release(const Worker &w, const Region *region)
{
    return !region->closed && !any_of_tree(region, [&](const Region &one) {
        return one.closes || one.must_close || one.shared || one.entered > 0 || is_lent(w, &one);
    });
}

inline void op_release(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr || !may_release(w, region))
        return;
    forget_blocks(w, region);
    ebb_region_release(region->handle);
    mark_ended(w, region, false);
    ebb_region_release(nullptr);
}

inline void op_reset(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr || !may_release(w, region))
        return;
    forget_blocks(w, region);
    ebb_region_reset(region->handle);
    while (!region->children.empty())
        mark_ended(w, region->children.back(), false);
    RANDOM_CHECK(region->notes.empty(), "%zu cleanups of region %u", region->notes.size(),
                 region->id);
}

inline void close_region(Worker &w, Region *region)
{
    ebb_region_close(region->handle);
    mark_ended(w, region, true);
}

inline void op_close(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr || region->closed || region->shared)
        return;
    close_region(w, region);
    ebb_region_close(nullptr);
}

inline void op_region_of(Worker &w, const Record &r)
{
    const Block *const block = w.model.pick(r.pick());
    if (block != nullptr && block->region != nullptr)
        find_home(block->at, block->region);
    RANDOM_CHECK(ebb_region_of(nullptr) == nullptr && ebb_region_of(&block) == nullptr, "no block");
    RANDOM_CHECK(ebb_region_of(w.run.regions.data()) == nullptr, "another allocator's block");
}

inline void op_region_stats(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr)
        return;
    ebb_region_stats now;
    ebb_region_stats_get(region->handle, &now);
    RANDOM_CHECK(now.id != 0 && now.held_bytes <= now.peak_bytes, "held %zu, peak %zu",
                 now.held_bytes, now.peak_bytes);
    RANDOM_CHECK(region->hard_limit == 0 || now.held_bytes <= region->hard_limit,
                 "region %u holds %zu of %zu", region->id, now.held_bytes, region->hard_limit);
    std::size_t live = 0;
    w.model.for_each([=](const Block &b) { return b.region == region; }, [&](Block *) { live++; });
    RANDOM_CHECK(region->closes || region->closed || now.live_blocks >= live,
                 "region %u has %zu, not %zu blocks", region->id, now.live_blocks, live);
}

} // namespace random_test
