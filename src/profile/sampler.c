// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer profile: which allocations are samples. Without libm.
#include "base/mix.h"
#include "os/os.h"
#include "profile/profile.h"

#define LN2 0.69314718055994530942
#define MOST_DISTANCE 0x1p60

static double from_bits(uint64_t bits)
{
    double x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

// x = m * 2^e with m in [0.7, 1.42]; ln m = 2 artanh((m - 1) / (m + 1)), whose series ends below 1e-14 there.
double ebbi_profile_log(double x)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    double m = from_bits((bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52);
    EBBI_ASSERT(x > 0 && exponent > -1023 && exponent < 1024);
    if (m > 1.42) {
        m /= 2;
        exponent++;
    }
    double s = (m - 1) / (m + 1), power = s, sum = 0;
    for (int i = 1; i <= 17; i += 2) {
        sum += power / i;
        power *= s * s;
    }
    return 2 * sum + exponent * LN2;
}

// 1 - exp(-x): halved until the series serves, and doubled again by 1 - e^2y = (1 - e^y)(2 - (1 - e^y)).
static double odds(double x)
{
    if (x > 50) {
        return 1;
    }
    int halves = x > 1 ? 10 : 4;
    double y = x / (1 << halves), term = y, sum = 0;
    for (int i = 2; i <= 10; i++) {
        sum += term;
        term *= -y / i;
    }
    for (; halves > 0; halves--) {
        sum *= 2 - sum;
    }
    return sum;
}

double ebbi_sample_objects(size_t bytes, size_t mean)
{
    return 1 / odds((double)ebbi_max(bytes, 1) / (double)mean);
}

// splitmix64.
static uint64_t next_random(uint64_t *state)
{
    *state += EBBI_GOLDEN_RATIO;
    return ebbi_scramble(*state);
}

static int64_t draw(struct ebbi_sampler *sampler)
{
    double uniform = ((double)(next_random(&sampler->random) >> 11) + 1) * 0x1p-53; // (0, 1]
    double distance = -ebbi_profile_log(uniform) * (double)sampler->mean + 1;
    return distance < MOST_DISTANCE ? (int64_t)distance : (int64_t)MOST_DISTANCE;
}

bool ebbi_sampler_look(struct ebbi_sampler *sampler, uint32_t round, size_t bytes)
{
    if (sampler->round != round) {
        if (sampler->round == 0) {
            sampler->random = ebbi_os_now_ns() ^ (uintptr_t)sampler;
        }
        sampler->round = round;
        sampler->mean =
            ebbi_load_relaxed(&ebbi_profile.mean); // relaxed: of that round or a later one
        sampler->until = draw(sampler);
    }
    sampler->until -= (int64_t)ebbi_min(ebbi_max(bytes, 1), PTRDIFF_MAX / 2);
    if (sampler->until > 0 || sampler->busy) {
        return false;
    }
    sampler->until = draw(sampler);
    return true;
}
