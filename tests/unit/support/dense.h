// SPDX-License-Identifier: MIT OR Apache-2.0
// On the fake OS a machine that gives huge pages on request: what the kernel is told is the figure.
#pragma once

#include "support/arena_walk.h"

extern "C" {
#define _Static_assert static_assert
#include "diag/parts.h"
#include "process/process.h"
#undef _Static_assert
}

namespace unit {

inline constexpr std::size_t unit_bytes = EBBI_UNIT_GRANULES * EBBI_GRANULE;
inline constexpr std::size_t least_grown =
    EBBI_UNIT_GRANULES / 2;                   // of spans that are full, before more are dense
inline constexpr std::size_t least_units = 4; // in use with a large object that is

struct Dense : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_clock(1000);
        fake_os_threaded(false);
        fake_os_huge_on_request(true);
        ebbi_arena_advice = EBBI_HUGE_AUTO;
    }
    void TearDown() override { audit(); }

    static void audit()
    {
        EXPECT_ARENA_WHOLE();
        ebbi_arena_lock();
        ebbi_arena_audit(true);
        ebbi_arena_unlock();
    }
    void grow(std::size_t granules, enum ebbi_fill fill = EBBI_FILL_GROWS)
    {
        for (; granules > 0; granules--) {
            spans.push_back(ebbi_span_alloc_dense(1, EBBI_SPAN_SHEET, fill));
            ASSERT_NE(nullptr, spans.back());
        }
    }
    void grow_to_the_least() { grow(least_grown); }
    static std::size_t used() { return ebbi_used_granules; }
    static std::vector<fake_advice> advices()
    {
        std::vector<fake_advice> all(256);
        all.resize(fake_os_advices(all.data(), all.size()));
        return all;
    }
    static std::size_t asked_bytes()
    {
        struct ebbi_arena_totals totals;
        ebbi_arena_totals(&totals);
        return totals.dense_bytes;
    }
    // Of the last unit that is asked for and all in use, the spans.
    std::vector<ebbi_span *> whole_unit() const
    {
        std::vector<ebbi_span *> found;
        for (ebbi_span *span : spans)
            if (address(ebbi_span_start(span)) / unit_bytes == advices().at(0).start / unit_bytes)
                found.push_back(span);
        return found;
    }
    static void purge()
    {
        fake_os_clock_advance(1000);
        (void)ebbi_arena_purge(ebbi_os_now_ms(), 500, SIZE_MAX);
    }

    std::vector<ebbi_span *> spans;
};

} // namespace unit
