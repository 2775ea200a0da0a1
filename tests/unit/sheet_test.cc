// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: sheets from inside. The audit finds each property of region/sheet.h that is broken, and
// none broken after what a program may do.
#include <sys/wait.h>
#include <unistd.h>

#include "ebbtide/region.h"
#include "support/engine.h"

namespace {

using namespace unit;

std::uint64_t *word_of(std::uintptr_t p, std::size_t map)
{
    return ebbi_sheet_room(p) + map * EBBI_UNIT_WORDS + p % EBBI_GRANULE / EBBI_UNIT / 64;
}

std::uint64_t bit_of(std::uintptr_t p) { return std::uint64_t{1} << (p / EBBI_UNIT % 64); }

constexpr std::size_t start_map = 0, gone_map = 1, remote_map = 2;

struct Sheet : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        fake_os_threaded(false); // counts have to be exact
        region = ebb_region_open(nullptr);
        ASSERT_NE(nullptr, region);
        for (void *&block : blocks)
            block = ebb_region_alloc(region, 500);
        ebb_free(blocks[1]);
        sheet = ebbi_sheet_of(blocks[0]);
    }
    std::uintptr_t last() const
    {
        return ebbi_sheet_start(sheet) + ebbi_sheet_bytes(sheet) - EBBI_UNIT;
    }
    void flip(std::uintptr_t p, std::size_t map) { *word_of(p, map) ^= bit_of(p); }
    // A new sheet, so that the first one is sealed.
    void seal() { ASSERT_NE(nullptr, ebb_region_alloc(region, 100 * KiB)); }

    ebb_region *region = nullptr;
    void *blocks[8] = {};
    ebbi_sheet *sheet = nullptr;
};

TEST_F(Sheet, IsWholeOpenAndSealed)
{
    ebbi_sheet_audit(sheet);
    seal();
    ASSERT_EQ(nullptr, sheet->cursor);
    ebbi_sheet_audit(sheet);
    ebb_region_reset(region);
    ebbi_sheet_audit(sheet);
    ebb_region_release(region);
}

TEST_F(Sheet, P1TheCursorsBit)
{
    flip(region->front.cursor.next, start_map);
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P1: the cursor's bit");
}

TEST_F(Sheet, P1NothingBehindTheCursor)
{
    flip(region->front.cursor.next + 5 * EBBI_UNIT, start_map);
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P1: a block begins behind");
}

TEST_F(Sheet, P2TheLastUnit)
{
    flip(last(), gone_map);
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P2: the last unit");
    flip(last(), gone_map);
    flip(last(), start_map);
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P2: the last unit");
}

TEST_F(Sheet, P2TheCursorLiesInItsHole)
{
    region->front.cursor.from = region->front.cursor.next + EBBI_UNIT;
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P2: an open cursor");
}

TEST_F(Sheet, P3TheCounts)
{
    for (int more : {1, -1}) {
        sheet->live += more;
        EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P3: blocks in use");
        sheet->live -= more;
        sheet->shared += more;
        EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P3: blocks in use");
        sheet->shared -= more;
    }
}

TEST_F(Sheet, P3TooManyCountedAreNoErrorWhereThreadsFree)
{
    fake_os_threaded(true);
    sheet->live++;
    ebbi_sheet_audit(sheet);
    sheet->live -= 2;
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P3: blocks in use");
}

TEST_F(Sheet, P3FreedIsWhatBegins)
{
    for (std::size_t map : {gone_map, remote_map}) {
        flip(address(blocks[2]) + EBBI_UNIT, map);
        EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P3: freed, and no block");
        flip(address(blocks[2]) + EBBI_UNIT, map);
    }
}

TEST_F(Sheet, P5Starts)
{
    sheet->starts++;
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P5: starts: 1, found 0");
    sheet->starts--;
    seal();
    sheet->starts--;
    EXPECT_DEATH(ebbi_sheet_audit(sheet), "ebbtide: .*: sheet P5: starts: 8, found 9");
}

void audit_all(const ebb_region *region)
{
    for (const ebbi_sheet *s = region->sheets; s != nullptr; s = s->next)
        ebbi_sheet_audit(s);
}

// The cursor is set over the end of a sheet, behind the end marker of a seal before.
TEST_F(Sheet, AHoleTakesAMarkerIn)
{
    ebb_region_reset(region);
    void *small = ebb_region_alloc(region, 32);
    void *freed = ebb_region_alloc(region, 30000);
    ASSERT_NE(nullptr, ebb_region_alloc(region, 60000));
    ebb_free(freed);
    ASSERT_EQ(freed, ebb_region_alloc(region, 40000));
    audit_all(region);
    ebb_free(small);
    ebb_region_reset(region);
    audit_all(region);
    void *p = ebb_region_alloc(region, 32);
    EXPECT_EQ(region, ebb_region_of(p));
    audit_all(region);
}

// A block that ends with its sheet is made shorter: the sheet's end stays what it is.
TEST_F(Sheet, ABlockLeavesTheSheetsEnd)
{
    ebb_region_reset(region);
    const std::size_t whole = ebbi_sheet_bytes(sheet) - EBBI_UNIT;
    void *p = ebb_region_alloc(region, whole);
    ASSERT_EQ(last(), region->front.cursor.next);
    ASSERT_EQ(p, ebb_region_realloc(region, p, 100));
    audit_all(region);
    ASSERT_EQ(p, ebb_region_realloc(region, p, whole));
    audit_all(region);
    seal();
    audit_all(region);
}

// What a program may do, for a while; counts and bits agree after each step.
class Life {
public:
    Life(ebb_region *region, std::uint64_t seed) : region_(region), random_(seed) {}
    void step()
    {
        const std::size_t i = random_.below(blocks_.size());
        const std::size_t bytes = random_.below(random_.chance(4) ? 100000 : 2000);
        if (random_.chance(200)) {
            ebb_region_reset(region_);
            std::fill(blocks_.begin(), blocks_.end(), nullptr);
        } else if (random_.chance(5)) {
            blocks_[i] = ebb_region_realloc(region_, blocks_[i], bytes + 1);
        } else if (blocks_[i] != nullptr) {
            ebb_free(blocks_[i]);
            blocks_[i] = nullptr;
        } else if (random_.chance(5)) {
            blocks_[i] =
                ebb_region_aligned_alloc(region_, std::size_t{1} << random_.below(17), bytes);
        } else {
            blocks_[i] = ebb_region_alloc(region_, bytes);
        }
    }

private:
    ebb_region *region_;
    Random random_;
    std::vector<void *> blocks_ = std::vector<void *>(24);
};

TEST_F(Sheet, IsWholeAfterEveryStep)
{
    for (bool owned : {true, false}) {
        if (!owned)
            ebb_region_detach(region); // all steps go through the common cursor
        for (std::uint64_t seed = 1; seed <= 3; seed++) {
            ebb_region_reset(region);
            Life life(region, seed);
            for (int i = 0; i < 2000; i++) {
                life.step();
                ASSERT_NO_FATAL_FAILURE(audit_all(region));
            }
        }
    }
}

// The child of a fork, where another thread was in the middle of a free as an owner: the next thread in
// its heap is not.
TEST_F(Sheet, AFreeDuringAForkIsOverInTheChild)
{
    if (emulated)
        GTEST_SKIP() << "the emulator starts no thread in such a child";
    fake_os_threaded(true);
    fake_os_pretend_threads();
    std::atomic<int> step{0};
    ebbi_heap *heap = nullptr;
    std::thread frees([&] {
        ebb_region *own = ebb_region_open(nullptr);
        heap = ebbi_heap_get();
        step = 1;
        while (step != 2)
            std::this_thread::yield();
        ebb_region_release(own);
    });
    while (step != 1)
        std::this_thread::yield();
    heap->fast.pin.busy = 1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        ebb_region *opened = nullptr;
        bool done = false;
        std::thread adopts([&] {
            opened = ebb_region_open(nullptr);
            done = ebbi_heap_get() == heap;
            step = 3;
            while (step != 4)
                std::this_thread::yield();
        });
        while (step != 3)
            std::this_thread::yield();
        ebb_region_close(opened);
        step = 4;
        adopts.join();
        _exit(done ? 42 : 1);
    }
    heap->fast.pin.busy = 0;
    step = 2;
    frees.join();
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(42, WEXITSTATUS(status));
}

} // namespace
