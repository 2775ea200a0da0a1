// SPDX-License-Identifier: MIT OR Apache-2.0
// A run: begins, follows its stream, ends everything, and requires that nothing is left.
#pragma once

#include "operations.h"

namespace random_test {

// RANDOM_TRACE: says what is called.
inline void trace(const Worker &w, const Operation &operation, const Record &r)
{
    static const bool wanted = std::getenv("RANDOM_TRACE") != nullptr;
    if (wanted)
        std::fprintf(
            stderr,
            "%d.%u %llu %s pick %zu size %zu x %u y %u: %zu blocks, %zu regions, %zu scopes\n",
            static_cast<int>(getpid()), w.slot, static_cast<unsigned long long>(place.step),
            operation.name, r.pick(), r.size(w.run.config.profile), r.x(), r.y(), w.model.count(),
            w.regions.size(), w.scopes.size());
}

inline void run_records(Worker &w)
{
    Record record;
    while (w.stream.next(record)) {
        const Operation *const chosen = w.run.table[record.op()];
        if (chosen == nullptr)
            continue;
        const Operation &operation = *chosen;
        place.op = operation.name;
        place.step++;
        w.raises = w.run.raises;
        board().steps.fetch_add(1, std::memory_order_relaxed);
        if (w.model.bytes() > w.run.config.cap) {
            place.op = "free (over the cap)";
            op_free(w, record);
            continue;
        }
        trace(w, operation, record);
        operation.call(w, record);
    }
}

// ---- the end of a thread -------------------------------------------------------------------------

inline void end_regions(Worker &w)
{
    while (!w.regions.empty()) {
        Region *const region = w.regions.back();
        if (region->id % 2 == 0 && may_release(w, region)) {
            forget_blocks(w, region);
            ebb_region_release(region->handle);
            mark_ended(w, region, false);
        } else {
            close_region(w, region);
        }
    }
}

inline void free_all(Worker &w)
{
    while (Block *block = w.model.pick(0))
        drop(w, block);
}

inline void wind_down(Worker &w)
{
    place.op = "wind_down";
    op_check(w, {});
    for (Guard &guard : w.guards)
        end_guard(w, guard, true);
    for (unsigned number = 0; number < w.clocks.size(); number++)
        while (w.clocks[number].depth > 0)
            unpin(w, number);
    end_own_collector(w);
    while (!w.scopes.empty())
        leave_innermost(w);
    if (w.slot % 2 == 0)
        free_all(w);
    end_regions(w);
    free_all(w);
}

// Ends inside of scopes and pins; what it has goes to the last thread of the run.
inline void leave_behind(Worker &w)
{
    place.op = "leave_behind";
    for (Guard &guard : w.guards)
        end_guard(w, guard, true);
    while (w.clocks[own_clock].collector != nullptr && w.clocks[0].depth > 0)
        unpin(w, 0); // its end would be inside a default pin: an error
    end_own_collector(w);
    for (unsigned number = 0; number < own_clock; number++)
        if (w.clocks[number].depth > 0)
            forget_pin(w, number);
    for (const Scope &scope : w.scopes)
        if (scope.region != nullptr)
            scope.region->entered = scope.region->shared ? scope.region->entered : 0;
    auto parcel = std::make_unique<Parcel>();
    std::erase_if(w.regions, [](const Region *region) { return region->closed; });
    parcel->blocks.absorb(w.model);
    parcel->regions = w.regions;
    const std::lock_guard lock(w.run.mutex);
    w.run.left.push_back(std::move(parcel));
}

inline void run_thread(Run &run, unsigned slot, Stream stream)
{
    place.thread = slot;
    Worker worker(run, slot, stream);
    const bool abandons = stream.left() % 3 == 0;
    run_records(worker);
    if (abandons)
        leave_behind(worker);
    else
        wind_down(worker);
    const std::lock_guard lock(run.mutex);
    run.used_slots &= ~(1u << slot);
}

// ---- the run -------------------------------------------------------------------------------------

inline constexpr std::size_t own_records = 200;

struct Sums {
    std::size_t live_blocks, heaps, participants, open, demoted, live_bytes, resident;
};

inline Sums take_sums()
{
    ebb_stats heap;
    ebb_reclaim_stats clock;
    static ebb_lifetime_stats lines[256];
    ebb_stats_get(&heap);
    ebb_reclaim_stats_get(nullptr, &clock);
    const std::size_t count =
        std::min(ebb_lifetimes_get(lines, std::size(lines)), std::size(lines));
    Sums sums = {heap.live_blocks,
                 heap.heaps,
                 clock.participants,
                 0,
                 0,
                 0,
                 heap.resident - heap.resident_other};
    for (std::size_t i = 0; i < count; i++) {
        sums.open += lines[i].is_domain ? 0 : lines[i].open;
        sums.demoted += lines[i].demoted;
        sums.live_bytes += lines[i].live_bytes;
    }
    return sums;
}

inline void begin_run(Run &run)
{
    place = {};
    run.used_slots = 1;
    choose_operations(run);
    run.domains[0] = ebb_domain_open("random x");
    run.domains[1] = ebb_domain_open("random y");
    run.collectors[1] = ebb_collector_create(0);
    run.collectors[2] = ebb_collector_create(EBB_COLLECTOR_FENCED);
    for (unsigned i = 0; i < 2 && run.config.threads(); i++) {
        const ebb_region_options options = {"random shared", nullptr, 0, 0, 0};
        run.shared[i] = new_region(run);
        run.shared[i]->handle = ebb_region_open(&options);
        run.shared[i]->shared = true;
    }
}

inline void end_shared(Worker &w)
{
    Run &run = w.run;
    for (Region *region : run.shared) {
        if (region == nullptr)
            continue;
        w.model.for_each([=](const Block &b) { return b.region == region; },
                         [&](Block *b) { drop(w, b); });
        if (run.config.flags & 64)
            ebb_region_release(region->handle);
        else
            ebb_region_close(region->handle);
    }
    if (run.flock != nullptr)
        ebb_region_close(run.flock);
    for (void *&link : run.links)
        ebb_retire(std::exchange(link, nullptr));
    for (unsigned i = 1; i < clock_count; i++)
        ebb_collector_destroy(run.collectors[i]);
}

inline void require_nothing_left(Run &run)
{
    for (const auto &doom : run.dooms)
        RANDOM_CHECK(doom->over || doom->at == nullptr || doom->calls.load() > 0 ||
                         doom->era < run.era || doom->guarded,
                     "the destructor of %p (clock %u) has not run at the end", doom->at,
                     doom->clock);
    const Sums sums = take_sums();
    if (!run.complete)
        return;
    RANDOM_CHECK(sums.open == 0, "%zu regions are open at the end", sums.open);
    RANDOM_CHECK(sums.demoted == 0, "%zu slabs of closed regions at the end", sums.demoted);
    // What threads that have ended freed last is not counted yet: as of their last slow calls.
    RANDOM_CHECK(sums.live_bytes == 0 || had_threads, "%zu bytes live under labels at the end",
                 sums.live_bytes);
    // The library's own records are blocks of its heap: a handful, and no more from run to run.
    RANDOM_CHECK(sums.live_blocks <= own_records, "%zu live blocks at the end", sums.live_blocks);
}

// Without membarrier a close by another thread than the owner ends a second later (region.h). What the helper has
// taken out of the queues and is sending home counts as live.
inline void await_others(const Run &run)
{
    const auto waits = [&] {
        const Sums sums = take_sums();
        return (run.filtered && sums.open != 0) || (run.complete && sums.live_blocks > own_records);
    };
    for (unsigned i = 0; i < 200 && waits(); i++) {
        usleep(50000);
        ebb_trim();
    }
}

inline void finish_run(Worker &w)
{
    Run &run = w.run;
    if (run.refusing)
        raise_limit(run);
    wind_down(w);
    place.op = "finish";
    join_all(w);
    for (auto *list : {&run.parcels, &run.left})
        for (auto &parcel : *list)
            take_in(w, *parcel);
    wind_down(w);
    place.op = "finish";
    end_shared(w);
    free_all(w);
    ebb_reclaim_set_limit(0, nullptr, nullptr);
    ebb_synchronize();
    ebb_barrier();
    ebb_reclaim();
    ebb_trim();
    await_others(run);
    check_sums();
    require_nothing_left(run);
    require_no_samples(w);
}

inline void run_here(const Record &first, Stream stream)
{
    Run run(first);
    begin_run(run);
    Worker worker(run, 0, stream);
    run_records(worker);
    finish_run(worker);
}

// Refusals stay with the process, so a child of its own bears them.
inline void run_in_child(const Record &first, Stream stream)
{
    const pid_t child = fork();
    RANDOM_CHECK(child >= 0, "fork, errno %d", errno);
    if (child == 0) {
        fork_depth++;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        mallopt(M_ARENA_MAX, 1);
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
        run_here(first, stream);
        _exit(0);
    }
    expect_good_end(child, 3 * child_seconds());
}

inline void run_stream(const std::uint8_t *data, std::size_t size)
{
    Stream stream(data, size);
    Record first;
    if (!stream.next(first))
        return;
    board().runs++;
    board().mode = Config::mode_of(first);
    if (Config::mode_of(first) >= 4)
        run_in_child(first, stream);
    else
        run_here(first, stream);
}

} // namespace random_test
