// SPDX-License-Identifier: MIT OR Apache-2.0
// Random lives of regions against an account of every block: threads open, fill, reset, release and
// close regions that all of them use, and free and resize each other's blocks. The file that includes
// this one has chosen the form of the API before.
#pragma once

#include <shared_mutex>

#include "../api/region_support.h"
#include "shadow_heap.h"

namespace {

using regions::Worker;
using shadow::Block;
using shadow::Territory;
using support::KiB;
using support::MiB;

constexpr unsigned thread_count = 4;
constexpr std::size_t slot_count = 6;
constexpr std::size_t list_capacity = 300;

// Each run differs unless EBBTEST_SEED repeats one; a failure prints it.
std::uint64_t run_seed()
{
    static const std::uint64_t seed = [] {
        const char *text = std::getenv("EBBTEST_SEED");
        if (text != nullptr)
            return static_cast<std::uint64_t>(std::strtoull(text, nullptr, 0));
        timespec now = {};
        clock_gettime(CLOCK_REALTIME, &now);
        return support::mix(static_cast<std::uint64_t>(now.tv_sec) * 1000000007U +
                            static_cast<std::uint64_t>(now.tv_nsec));
    }();
    return seed;
}

// Blocks that one thread at a time may touch.
struct List {
    Block blocks[list_capacity];
    std::size_t count;
    bool is_full() const { return count == list_capacity; }
    Block remove(std::size_t index)
    {
        const Block block = blocks[index];
        blocks[index] = blocks[--count];
        return block;
    }
};

// A place for one region after the other. Users hold the lock shared and have a list each; who ends
// the region holds it alone.
struct Slot {
    std::shared_mutex lock;
    ebb_region *region = nullptr;
    List *lists = nullptr;
    std::size_t live() const
    {
        std::size_t sum = 0;
        for (unsigned id = 0; id < thread_count; id++)
            sum += lists[id].count;
        return sum;
    }
};

struct World {
    explicit World(Territory *shared_territory)
        : territory(shared_territory), lists(slot_count * thread_count)
    {
        for (std::size_t i = 0; i < slot_count; i++)
            slots[i].lists = &lists[i * thread_count];
    }
    Slot slots[slot_count];
    Territory *territory; // null: no lock that would hide a race
    support::MappedArray<List> lists;
};

class Actor {
public:
    Actor(World &world, unsigned id)
        : world_(world), id_(id), random_(run_seed() + id), orphans_(1), domain_(nullptr)
    {
        domain_ = ebb_domain_open("stress");
        ebb_domain_set_policy(domain_, EBB_DOMAIN_SCOPES, 3);
    }

    void step()
    {
        Slot &slot = world_.slots[random_.below(slot_count)];
        if (random_.below(150) == 0) {
            const std::unique_lock guard(slot.lock);
            end(slot);
            return;
        }
        {
            const std::shared_lock guard(slot.lock);
            if (slot.region != nullptr)
                use(slot);
        }
        if (orphans().count > list_capacity / 2)
            drop(orphans(), random_.below(orphans().count));
    }

    // The lists are verified, and where the region is bulk-freed they are forgotten.
    void end(Slot &slot)
    {
        const std::size_t way = random_.below(5);
        if (slot.region == nullptr) {
            slot.region = regions::open("stress region");
            return;
        }
        if (way == 4) { // the next frees come from other threads than the allocations
            swap_lists(slot);
            return;
        }
        check_statistics(slot);
        for (unsigned id = 0; id < thread_count; id++)
            settle(slot.lists[id], way == 0);
        if (way == 0)
            ebb_region_close(slot.region);
        else if (way == 1)
            ebb_region_release(slot.region);
        else
            ebb_region_reset(slot.region);
        if (way < 2)
            slot.region = nullptr;
    }

    // The last of its calls.
    const shadow::Errors &finish()
    {
        while (orphans().count > 0)
            drop(orphans(), 0);
        return errors_;
    }

private:
    List &orphans() { return orphans_[0]; }

    // What a close leaves lives on with this thread, as far as there is room; a release leaves nothing.
    void settle(List &list, bool lives_on)
    {
        while (list.count > 0) {
            if (!lives_on) {
                forget(list.remove(0));
            } else if (orphans().count > list_capacity / 2) {
                drop(list, 0);
            } else {
                orphans().blocks[orphans().count++] = list.remove(0);
            }
        }
    }

    void swap_lists(Slot &slot)
    {
        std::swap(slot.lists[random_.below(thread_count)], slot.lists[random_.below(thread_count)]);
    }

    // Blocks that wait for the grace period still count, so there is no upper bound here.
    void check_statistics(Slot &slot)
    {
        const ebb_region_stats now = regions::stats(slot.region);
        if (now.live_blocks < slot.live())
            errors_.add("live_blocks is too small", {nullptr, now.live_blocks, 0});
        if (now.resident_bytes > now.held_bytes || now.held_bytes > now.peak_bytes)
            errors_.add("statistics contradict each other", {nullptr, now.held_bytes, 0});
    }

    void use(Slot &slot)
    {
        List &mine = slot.lists[id_];
        const std::size_t what = random_.below(10);
        if (what < 5 && !mine.is_full())
            mine.blocks[mine.count++] = create(slot.region);
        else if (mine.count > 0 && what == 5)
            resize(slot.region, mine.blocks[random_.below(mine.count)]);
        else if (mine.count > 0 && what == 6)
            promote(mine.blocks[random_.below(mine.count)]);
        else if (what == 7)
            serve_in_domain();
        else if (mine.count > 0)
            drop(mine, random_.below(mine.count));
        if (mine.count > 0 && mine.blocks[mine.count - 1].data == nullptr)
            mine.count--;
    }

    Block create(ebb_region *region)
    {
        Block block = {nullptr, random_bytes(), static_cast<unsigned>(random_.next())};
        std::size_t align = 16;
        void *data = nullptr;
        switch (random_.below(8)) {
        case 0:
            data = ebb_region_calloc(region, 1, block.bytes);
            if (data != nullptr && !support::all_zero(data, block.bytes))
                errors_.add("calloc gave dirty memory", block);
            break;
        case 1:
            align = std::size_t{1} << random_.between(4, 16);
            data = ebb_region_aligned_alloc(region, align, block.bytes);
            break;
        case 2: {
            const regions::InRegion scope(region);
            data = api::allocate(block.bytes);
            break;
        }
        case 3: // the owner changes hands
            ebb_region_detach(region);
            data = ebb_region_alloc(region, block.bytes);
            break;
        default:
            data = ebb_region_alloc(region, block.bytes);
        }
        block.data = static_cast<unsigned char *>(data);
        admit(block, align);
        if (data != nullptr && ebb_region_of(data) != region)
            errors_.add("is not the region's", block);
        return block;
    }

    void admit(const Block &block, std::size_t align)
    {
        if (block.data == nullptr) {
            errors_.add("out of memory", block);
            return;
        }
        if (support::address(block.data) % align != 0)
            errors_.add("misaligned", block);
        if (api::usable_bytes(block.data) < block.bytes)
            errors_.add("usable size below the request", block);
        if (world_.territory != nullptr && !world_.territory->claim(block.data, block.bytes))
            errors_.add("overlaps a live block", block);
        shadow::mark(block);
    }

    void forget(const Block &block)
    {
        if (!shadow::is_marked(block, block.bytes))
            errors_.add("contents changed", block);
        if (world_.territory != nullptr && !world_.territory->yield(block.data))
            errors_.add("was not in the account", block);
    }

    void drop(List &list, std::size_t index)
    {
        const Block block = list.remove(index);
        forget(block);
        if (random_.below(8) == 0)
            ebb_retire(block.data);
        else
            api::release(block.data);
    }

    void resize(ebb_region *region, Block &block)
    {
        const Block before = block;
        forget(block);
        block.bytes = random_bytes() + 1;
        void *data = ebb_region_realloc(region, block.data, block.bytes);
        if (data == nullptr) {
            errors_.add("realloc gave NULL", block);
            return;
        }
        block.data = static_cast<unsigned char *>(data);
        const Block kept = {block.data, before.bytes, before.seed};
        if (!shadow::is_marked(kept, std::min(before.bytes, block.bytes)))
            errors_.add("realloc lost contents", kept);
        admit(block, 16);
    }

    void promote(const Block &block)
    {
        void *data = ebb_region_promote(block.data, nullptr);
        const Block copy = {static_cast<unsigned char *>(data), block.bytes, block.seed};
        if (data == nullptr || !shadow::is_marked(copy, copy.bytes))
            errors_.add("promote lost contents", block);
        api::release(data);
    }

    // Some blocks stay and are freed outside, or in a later scope.
    void serve_in_domain()
    {
        const regions::InDomain scope(domain_);
        for (int i = 0; i < 10; i++) {
            Block block = {nullptr, random_bytes() % 2000, static_cast<unsigned>(random_.next())};
            block.data = static_cast<unsigned char *>(api::allocate(block.bytes));
            admit(block, 16);
            orphans().blocks[orphans().count++] = block;
            if (orphans().count > list_capacity / 2)
                drop(orphans(), random_.below(orphans().count));
        }
    }

    std::size_t random_bytes()
    {
        if (random_.below(200) == 0)
            return random_.between(60 * KiB, MiB);
        return random_.below(std::size_t{16} << random_.below(9));
    }

    World &world_;
    unsigned id_;
    support::Random random_;
    support::MappedArray<List> orphans_;
    ebb_domain *domain_;
    shadow::Errors errors_;
};

void run_world(Territory *territory, std::size_t steps)
{
    SCOPED_TRACE("EBBTEST_SEED=" + std::to_string(run_seed()));
    World world(territory);
    shadow::Errors errors[thread_count];
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < thread_count; id++)
        threads.emplace_back([&, id] {
            Actor actor(world, id);
            for (std::size_t i = 0; i < support::scaled(steps); i++)
                actor.step();
            errors[id] = actor.finish();
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const shadow::Errors &error : errors)
        error.expect_none();
    EXPECT_TRUE(reclaim::drain());
    Actor sweeper(world, 0);
    for (Slot &slot : world.slots)
        while (slot.region != nullptr)
            sweeper.end(slot);
    sweeper.finish().expect_none();
}

TEST(RegionStress, NoOverlapAnywhere)
{
    Territory territory;
    run_world(&territory, 200000);
}

TEST(RegionStress, RunFree) { run_world(nullptr, 300000); }

// Afterwards nothing may be left under any label.
TEST(RegionStress, EverythingGoesHome)
{
    run_world(nullptr, 60000);
    ebb_domain *domain = ebb_domain_open("stress");
    EXPECT_TRUE(regions::eventually([domain] {
        ebb_domain_advance(domain);
        ebb_reclaim();
        ebb_trim();
        const ebb_lifetime_stats all = regions::line("stress region");
        return all.live_blocks + all.held_bytes + all.demoted + all.open == 0 &&
               regions::stats(domain).live_blocks == 0;
    })) << regions::line("stress region").live_blocks
        << " blocks, " << regions::line("stress region").held_bytes << " bytes";
}

} // namespace
