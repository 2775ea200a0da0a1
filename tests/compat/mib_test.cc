// SPDX-License-Identifier: MIT OR Apache-2.0
// mallctlnametomib and mallctlbymib: numbers that are a name, parts of one, and all that are none.
#include <jemalloc/jemalloc.h>

#include <cerrno>
#include <cstring>

#include "compat/names.h"

namespace {

using compat::Name;
using compat::names;

TEST(Mib, AMibAnswersAsItsName)
{
    for (const Name &name : names) {
        size_t mib[8], depth = 8;
        ASSERT_EQ(0, mallctlnametomib(name.name, mib, &depth)) << name.name;
        EXPECT_EQ(1 + std::count(name.name, name.name + strlen(name.name), '.'),
                  static_cast<ptrdiff_t>(depth));
        unsigned char by_name[16] = {}, by_mib[16] = {};
        size_t length = name.bytes, mib_length = name.bytes;
        int error = mallctl(name.name, by_name, &length, nullptr, 0);
        EXPECT_EQ(error, mallctlbymib(mib, depth, by_mib, &mib_length, nullptr, 0)) << name.name;
        EXPECT_EQ(0, memcmp(by_name, by_mib, sizeof by_name)) << name.name;
        EXPECT_EQ(ENOENT, mallctlbymib(mib, depth - 1, nullptr, nullptr, nullptr, 0)) << name.name;
        for (size_t more : {size_t{0}, mib[depth - 1], SIZE_MAX}) {
            mib[depth] = more;
            EXPECT_EQ(ENOENT, mallctlbymib(mib, depth + 1, nullptr, nullptr, nullptr, 0))
                << name.name;
        }
    }
}

TEST(Mib, AnArenasNumberInAMibIsItself)
{
    size_t mib[4], depth = 4, value, length = sizeof value;
    ASSERT_EQ(0, mallctlnametomib("stats.arenas.0.pactive", mib, &depth));
    ASSERT_EQ(4U, depth);
    EXPECT_EQ(0U, mib[2]);
    mib[2] = MALLCTL_ARENAS_ALL;
    EXPECT_EQ(0, mallctlbymib(mib, depth, &value, &length, nullptr, 0));
    for (size_t none : {size_t{2}, size_t{MALLCTL_ARENAS_DESTROYED}, SIZE_MAX}) {
        mib[2] = none;
        EXPECT_EQ(ENOENT, mallctlbymib(mib, depth, &value, &length, nullptr, 0));
    }
}

TEST(Mib, NumbersThatAreNoMib)
{
    size_t mib[4], depth = 4;
    ASSERT_EQ(0, mallctlnametomib("stats.arenas.0.pactive", mib, &depth));
    for (size_t place : {size_t{0}, size_t{1}, size_t{3}}) {
        size_t kept = mib[place];
        for (size_t wrong : {kept + 1000, SIZE_MAX, place == 0 ? kept + 1 : size_t{0}}) {
            mib[place] = wrong;
            EXPECT_EQ(ENOENT, mallctlbymib(mib, depth, nullptr, nullptr, nullptr, 0))
                << place << ' ' << wrong;
        }
        mib[place] = kept;
    }
    EXPECT_EQ(0, mallctlbymib(mib, depth, nullptr, nullptr, nullptr, 0));
}

// Of all numbers up to those of the table, the ones that names have, and no other.
TEST(Mib, NoOtherNumbersAreAMib)
{
    constexpr size_t lines = std::size(names) + 5;
    size_t expected[5] = {}, accepted[5] = {};
    for (const Name &name : names) { // an arena has two numbers among these
        expected[1 + std::count(name.name, name.name + strlen(name.name), '.')] +=
            strstr(name.name, ".0.") != nullptr ? 2 : 1;
    }
    for (size_t a = 0; a < lines; a++) {
        for (size_t b = 0; b < lines; b++) {
            for (size_t c = 0; c < lines; c++) {
                size_t mib[4] = {a, b, c, 0};
                for (size_t depth = c > 0 ? 3 : b > 0 ? 2 : 1; depth <= 3; depth++) {
                    // A name and no length is no request, but for actions.
                    accepted[depth] +=
                        mallctlbymib(mib, depth, mib, nullptr, nullptr, 0) != ENOENT ? 1 : 0;
                }
                for (mib[3] = 0; c < 3 && mib[3] < lines; mib[3]++) {
                    accepted[4] += mallctlbymib(mib, 4, mib, nullptr, nullptr, 0) != ENOENT ? 1 : 0;
                }
            }
        }
    }
    for (size_t depth = 1; depth <= 4; depth++) {
        EXPECT_EQ(expected[depth], accepted[depth]) << depth;
    }
}

TEST(Mib, APartOfANameGivesAPartOfAMib)
{
    size_t whole[4], depth = 4;
    ASSERT_EQ(0, mallctlnametomib("stats.arenas.0.pactive", whole, &depth));
    for (size_t most = 0; most <= 4; most++) {
        size_t mib[4] = {99, 99, 99, 99};
        depth = most;
        EXPECT_EQ(0, mallctlnametomib("stats.arenas.0.pactive", mib, &depth));
        EXPECT_EQ(most, depth);
        EXPECT_TRUE(std::equal(mib, mib + most, whole));
        EXPECT_TRUE(most == 4 || mib[most] == 99);
    }
    size_t mib[4];
    EXPECT_EQ(0, mallctlnametomib("stats.arenas", mib, &(depth = 4)));
    EXPECT_EQ(2U, depth);
    EXPECT_EQ(0, mallctlnametomib("stats.nothing", mib, &(depth = 1)));
    EXPECT_EQ(ENOENT, mallctlnametomib("stats.nothing", mib, &(depth = 2)));
    EXPECT_EQ(2U, depth);
    EXPECT_EQ(ENOENT, mallctlnametomib("epoch.x", mib, &(depth = 2)));
    EXPECT_EQ(ENOENT, mallctlnametomib("epoch.x", mib, &(depth = 1)));
    EXPECT_EQ(ENOENT, mallctlnametomib("", mib, &(depth = 0)));
    EXPECT_EQ(ENOENT, mallctlnametomib(".", mib, &(depth = 0)));
}

} // namespace
