// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer arena: huge objects.
#include <deque>

#include <sys/mman.h>
#include <unistd.h>

#include "support/huge.h"

namespace {

using namespace unit;

using Huge = Fake;

TEST_F(Huge, AllocatesFreesAndForgets)
{
    Block b = huge(40 * MiB + 1);
    ASSERT_NE(nullptr, b.bytes);
    EXPECT_EQ(0U, address(b.bytes) % EBBI_GRANULE);
    EXPECT_EQ(40 * MiB + ebbi_os_page_size(), ebbi_huge_bytes(b.bytes));
    EXPECT_EQ(EBBI_TAG_NONE, ebbi_tag_of(b.bytes));
    EXPECT_TRUE(ebbi_huge_is(b.bytes));
    EXPECT_EQ(1U, huge_count());
    EXPECT_TRUE(ebbi_huge_free(b.bytes));
    EXPECT_FALSE(ebbi_huge_is(b.bytes));
    EXPECT_FALSE(ebbi_huge_free(b.bytes));
    EXPECT_EQ(0U, ebbi_huge_bytes(b.bytes));
    EXPECT_EQ(0U, huge_count());
}

TEST_F(Huge, ReleasesAllThatItReserved)
{
    ebbi_huge_free(huge(33 * MiB).bytes);
    std::size_t before = fake_os_held_bytes();
    for (std::size_t align = 1; align <= 64 * MiB; align *= 4) {
        Block b = huge(33 * MiB, align);
        ASSERT_NE(nullptr, b.bytes);
        EXPECT_EQ(0U, address(b.bytes) % align);
        EXPECT_EQ(before + 33 * MiB + huge_gaps, fake_os_held_bytes());
        EXPECT_TRUE(ebbi_huge_free(b.bytes));
    }
    EXPECT_EQ(before, fake_os_held_bytes());
}

bool accessible(const void *p)
{
    unsigned char resident;
    void *page = reinterpret_cast<void *>(ebbi_align_down(address(p), ebbi_os_page_size()));
    int end[2];
    EXPECT_EQ(0, pipe(end));
    bool reads = write(end[1], page, 1) == 1 && read(end[0], &resident, 1) == 1;
    close(end[0]);
    close(end[1]);
    return reads;
}

// Nothing of the allocator lies beside an object, nor another object within a megabyte, however it came there.
TEST_F(Huge, NothingCanBeTouchedBesideAnObject)
{
    const auto expect_gaps = [](const unsigned char *p) {
        const unsigned char *end = p + ebbi_huge_bytes(p);
        ASSERT_TRUE(accessible(p));
        ASSERT_TRUE(accessible(end - 1));
        for (std::size_t far : {std::size_t{1}, 4 * KiB, EBBI_GRANULE, MiB, MiB + 4 * KiB}) {
            ASSERT_FALSE(accessible(end + far - 1)) << far;
            ASSERT_FALSE(accessible(p - far)) << far;
        }
    };
    std::vector<Block> live;
    for (int i = 0; i < 6; i++) {
        live.push_back(huge(33 * MiB + 12345));
        expect_gaps(live.back().bytes);
    }
    auto *p = live[2].bytes;
    for (std::size_t bytes : {34 * MiB, 33 * MiB, 70 * MiB, 35 * MiB}) {
        p = static_cast<unsigned char *>(ebbi_huge_resize(p, bytes, true));
        expect_gaps(p);
        fake_os_refuse(FAKE_RESIZE, bytes == 33 * MiB ? 1 : 100, false);
    }
    ASSERT_TRUE(ebbi_huge_keep(p));
    auto *again = static_cast<unsigned char *>(ebbi_huge_take(33 * MiB, 1, false));
    ASSERT_EQ(p, again);
    expect_gaps(again);
    for (std::size_t i = 0; i < live.size(); i++)
        if (i != 2)
            expect_gaps(live[i].bytes);
}

// Of another's mapping so far behind the end of a huge object; NULL: nobody could put it there.
struct Neighbour {
    explicit Neighbour(std::size_t far)
    {
        void *room = ebbi_huge_alloc(64 * MiB, 1,
                                     false); // which the kernel has right behind the next, mostly
        object = huge(33 * MiB);
        EXPECT_TRUE(ebbi_huge_free(room));
        void *wanted = object.bytes + ebbi_huge_bytes(object.bytes) + far;
        void *got =
            mmap(wanted, EBBI_GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        is_there = got == wanted;
        start = got;
    }
    Neighbour(const Neighbour &) = delete;
    Neighbour &operator=(const Neighbour &) = delete;
    ~Neighbour() { munmap(start, EBBI_GRANULE); }
    Block object;
    void *start = nullptr;
    bool is_there = false;
};

bool has_a_gap_behind(const unsigned char *p)
{
    const unsigned char *end = p + ebbi_huge_bytes(p);
    return !accessible(end) && !accessible(end + MiB) && !accessible(end + 2 * MiB - 1);
}

TEST_F(Huge, WhereSomebodyIsTooCloseAnObjectMoves)
{
    for (std::size_t far : {2 * MiB, 3 * MiB, 4 * MiB - 64 * KiB}) {
        Neighbour close(far);
        if (!close.is_there)
            GTEST_SKIP() << "there is something else";
        Block b = close.object;
        auto *to = static_cast<unsigned char *>(ebbi_huge_resize(b.bytes, 35 * MiB, true));
        ASSERT_NE(nullptr, to);
        EXPECT_NE(b.bytes, to);
        b.bytes = to;
        EXPECT_TRUE(b.intact(256));
        EXPECT_TRUE(has_a_gap_behind(to));
        EXPECT_TRUE(ebbi_huge_free(to));
    }
}

// Where it cannot move it stays, and the next one that has its mapping does not.
TEST_F(Huge, AGapThatWasLostIsMadeUpForByTheNext)
{
    Neighbour close(2 * MiB);
    if (!close.is_there)
        GTEST_SKIP() << "there is something else";
    Block b = close.object;
    fake_os_refuse(FAKE_MOVE, 1, true);
    ASSERT_EQ(b.bytes, ebbi_huge_resize(b.bytes, 34 * MiB, true));
    EXPECT_TRUE(b.intact(256));
    fake_os_allow();
    EXPECT_TRUE(ebbi_huge_keep(b.bytes));
    auto *next = static_cast<unsigned char *>(ebbi_huge_take(34 * MiB, 1, false));
    ASSERT_NE(nullptr, next);
    EXPECT_NE(b.bytes, next);
    EXPECT_TRUE(has_a_gap_behind(next));
    EXPECT_TRUE(ebbi_huge_free(next));
}

// Of as many as chains have room for in a granule, and more; they are used again.
TEST_F(Huge, RecordsAreUsedAgain)
{
    std::size_t own = 0;
    for (int round = 0; round < 3; round++) {
        std::vector<void *> objects;
        for (int i = 0; i < 1000; i++)
            objects.push_back(ebbi_huge_alloc(ebbi_os_page_size(), 1, false));
        own = round == 0 ? ebbi_used_granules : own;
        EXPECT_EQ(own, ebbi_used_granules);
        for (void *p : objects)
            ASSERT_TRUE(ebbi_huge_free(p));
    }
}

TEST_F(Huge, WithoutARecordThereIsNoObject)
{
    for (fake_call call : {FAKE_RESERVE, FAKE_COMMIT})
        for (std::size_t n = 1; n <= 6; n++) {
            fake_os_refuse(call, n, true);
            void *p = ebbi_huge_alloc(33 * MiB, 1, false);
            fake_os_allow();
            if (p != nullptr) {
                EXPECT_TRUE(ebbi_huge_free(p));
            }
            EXPECT_EQ(0U, huge_count());
        }
    EXPECT_TRUE(ebbi_huge_free(huge(33 * MiB).bytes));
}

TEST_F(Huge, KnowsOnlyStarts)
{
    Block b = huge(33 * MiB);
    for (std::size_t offset : {std::size_t{16}, std::size_t{4096}, EBBI_GRANULE, 32 * MiB}) {
        EXPECT_EQ(0U, ebbi_huge_bytes(b.bytes + offset));
        EXPECT_FALSE(ebbi_huge_free(b.bytes + offset));
    }
    int local = 0;
    EXPECT_EQ(0U, ebbi_huge_bytes(&local));
    EXPECT_EQ(0U, ebbi_huge_bytes(nullptr));
    EXPECT_TRUE(b.intact());
}

TEST_F(Huge, GrowsAndShrinksWithItsContents)
{
    Block b = huge(40 * MiB);
    const std::size_t held = fake_os_held_bytes() - 40 * MiB;
    for (std::size_t bytes : {80 * MiB, 41 * MiB, 200 * MiB, 33 * MiB}) {
        auto *to = static_cast<unsigned char *>(ebbi_huge_resize(b.bytes, bytes, true));
        ASSERT_NE(nullptr, to);
        b.bytes = to;
        EXPECT_TRUE(b.intact(256));
        EXPECT_EQ(bytes, ebbi_huge_bytes(to));
        to[bytes - 1] = 1;
        EXPECT_EQ(1U, huge_count());
        EXPECT_EQ(held + bytes, fake_os_held_bytes()) << "its gaps went along";
    }
    EXPECT_TRUE(ebbi_huge_free(b.bytes));
}

TEST_F(Huge, MovesItsPagesWhenItCannotGrowInPlace)
{
    Block b = huge(40 * MiB);
    std::size_t held = fake_os_held_bytes();
    fake_os_refuse(FAKE_RESIZE, 1, true);
    auto *to = static_cast<unsigned char *>(ebbi_huge_resize(b.bytes, 60 * MiB, true));
    ASSERT_NE(nullptr, to);
    EXPECT_NE(b.bytes, to);
    EXPECT_FALSE(ebbi_huge_is(b.bytes));
    EXPECT_EQ(1U, fake_os_count(FAKE_MOVE));
    EXPECT_EQ(held + 20 * MiB, fake_os_held_bytes());
    b.bytes = to;
    EXPECT_TRUE(b.intact());
    EXPECT_TRUE(ebbi_huge_free(to));
}

// What the program says of an object's pages is said of all that moves.
TEST_F(Huge, MovesWithWhatWasAdvisedOfItsPages)
{
    Block b = huge(40 * MiB);
    ASSERT_EQ(0, madvise(b.bytes, b.size, MADV_DONTFORK));
    for (bool in_place : {true, false}) {
        fake_os_refuse(FAKE_RESIZE, in_place ? 100 : 1, true);
        b.bytes = static_cast<unsigned char *>(ebbi_huge_resize(b.bytes, 60 * MiB, true));
        ASSERT_NE(nullptr, b.bytes);
        b.bytes = static_cast<unsigned char *>(ebbi_huge_resize(b.bytes, 40 * MiB, true));
        ASSERT_NE(nullptr, b.bytes);
        EXPECT_TRUE(b.intact());
    }
    EXPECT_TRUE(ebbi_huge_free(b.bytes));
}

TEST_F(Huge, ARefusedAllocationLeavesNothingBehind)
{
    ebbi_huge_free(huge(33 * MiB).bytes);
    std::size_t held = fake_os_held_bytes();
    for (fake_call call : {FAKE_RESERVE, FAKE_COMMIT}) {
        fake_os_refuse(call, 1, true);
        EXPECT_EQ(nullptr, ebbi_huge_alloc(33 * MiB, 1, false)) << fake_os_name(call);
        fake_os_allow();
        EXPECT_EQ(held, fake_os_held_bytes()) << fake_os_name(call);
        EXPECT_EQ(0U, huge_count());
    }
    EXPECT_EQ(nullptr, ebbi_huge_alloc(SIZE_MAX / 2, std::size_t{1} << 62, false));
    EXPECT_NE(nullptr, huge(33 * MiB).bytes);
}

TEST_F(Huge, ARefusedResizeLeavesTheObjectIntact)
{
    for (bool limited : {false, true}) {
        Block b = huge(40 * MiB);
        std::size_t held = fake_os_held_bytes();
        fake_os_limit(limited ? held + 30 * MiB : SIZE_MAX);
        fake_os_refuse(FAKE_RESIZE, 1, true);
        fake_os_refuse(FAKE_MOVE, 1, true);
        EXPECT_EQ(nullptr, ebbi_huge_resize(b.bytes, 60 * MiB, true)) << limited;
        EXPECT_EQ(held, fake_os_held_bytes()) << limited;
        fake_os_allow();
        if (limited) {
            EXPECT_EQ(nullptr, ebbi_huge_resize(b.bytes, 80 * MiB, true));
        }
        EXPECT_EQ(held, fake_os_held_bytes()) << limited;
        EXPECT_EQ(40 * MiB, ebbi_huge_bytes(b.bytes));
        EXPECT_TRUE(b.intact());
        EXPECT_EQ(1U, huge_count());
        EXPECT_TRUE(ebbi_huge_free(b.bytes));
    }
}

// Takes a page below an object, so that nothing moves to right below it.
struct Hindrance {
    static constexpr std::size_t bytes = 4 * KiB;
    void *at;
    Hindrance(const void *object, std::size_t pages)
        : at(mmap(reinterpret_cast<void *>(address(object) - (pages + 2) * bytes), bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
    {
    }
    ~Hindrance() { munmap(at, bytes); }
};

// The kernel moves it; an object may lie where it comes to, or not.
void grow_alone(std::size_t step, bool hindered)
{
    std::deque<Hindrance> hindrances;
    std::size_t before = fake_os_held_bytes();
    Block b = huge(33 * MiB);
    for (std::size_t bytes = 33 * MiB + step; bytes < 33 * MiB + 24 * step; bytes += step) {
        fake_os_limit(fake_os_held_bytes() + step + 2 * EBBI_GRANULE);
        fake_os_refuse(FAKE_RESIZE, 1, true);
        for (std::size_t n : {0, 1, 40, 4000})
            if (hindered)
                hindrances.emplace_back(b.bytes, n);
        auto *to = static_cast<unsigned char *>(ebbi_huge_resize(b.bytes, bytes, true));
        ASSERT_NE(nullptr, to) << bytes;
        b.bytes = to;
        ASSERT_EQ(0U, address(to) % EBBI_GRANULE);
        ASSERT_GE(ebbi_huge_bytes(to), bytes);
        ASSERT_LE(ebbi_huge_bytes(to), bytes + EBBI_GRANULE);
        ASSERT_EQ(before + ebbi_huge_bytes(to), fake_os_held_bytes()) << "and no gaps";
        ASSERT_TRUE(b.intact());
        to[ebbi_huge_bytes(to) - 1] = 1;
        ASSERT_EQ(1U, huge_count());
    }
    fake_os_allow();
    fake_os_limit(SIZE_MAX);
    EXPECT_TRUE(b.intact());
    EXPECT_TRUE(ebbi_huge_free(b.bytes));
    EXPECT_EQ(before, fake_os_held_bytes());
}

TEST_F(Huge, GrowsWhereALimitHasNoRoomForBothPlaces)
{
    for (bool hindered : {false, true})
        for (std::size_t step : {4 * KiB, 68 * KiB, 300 * KiB, MiB})
            ASSERT_NO_FATAL_FAILURE(grow_alone(step, hindered)) << step << hindered;
}

TEST_F(Huge, WhatIsLessThanAGranuleTooLongStays)
{
    Block b = huge(40 * MiB);
    EXPECT_EQ(b.bytes, ebbi_huge_resize(b.bytes, 40 * MiB - EBBI_GRANULE + 1, true));
    EXPECT_EQ(40 * MiB, ebbi_huge_bytes(b.bytes));
    EXPECT_EQ(b.bytes, ebbi_huge_resize(b.bytes, 40 * MiB - EBBI_GRANULE, true));
    EXPECT_EQ(40 * MiB - EBBI_GRANULE, ebbi_huge_bytes(b.bytes));
    EXPECT_TRUE(ebbi_huge_free(b.bytes));
}

// More objects than chains.
TEST_F(Huge, ThousandsAreFound)
{
    std::vector<void *> objects;
    for (int i = 0; i < 3000; i++)
        objects.push_back(ebbi_huge_alloc(ebbi_os_page_size(), 1, false));
    for (std::size_t i = 0; i < objects.size(); i += 2)
        ASSERT_TRUE(ebbi_huge_free(objects[i])) << i;
    for (std::size_t i = 0; i < objects.size(); i++)
        ASSERT_EQ(i % 2 == 1, ebbi_huge_is(objects[i])) << i;
    for (std::size_t i = 1; i < objects.size(); i += 2)
        ASSERT_TRUE(ebbi_huge_free(objects[i])) << i;
    EXPECT_EQ(0U, huge_count());
}

TEST_F(Huge, TakesTheAddressSpaceOfFreeChunks)
{
    fake_os_threaded(false);
    EXPECT_TRUE(ebbi_huge_free(huge(33 * MiB).bytes)); // its record is in a chunk that stays
    struct ebbi_span *span = ebbi_span_alloc(9000, 1, EBBI_SPAN_LARGE);
    ASSERT_NE(nullptr, span);
    ebbi_span_free(span);
    fake_os_limit(fake_os_held_bytes() + MiB);
    EXPECT_TRUE(ebbi_huge_free(huge(500 * MiB).bytes));
}

TEST_F(Huge, ManyComeAndGoInAnyOrder)
{
    Random random(7);
    std::vector<Block> live;
    for (int step = 0; step < 300; step++) {
        if (live.size() < 8 && random.chance(2)) {
            live.push_back(huge(32 * MiB + random.below(64 * MiB)));
            ASSERT_NE(nullptr, live.back().bytes);
        } else if (!live.empty()) {
            std::size_t i = random.below(live.size());
            ASSERT_TRUE(live[i].intact());
            ASSERT_TRUE(ebbi_huge_free(live[i].bytes));
            live[i] = live.back();
            live.pop_back();
        }
        ASSERT_EQ(live.size(), huge_count());
    }
}

// A kept mapping serves what is to lie where it lies, and nothing else.
TEST_F(Huge, AKeptMappingServesAlignedObjectsWhereItLies)
{
    Block b = huge(40 * MiB, 16 * MiB);
    std::size_t aligned = std::size_t{1} << __builtin_ctzll(address(b.bytes));
    ASSERT_GE(aligned, 16 * MiB);
    EXPECT_TRUE(ebbi_huge_keep(b.bytes));
    EXPECT_EQ(nullptr, ebbi_huge_take(30 * MiB, 2 * aligned, false));
    EXPECT_EQ(nullptr, ebbi_huge_take(60 * MiB, 16 * MiB, false)) << "it might move";
    EXPECT_EQ(b.bytes, ebbi_huge_take(30 * MiB, aligned, false));
    EXPECT_TRUE(ebbi_huge_keep(b.bytes));
    fake_os_refuse(FAKE_RESIZE, 1, true);
    for (int i = 0; i < 2; i++) { // moved, it lies by chance, or not
        void *moved = ebbi_huge_take(20 * MiB, 16 * MiB, false);
        EXPECT_EQ(0U, address(moved) % (16 * MiB));
        EXPECT_EQ(moved != nullptr ? 1U : 0U, huge_count());
        if (moved != nullptr) {
            EXPECT_TRUE(ebbi_huge_free(moved));
        }
    }
}

TEST_F(Huge, MisuseIsNamed)
{
    auto *p = static_cast<char *>(ebb_malloc(40 * MiB));
    auto *other = static_cast<char *>(ebb_malloc(50 * MiB));
    EXPECT_DEATH(ebb_free(p + EBBI_GRANULE),
                 "invalid free: .* is 65536 bytes inside the block of 41943040 bytes");
    EXPECT_DEATH(ebb_malloc_usable_size(p + 1),
                 "invalid pointer: .* is 1 bytes inside the block of");
    ebb_free(p);
    EXPECT_DEATH(ebb_free(p), "double free: .*, a block of 41943040 bytes, is free already");
    EXPECT_DEATH(ebb_free(p + 4096), "invalid free: .* is 4096 bytes inside .*, which is free");
    EXPECT_DEATH(ebb_malloc_usable_size(p), "invalid pointer: .*, which is free");
    ebb_trim();
    EXPECT_DEATH(ebb_free(p), "double free") << "its mapping has ended";
    ebb_free(other);
    p = static_cast<char *>(ebb_malloc(40 * MiB));
    EXPECT_DEATH(ebb_free(p - EBBI_GRANULE), "invalid free");
    ebb_free(p);
}

} // namespace
