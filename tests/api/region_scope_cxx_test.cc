// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb::scope and ebb::domain: what is current for the length of a C++ scope, and what it was before.
#include <chrono>
#include <stdexcept>
#include <thread>

#include "ebbtide/region.hpp"
#include "support.h"

namespace {

// Where plain malloc of this library would come from.
ebb_region *where_malloc_goes()
{
    void *p = ebb_malloc(40);
    ebb_region *region = ebb_region_of(p);
    ebb_free(p);
    return region;
}

TEST(ScopeCxx, NestsAndComesBack)
{
    ebb::region outer("outer"), inner("inner");
    EXPECT_EQ(nullptr, where_malloc_goes());
    {
        const ebb::scope in_outer(outer);
        EXPECT_EQ(outer.get(), where_malloc_goes());
        {
            const ebb::scope in_inner(inner);
            EXPECT_EQ(inner.get(), where_malloc_goes());
            {
                const ebb::scope in_heap(ebb::heap());
                EXPECT_EQ(nullptr, where_malloc_goes());
                const ebb::scope again(outer);
                EXPECT_EQ(outer.get(), where_malloc_goes());
            }
            EXPECT_EQ(inner.get(), where_malloc_goes());
        }
        EXPECT_EQ(outer.get(), where_malloc_goes());
    }
    EXPECT_EQ(nullptr, where_malloc_goes());
}

TEST(ScopeCxx, AnExceptionLeavesIt)
{
    ebb::region region;
    EXPECT_THROW(
        {
            const ebb::scope inside(region);
            EXPECT_EQ(region.get(), where_malloc_goes());
            throw std::runtime_error("out");
        },
        std::runtime_error);
    EXPECT_EQ(nullptr, where_malloc_goes());
}

TEST(ScopeCxx, IsOfItsThread)
{
    ebb::region region;
    const ebb::scope inside(region);
    std::thread([] { EXPECT_EQ(nullptr, where_malloc_goes()); }).join();
    EXPECT_EQ(region.get(), where_malloc_goes());
}

TEST(ScopeCxx, WhatIsCurrentDoesNotMoveExplicitAllocation)
{
    ebb::region current("current"), named("named");
    const ebb::scope inside(current);
    void *in_named = named.allocate(100);
    void *in_heap = ebb::heap().allocate(100);
    void *in_heap_aligned = ebb::heap().allocate(100, 128);
    EXPECT_EQ(named.get(), ebb_region_of(in_named));
    EXPECT_EQ(nullptr, ebb_region_of(in_heap));
    EXPECT_EQ(nullptr, ebb_region_of(in_heap_aligned));
    EXPECT_EQ(0U, support::address(in_heap_aligned) % 128);
    ebb::heap().deallocate(in_heap, 100);
    ebb::heap().deallocate(in_heap_aligned, 100, 128);
}

TEST(ScopeCxx, AnEndedRegionIsTheHeap)
{
    ebb::region region;
    region.close();
    const ebb::scope inside(region);
    EXPECT_EQ(nullptr, where_malloc_goes());
}

TEST(ScopeCxx, BlocksOutliveARegionThatEndsByClose)
{
    char *kept;
    {
        ebb::region_options options;
        options.at_end = ebb::ending::close;
        ebb::region region(options);
        const ebb::scope inside(region);
        kept = static_cast<char *>(ebb_malloc(100));
        EXPECT_EQ(region.get(), ebb_region_of(kept));
        support::fill_pattern(kept, 0, 100, 5);
    }
    EXPECT_EQ(100U, support::find_mismatch(kept, 100, 5));
    EXPECT_EQ(nullptr, ebb_region_of(kept));
    ebb_free(kept);
}

TEST(DomainCxx, TheSameNameIsTheSameDomain)
{
    const ebb::domain one("cxx-name"), same("cxx-name"), other("cxx-other");
    EXPECT_EQ(one.get(), same.get());
    EXPECT_NE(one.get(), other.get());
    EXPECT_STREQ("cxx-name", one.stats().label);
    EXPECT_TRUE(one.stats().is_domain);
}

TEST(DomainCxx, ScopesAreCounted)
{
    ebb::domain domain("cxx-scopes");
    domain.every_scopes(10);
    const ebb_lifetime_stats before = domain.stats();
    for (int i = 0; i < 100; i++) {
        const ebb::scope inside(domain);
        ebb_free(support::opaque(ebb_malloc(100)));
    }
    EXPECT_EQ(before.opened + 100, domain.stats().opened);
    EXPECT_EQ(before.closed + 10, domain.stats().closed);
}

TEST(DomainCxx, ADomainGivesWayToARegionAndBack)
{
    const ebb::domain domain("cxx-mixed");
    ebb::region region;
    const ebb::scope outer(domain);
    {
        const ebb::scope inner(region);
        EXPECT_EQ(region.get(), where_malloc_goes());
    }
    EXPECT_EQ(nullptr, where_malloc_goes());
}

TEST(DomainCxx, BadPoliciesAndNamesThrow)
{
    EXPECT_THROW(ebb::domain(""), std::invalid_argument);
    EXPECT_THROW(ebb::domain(nullptr), std::invalid_argument);
    ebb::domain domain("cxx-policies");
    EXPECT_THROW(domain.every_scopes(0), std::invalid_argument);
    EXPECT_THROW(domain.every_bytes(0), std::invalid_argument);
    EXPECT_THROW(domain.every(std::chrono::milliseconds(0)), std::invalid_argument);
    EXPECT_THROW(domain.every(std::chrono::milliseconds(-1)), std::invalid_argument);
    domain.never().every_bytes(1000).every(std::chrono::seconds(1)).manual().advance();
}

} // namespace
