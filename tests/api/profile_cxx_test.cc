// SPDX-License-Identifier: MIT OR Apache-2.0
// ebb::profile: on from the constructor to the destructor, by what the file says of allocations before, in and after it.
#include "profile_file.h"
#include "support.h"

#include <cerrno>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <unistd.h>

#include <gtest/gtest.h>

#include "ebbtide/profile.hpp"

namespace {

static_assert(!std::is_copy_constructible_v<ebb::profile>);
static_assert(!std::is_copy_assignable_v<ebb::profile>);
static_assert(std::is_nothrow_move_constructible_v<ebb::profile>);
static_assert(std::is_nothrow_move_assignable_v<ebb::profile>);
static_assert(!std::is_convertible_v<std::size_t, ebb::profile>);

std::uint64_t samples_in(const char *name)
{
    const int file = open(name, O_RDONLY | O_CLOEXEC);
    const profile_file::Profile profile = profile_file::read(profile_file::contents(file));
    EXPECT_EQ("", profile.wrong);
    close(file);
    (void)std::remove(name);
    return profile.sum(0);
}

// So many allocations have been samples since the process began.
std::uint64_t samples()
{
    const std::string name = testing::TempDir() + "profile_cxx." + std::to_string(getpid());
    EXPECT_EQ(0, ebb_profile_write(name.c_str())) << errno;
    return samples_in(name.c_str());
}

// Whether an allocation is a sample now, where the mean is one byte.
bool is_on()
{
    const std::uint64_t before = samples();
    void *p = ebb_malloc(1000);
    support::opaque(p);
    ebb_free(p);
    return samples() > before;
}

TEST(ProfileCxx, IsOnForAsLongAsItLives)
{
    EXPECT_FALSE(is_on());
    {
        const ebb::profile session(1);
        EXPECT_TRUE(is_on());
    }
    EXPECT_FALSE(is_on());
}

TEST(ProfileCxx, WritesWhatIsKnown)
{
    const std::string name = testing::TempDir() + "profile_cxx.own." + std::to_string(getpid());
    const ebb::profile session(1);
    void *p = ebb_malloc(1000);
    support::opaque(p);
    EXPECT_FALSE(session.write(name.c_str()));
    EXPECT_GT(samples_in(name.c_str()), 0U);
    ebb_free(p);
}

TEST(ProfileCxx, AMovedSessionEndsOnce)
{
    {
        ebb::profile first(1);
        {
            const ebb::profile second(std::move(first));
            EXPECT_TRUE(is_on());
        }
        EXPECT_FALSE(is_on());
        EXPECT_EQ(0, ebb_profile_start(1)); // somebody else's
    }                                       // first ends nothing
    EXPECT_TRUE(is_on());
    ebb_profile_stop();
}

TEST(ProfileCxx, ANewSessionInThePlaceOfOneGoesOn)
{
    ebb::profile session(std::size_t{1} << 40);
    session = ebb::profile(1);
    EXPECT_TRUE(is_on());
    ebb::profile &same = session;
    session = std::move(same);
    EXPECT_TRUE(is_on());
    ebb::profile other(std::move(session));
    other = std::move(session); // which is none
    EXPECT_FALSE(is_on());
}

TEST(ProfileCxx, WhatCannotBeDoneIsSaid)
{
    EXPECT_THROW(static_cast<void>(ebb::profile((std::size_t{1} << 40) + 1)),
                 std::invalid_argument);
    EXPECT_FALSE(is_on());
    const ebb::profile session;
    EXPECT_EQ(std::errc::no_such_file_or_directory, session.write("/nowhere/at/all"));
    EXPECT_EQ(std::errc::bad_address, session.write(nullptr));
}

} // namespace
