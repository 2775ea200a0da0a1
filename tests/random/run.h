// SPDX-License-Identifier: MIT OR Apache-2.0
// What the threads of one run share, and what one thread has.
#pragma once

#include <array>
#include <mutex>
#include <thread>
#include <utility>

#include "ebbtide/reclaim.h"
#include "model.h"
#include "stream.h"

namespace random_test {

inline constexpr unsigned clock_count = 3, own_clock = 3; // default, two shared; the thread's own
inline constexpr unsigned slot_count = 16;
inline constexpr std::size_t link_count = 8;

// Pins that surely hold: a thread stores a serial after it has pinned, and 0 before it unpins.
using PinSlot = std::atomic<std::uint64_t>;

struct Doom : ebb_hook {
    std::atomic<int> calls{0};
    std::atomic<bool> over{false}, guarded{false};
    void *at = nullptr;
    std::size_t size = 0;
    std::uint32_t serial = 0;
    unsigned clock = 0, era = 0, style = 0;
    unsigned holds = 0;
    std::array<std::pair<const PinSlot *, std::uint64_t>, slot_count> held;
};

inline bool doom_is_over(const Doom *doom) { return doom->over.load(); }

struct Note { // of a cleanup
    Region *region;
    void *block;
    std::uint32_t serial;
};

struct Node { // of a link: what threads read of each other
    std::uint32_t serial, size;
    static constexpr std::size_t header = 8;
    void fill(std::size_t bytes)
    {
        serial = next_serial++;
        size = static_cast<std::uint32_t>(bytes);
        write_pattern(this + 1, bytes, serial);
    }
    void check(std::uint32_t wanted, const char *what) const
    {
        RANDOM_CHECK(serial == wanted, "%s %p has serial %u, not %u", what,
                     static_cast<const void *>(this), serial, wanted);
        check_pattern(this + 1, size, size, serial, what);
    }
};

// Handed over, or left behind by a thread that ended.
struct Parcel {
    Model blocks;
    std::vector<Region *> regions;
};

struct Config {
    explicit Config(const Record &first)
        : mode(mode_of(first)), profile(first.at[3] % 8),
          swarm(first.y() % 2 == 0 ? first.pick() : first.pick() & first.number()),
          max_regions(first.at[4] % 3 == 0 ? 1 : 1 + first.at[4] % 6),
          cap(std::size_t{1} << (20 + first.at[5] % 5)), flags(first.x()),
          direct(first.at[0] & 0x80), corner(first.at[2] % 2 == 0)
    {
        if (corner) { // one small region, again and again
            static constexpr unsigned profiles[] = {4, 4, 0, 3};
            profile = profiles[profile % 4];
            max_regions = 1;
            cap = std::size_t{1} << (17 + first.at[5] % 2);
        }
    }
    static unsigned mode_of(const Record &first) { return (first.at[0] & 0x7fu) % modes; }
    bool threads() const { return mode == 1 || mode == 3 || (mode >= 4 && (flags & 3) == 0); }
    bool forks() const { return mode == 2 || mode == 3; }
    unsigned mode, profile;
    std::size_t swarm; // the groups of operations
    std::size_t max_regions, cap;
    unsigned flags;
    bool direct; // the operations by number: cases outlive a change of weights
    bool corner;
};

struct Worker;
struct Operation {
    const char *name;
    const char *group;
    unsigned weight;
    void (*call)(Worker &, const Record &);
};

struct Run {
    explicit Run(const Record &first) : config(first) {}
    Config config;
    std::array<const Operation *, 256> table{};
    std::mutex mutex; // of all that follows; held over a fork
    std::vector<std::unique_ptr<Parcel>> parcels, left;
    std::vector<std::thread> *threads = new std::vector<std::thread>;
    unsigned used_slots = 0;
    std::vector<std::unique_ptr<Region>> regions;
    std::vector<std::unique_ptr<Doom>> dooms;
    std::vector<std::unique_ptr<Note>> notes;
    Region *shared[2] = {};
    ebb_region *flock = nullptr; // entered by anyone, closed by anyone while others are inside
    ebb_collector *collectors[clock_count] = {};
    ebb_domain *domains[2] = {};
    std::array<std::array<PinSlot, slot_count>, clock_count> pins{};
    std::array<void *, link_count> links{};
    std::atomic<std::uint64_t> next_pin{1};
    std::atomic<unsigned> next_region{1};
    std::atomic<bool> refusing{false}, filtered{false}, own_pid{true}, crowded{false};
    std::atomic<unsigned> raises{0}; // of the limit behind `refusing`
    unsigned era = 0;     // raised in the child of a fork: what other threads had is lost there
    bool complete = true; // nothing was lost, so the sums at the end must be right
    ~Run() { delete threads; }
};

struct Clock {
    ebb_collector *collector = nullptr;
    ebb_participant *me = nullptr;
    unsigned depth = 0;
    std::uint64_t serial = 0;
};

struct Scope {
    enum class Kind { heap, region, domain, flock } kind;
    Region *region;
    ebb_scope before;
};

struct Held { // a node that was loaded under a pin, or under a hazard pointer
    Node *node;
    std::uint32_t serial;
    std::uint64_t pin;
};

struct Guard {
    ebb_hazard *hazard = nullptr;
    Block *block = nullptr;
    Held node{};
    bool busy() const { return block != nullptr || node.node != nullptr; }
};

struct Cookie {
    std::uint64_t value, pin;
};

struct Worker {
    Worker(Run &of, unsigned number, Stream input) : run(of), slot(number), stream(input) {}
    Run &run;
    unsigned slot;
    Stream stream;
    Model model;
    std::vector<Region *> regions; // open or still current; children behind their parents
    std::vector<Scope> scopes;
    std::array<Clock, 4> clocks;
    std::vector<Doom *> dooms;
    std::vector<Held> held;
    std::array<Guard, 3> guards;
    std::vector<Cookie> cookies;
    bool abandons = false; // ends as it is, inside of scopes and pins
    unsigned raises = 0;   // when the operation began
    // A thread that first pins while memory is refused may go without a heap of its own for good.
    bool has_heap = false, may_go_without = false;
    void worked() { has_heap = has_heap || (!may_be_refused() && !may_go_without); }
    void pinned()
    {
        worked();
        may_go_without = !has_heap;
    }

    // Another thread may have raised the limit in the middle of the operation.
    bool may_be_refused() const { return run.refusing || run.raises != raises; }

    bool is_pinned() const
    {
        return std::any_of(clocks.begin(), clocks.end(),
                           [](const Clock &c) { return c.depth > 0; });
    }
    bool is_guarding() const
    {
        return std::any_of(guards.begin(), guards.end(), [](const Guard &g) { return g.busy(); });
    }
    PinSlot *pin_slot(unsigned clock)
    {
        return clock < clock_count ? &run.pins[clock][slot] : nullptr;
    }
};

// ---- blocks --------------------------------------------------------------------------------------

inline unsigned id_of(const Region *region) { return region == nullptr ? 0 : region->id; }

// The region that has a block which `source` was asked for: nullptr for the heap. A region that was
// closed while it is current allocates from an open one above it, or from the heap.
inline Region *find_home(const void *p, Region *source)
{
    ebb_region *const of = ebb_region_of(p);
    if (source == nullptr || (!source->closed && !source->closes)) {
        RANDOM_CHECK(of == (source ? source->handle : nullptr),
                     "region_of(%p) is %p; it is of region %u, %p; usable %zu", p,
                     static_cast<void *>(of), id_of(source),
                     source ? static_cast<void *>(source->handle) : nullptr,
                     ebb_malloc_usable_size(p));
        return source;
    }
    if (!source->closed) {
        RANDOM_CHECK(of == nullptr || of == source->handle,
                     "region_of(%p) is %p; it is of region %u, %p; usable %zu", p,
                     static_cast<void *>(of), id_of(source), static_cast<void *>(source->handle),
                     ebb_malloc_usable_size(p));
        return source;
    }
    for (Region *up = source->parent; up != nullptr; up = up->parent)
        if (!up->closed && up->handle == of)
            return up;
    RANDOM_CHECK(of == nullptr, "region_of(%p) is %p; it came late to region %u", p,
                 static_cast<void *>(of), id_of(source));
    // A parent that gives way serves it by blocks that region_of does not know.
    return nullptr;
}

inline Region *source_of(const Worker &worker)
{
    return worker.scopes.empty() ? nullptr : worker.scopes.back().region;
}
inline bool in_flock(const Worker &worker)
{
    return !worker.scopes.empty() && worker.scopes.back().kind == Scope::Kind::flock;
}

inline void expect_refused(const Worker &worker, const Region *source, std::size_t size)
{
    const bool may = worker.may_be_refused() ||
                     (source != nullptr && (source->hard_limit != 0 || source->closed));
    RANDOM_CHECK(may, "NULL for %zu bytes in region %u (errno %d)", size, id_of(source), errno);
    RANDOM_CHECK(errno == ENOMEM, "errno %d for %zu bytes in region %u", errno, size,
                 id_of(source));
}

// A result of an allocation in `source`; nullptr when it was refused as it may be.
inline Block *admit(Worker &worker, void *p, std::size_t size, std::size_t align, Region *source)
{
    if (p == nullptr) {
        expect_refused(worker, source, size);
        return nullptr;
    }
    worker.worked();
    Region *home = nullptr;
    if (!in_flock(worker) || source != nullptr)
        home = find_home(p, source);
    return worker.model.admit(p, size, std::max<std::size_t>(align, 16), home);
}

inline Block *admit_plain(Worker &worker, void *p, std::size_t size, std::size_t align = 16)
{
    return admit(worker, p, size, align, source_of(worker));
}

inline void drop(Worker &worker, Block *block)
{
    Model::check(*block);
    void *const at = block->at;
    worker.model.remove(block);
    ebb_free(at);
}

inline void check_zero(const void *p, std::size_t size)
{
    const auto *bytes = static_cast<const unsigned char *>(p);
    const std::size_t stride = size > (std::size_t{1} << 16) ? 61 : 1;
    for (std::size_t i = 0; p != nullptr && i < size; i += stride)
        RANDOM_CHECK(bytes[i] == 0, "byte %zu of %zu cleared bytes at %p is %#x", i, size, p,
                     bytes[i]);
}

} // namespace random_test
