// SPDX-License-Identifier: MIT OR Apache-2.0
// When the requests of an open loop are due: at an even rate, or with a burst of some times
// that rate at the end of each period. Times count from the first request.
#ifndef EBB_BENCH_ARRIVAL_H
#define EBB_BENCH_ARRIVAL_H

#include "harness/common.h"

enum { ARRIVAL_NS_PER_MS = 1000000, ARRIVAL_MS_PER_S = 1000 };

static uint64_t arrival_rate = 10000; // per second, outside of bursts
static uint64_t arrival_burst = 1;    // times the rate; 1: there are no bursts
static uint64_t arrival_burst_ms = 100;
static uint64_t arrival_period_ms = 1000;

#define ARRIVAL_OPTIONS                                                                            \
    {"rate", &arrival_rate, 1, 1000000000, "requests per second of the open loop"},                \
        {"burst", &arrival_burst, 1, 1000, "times the rate in bursts; 1: no bursts"},              \
        {"burst-ms", &arrival_burst_ms, 1, 3600000, "how long a burst lasts"},                     \
    {                                                                                              \
        "period-ms", &arrival_period_ms, 2, 3600000, "from one burst's end to the next one's"      \
    }

static inline bool arrival_has_bursts(void) { return arrival_burst > 1; }

static inline uint64_t arrival_quiet_ms(void) { return arrival_period_ms - arrival_burst_ms; }

// Requests of a period before its burst, and of the burst.
static inline uint64_t arrival_quiet_count(void)
{
    return arrival_rate * arrival_quiet_ms() / ARRIVAL_MS_PER_S;
}

static inline uint64_t arrival_period_count(void)
{
    uint64_t in_burst = arrival_rate * arrival_burst * arrival_burst_ms / ARRIVAL_MS_PER_S;
    return arrival_quiet_count() + in_burst;
}

static inline void arrival_check(bool is_open_loop)
{
    if (arrival_has_bursts() && !is_open_loop)
        bench_fail("--burst wants --loop 1");
    if (arrival_burst_ms >= arrival_period_ms)
        bench_fail("--burst-ms is not below --period-ms");
    if (arrival_has_bursts() && arrival_period_count() == arrival_quiet_count())
        bench_fail("no request is due in a burst");
}

static inline bool arrival_is_in_burst(uint64_t request)
{
    return arrival_has_bursts() && request % arrival_period_count() >= arrival_quiet_count();
}

static inline uint64_t arrival_evenly_ns(uint64_t request, uint64_t rate)
{
    return (uint64_t)((double)request * ARRIVAL_MS_PER_S * ARRIVAL_NS_PER_MS / (double)rate);
}

static inline uint64_t arrival_period_start_ns(uint64_t request)
{
    return request / arrival_period_count() * arrival_period_ms * ARRIVAL_NS_PER_MS;
}

// When the burst that the request is in ends.
static inline uint64_t arrival_burst_end_ns(uint64_t request)
{
    return arrival_period_start_ns(request) + arrival_period_ms * ARRIVAL_NS_PER_MS;
}

static inline uint64_t arrival_due_ns(uint64_t request)
{
    if (!arrival_has_bursts())
        return arrival_evenly_ns(request, arrival_rate);
    uint64_t start_ns = arrival_period_start_ns(request);
    uint64_t place = request % arrival_period_count();
    if (!arrival_is_in_burst(request))
        return start_ns + arrival_evenly_ns(place, arrival_rate);
    return start_ns + arrival_quiet_ms() * ARRIVAL_NS_PER_MS +
           arrival_evenly_ns(place - arrival_quiet_count(), arrival_rate * arrival_burst);
}

#endif
