// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: what a thread keeps that goes on with a call now and then (ebbi_flush_quiet).
#include <thread>

#include "support/magazines.h"

namespace {

using namespace unit;

struct Quiet : Heap {
    static constexpr std::size_t sizes[] = {64, 256, 1024, 2048, 4096, 8192, 16384};

    void SetUp() override
    {
        Heap::SetUp();
        set_cache("16m");
        for (const std::size_t bytes : sizes)
            fill_and_empty(bytes, static_cast<int>(64 * KiB / bytes));
        come_back(heap);
        ASSERT_EQ(std::size(sizes), charged_arrays());
    }

    // As a thread whose next call comes behind a pass.
    static void come_back(ebbi_heap *heap)
    {
        heap->parked = 1;
        ebbi_outside(ebbi_inside());
        ASSERT_EQ(0U, heap->parked);
    }

    std::size_t charged_arrays()
    {
        std::size_t count = 0;
        for (const std::size_t bytes : sizes) {
            const ebbi_class &c = ebbi_classes[ebbi_class_for(bytes)];
            const std::size_t given = bytes <= 512 ? first_slots(c) : 0;
            count += magazine(bytes).slots > given;
        }
        return count;
    }
};

TEST_F(Quiet, MoreOfItGoesHomeEachTime)
{
    for (const std::size_t left : {6, 4, 1, 0, 0}) {
        come_back(heap);
        EXPECT_EQ(left, charged_arrays());
        ebbi_magazines_audit(heap);
    }
    EXPECT_EQ(0U, heap->charged_bytes);
}

TEST_F(Quiet, WhatIsForNothingStays)
{
    ebb_free(ebb_malloc(48));
    come_back(heap);
    for (int i = 0; i < 20; i++)
        come_back(heap);
    EXPECT_EQ(16U, magazine(48).slots);
    EXPECT_LT(0U, in_magazine(48));
}

// What went home was wanted: it is as before the first time.
TEST_F(Quiet, ARefillOrAFlushBeginsAnew)
{
    for (int round = 0; round < 5; round++) {
        come_back(heap);
        EXPECT_EQ(6U, charged_arrays());
        for (const std::size_t bytes : sizes)
            fill_and_empty(bytes, static_cast<int>(64 * KiB / bytes));
        come_back(heap);
        EXPECT_EQ(7U, charged_arrays());
    }
}

// Up to half of what went home may be wanted: as much goes the next time.
TEST_F(Quiet, FewRefillsLeaveItAtThat)
{
    come_back(heap);
    come_back(heap);
    EXPECT_EQ(4U, charged_arrays());
    heap->events++;
    come_back(heap);
    EXPECT_EQ(2U, charged_arrays());
    heap->events += 2;
    come_back(heap);
    EXPECT_EQ(2U, charged_arrays());
}

// An array that a call has in hand stays.
TEST_F(Quiet, NothingGoesAmidACall)
{
    ebbi_heap *inside = ebbi_inside();
    for (int i = 0; i < 20; i++) {
        heap->parked = 1;
        ebbi_outside(ebbi_inside());
        EXPECT_EQ(0U, heap->parked);
    }
    ebbi_outside(inside);
    EXPECT_EQ(7U, charged_arrays());
}

TEST_F(Quiet, OthersBlocksGoHomeAtTheSecondTime)
{
    std::vector<void *> small(10), large(10);
    std::thread([&] {
        for (void *&p : small)
            p = ebb_malloc(32);
        for (void *&p : large)
            p = ebb_malloc(2000);
    }).join();
    const auto waiting = [&] {
        std::size_t count = heap->outbox_count;
        for (unsigned n = EBBI_CLASS_COUNT; n < EBBI_ARRAYS; n++)
            count += ebbi_magazine_count(heap, n);
        return count;
    };
    for (void *p : small)
        ebb_free(p);
    for (void *p : large)
        ebb_free(p);
    come_back(heap);
    const std::size_t before = waiting();
    EXPECT_LT(0U, before);
    come_back(heap);
    come_back(heap);
    EXPECT_EQ(0U, waiting());
}

} // namespace
