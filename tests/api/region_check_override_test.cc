// SPDX-License-Identifier: MIT OR Apache-2.0
// EBB_CHECK=1 with plain new inside regions: where one gives way, its block is the heap's, and of new's family.
#include <cstdlib>
#include <new>

#include "anew.h"

#include "ebbtide/region.h"

namespace {

using RegionCheckDeathTest = anew::DeathTest;

void make_and_delete_all()
{
    constexpr std::align_val_t line{64};
    ::operator delete(::operator new(867));
    ::operator delete(::operator new(200000));
    ::operator delete[](::operator new[](867));
    ::operator delete(::operator new(867, line), line);
    ::operator delete[](::operator new[](867, line), line);
    ::operator delete(::operator new(867, std::nothrow));
    std::free(std::aligned_alloc(64, 128));
    std::free(std::malloc(867));
}

// In its scope, while it is open and once it is closed.
template <typename Call> void around_the_close(Call call)
{
    anew::prepare();
    ebb_region_options options = {};
    options.closes = 1;
    ebb_region *region = ebb_region_open(&options);
    ebb_scope scope = ebb_region_enter(region);
    call();
    ebb_region_close(region);
    call();
    ebb_leave(scope);
    std::exit(0);
}

void free_what_new_made() { std::free(::operator new(867)); }
void free_what_new_made_large() { std::free(::operator new(200000)); }

TEST_F(RegionCheckDeathTest, WhatItGivesWayForIsOfItsCallersFamily)
{
    setenv("EBB_CHECK", "1", 1);
    EXPECT_EXIT(around_the_close(make_and_delete_all), anew::Exited(0), "^$");
    for (auto *call : {free_what_new_made, free_what_new_made_large})
        EXPECT_EXIT(around_the_close(call), anew::Killed(SIGABRT), "mismatched free: made by new");
}

} // namespace
