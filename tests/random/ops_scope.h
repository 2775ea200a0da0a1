// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on what is current, on domains, and on statistics of lifetimes.
#pragma once

#include "ops_region.h"

namespace random_test {

inline constexpr std::size_t deepest =
    36; // docs/lifetimes.md: from 33 on a thread's end is not seen

// Surely: a thread that could get no heap of its own stays where it was. False as well where no memory
// is left to ask with, or the region gives way.
inline bool is_current(const ebb_region *region)
{
    void *const p = ebb_malloc(1);
    const bool is = p != nullptr && ebb_region_of(p) == region;
    ebb_free(p);
    return is;
}

inline void op_enter(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region == nullptr || region->closed || w.scopes.size() >= (r.y() == 0 ? deepest : 5))
        return;
    const ebb_scope before = ebb_region_enter(region->handle);
    if ((w.may_be_refused() || w.may_go_without) && !is_current(region->handle)) {
        ebb_leave(before);
        return;
    }
    w.scopes.push_back({Scope::Kind::region, region, before});
    if (!region->shared)
        region->entered++;
}

inline void op_domain_enter(Worker &w, const Record &r)
{
    if (w.scopes.size() >= 6)
        return;
    ebb_domain *const domain = w.run.domains[r.x() % 2];
    const ebb_scope before = ebb_domain_enter(domain);
    // Where memory is refused what was current stays so.
    if ((!w.may_be_refused() && !w.may_go_without) || (source_of(w) == nullptr && !in_flock(w)))
        w.scopes.push_back({Scope::Kind::domain, nullptr, before});
    else
        ebb_leave(before);
}

inline void op_heap_enter(Worker &w, const Record &)
{
    if (w.scopes.size() < 6)
        w.scopes.push_back({Scope::Kind::heap, nullptr, ebb_heap_enter()});
}

inline void op_flock_enter(Worker &w, const Record &)
{
    const std::lock_guard lock(w.run.mutex);
    if (w.scopes.size() >= 6 || w.run.flock == nullptr)
        return;
    const ebb_scope before = ebb_region_enter(w.run.flock);
    if ((w.may_be_refused() || w.may_go_without) && !is_current(w.run.flock))
        ebb_leave(before);
    else
        w.scopes.push_back({Scope::Kind::flock, nullptr, before});
}

// Whoever is inside goes on.
inline void op_flock_close(Worker &w, const Record &)
{
    const std::lock_guard lock(w.run.mutex);
    if (w.run.flock != nullptr)
        ebb_region_close(w.run.flock);
    const ebb_region_options options = {"random flock", nullptr, 0, 0, 0};
    w.run.flock = ebb_region_open(&options);
}

inline void leave_innermost(Worker &w)
{
    const Scope scope = w.scopes.back();
    w.scopes.pop_back();
    ebb_leave(scope.before);
    Region *const region = scope.region;
    if (region == nullptr || region->shared)
        return;
    region->entered--;
    if (region->closed && region->entered == 0) {
        region->gone = true;
        std::erase(w.regions, region);
    }
}

inline void op_leave(Worker &w, const Record &)
{
    if (!w.scopes.empty())
        leave_innermost(w);
}

inline void op_detach(Worker &w, const Record &r)
{
    Region *const region = pick_region(w, r.pick());
    if (region != nullptr && !region->closed)
        ebb_region_detach(region->handle);
}

inline void op_domain(Worker &w, const Record &r)
{
    ebb_domain *const domain = w.run.domains[r.x() % 2];
    if (r.y() % 3 == 0)
        return ebb_domain_advance(domain);
    if (r.y() % 3 == 1) {
        ebb_lifetime_stats now;
        ebb_domain_stats_get(domain, &now);
        RANDOM_CHECK(now.is_domain == 1, "%s", now.label);
        return;
    }
    const auto policy = static_cast<ebb_domain_policy>(r.at[3] % 5);
    const std::size_t n = 1 + (r.at[3] % 5 == 2 ? r.number() : r.number() % 3);
    RANDOM_CHECK(ebb_domain_set_policy(domain, policy, n) == 0, "policy %d, %zu", policy, n);
    errno = 0;
    RANDOM_CHECK(ebb_domain_set_policy(domain, EBB_DOMAIN_SCOPES, 0) == -1 && errno == EINVAL,
                 "n = 0");
    errno = 0;
    RANDOM_CHECK(ebb_domain_set_policy(domain, static_cast<ebb_domain_policy>(9), 1) == -1 &&
                     errno == EINVAL,
                 "policy 9");
    errno = 0;
    RANDOM_CHECK(ebb_domain_open("") == nullptr && errno == EINVAL, "an empty name");
    errno = 0;
    RANDOM_CHECK(ebb_domain_open(nullptr) == nullptr && errno == EINVAL, "no name");
    RANDOM_CHECK(ebb_domain_open(r.x() % 2 ? "random y" : "random x") == domain,
                 "the domain of that name");
}

inline void op_lifetimes(Worker &, const Record &r)
{
    ebb_lifetime_stats lines[16];
    const std::size_t given = r.x() % 17, count = ebb_lifetimes_get(lines, given);
    for (std::size_t i = 0; i < std::min(count, given); i++)
        RANDOM_CHECK(
            lines[i].held_bytes <= lines[i].peak_bytes && lines[i].closed >= lines[i].drained,
            "%s: held %zu, peak %zu", lines[i].label, lines[i].held_bytes, lines[i].peak_bytes);
}

} // namespace random_test
