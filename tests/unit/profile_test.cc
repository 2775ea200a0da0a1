// SPDX-License-Identifier: MIT OR Apache-2.0
// The sampled profile from the inside: what is a sample, and what it stands for.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/engine.h"

namespace {

TEST(Profile, ItsLogarithmIsThatOfLibm)
{
    for (double x = 0x1p-53; x < 1e9; x *= 1.0137)
        ASSERT_NEAR(std::log(x), ebbi_profile_log(x), 1e-13 * std::fmax(1, std::fabs(std::log(x))))
            << x;
}

TEST(Profile, ASampleStandsForOneOverItsOdds)
{
    for (const std::size_t mean : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 40})
        for (std::size_t bytes = 0; bytes < std::size_t{1} << 46; bytes = bytes * 5 / 3 + 1) {
            const double x = std::fmax(static_cast<double>(bytes), 1) / static_cast<double>(mean);
            const double expected = -1 / std::expm1(-x);
            ASSERT_NEAR(expected, ebbi_sample_objects(bytes, mean), 1e-9 * expected)
                << bytes << " of " << mean;
        }
}

// Of n allocations the samples are n * odds, within five standard deviations: one such run in a million fails.
TEST(Profile, SamplesComeByTheBytes)
{
    ASSERT_EQ(0, ebbi_profile_begin(10000));
    for (const std::size_t bytes : {1, 100, 10000, 100000}) {
        ebbi_sampler sampler = {};
        const double odds = 1 / ebbi_sample_objects(bytes, 10000);
        const double count = std::fmin(2e7, 1e5 / odds);
        double found = 0;
        for (double i = 0; i < count; i++)
            found += ebbi_sampler_count(&sampler, ebbi_profile_round(), bytes) ? 1 : 0;
        EXPECT_NEAR(count * odds, found, 5 * std::sqrt(count * odds * (1 - odds)) + 1) << bytes;
    }
    ebbi_profile_end();
}

TEST(Profile, SizesThatWillBeRefusedDoNotConfuseIt)
{
    ASSERT_EQ(0, ebbi_profile_begin(10000));
    ebbi_sampler sampler = {};
    for (int i = 0; i < 100; i++)
        EXPECT_TRUE(ebbi_sampler_count(&sampler, ebbi_profile_round(),
                                       std::numeric_limits<std::size_t>::max()));
    EXPECT_GT(sampler.until, 0);
    ebbi_profile_end();
}

TEST(Profile, ANewRoundDrawsAgain)
{
    ASSERT_EQ(0, ebbi_profile_begin(std::size_t{1} << 40));
    ebbi_sampler sampler = {};
    EXPECT_FALSE(ebbi_sampler_count(&sampler, ebbi_profile_round(), 1));
    ASSERT_EQ(0, ebbi_profile_begin(1));
    EXPECT_TRUE(ebbi_sampler_count(&sampler, ebbi_profile_round(), 1000));
    ebbi_profile_end();
    EXPECT_EQ(0U, ebbi_profile_round());
}

} // namespace
