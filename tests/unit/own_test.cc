// SPDX-License-Identifier: MIT OR Apache-2.0
// Granules for the allocator's own records (src/arena/own.c), against the OS that refuses.
#include "support/arena_walk.h"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <set>

namespace {

using namespace unit;

sigjmp_buf fault_jump;
void on_fault(int) { siglongjmp(fault_jump, 1); }

// Whether the byte can be written.
bool may_write(char *at)
{
    struct sigaction action {
    }, before_segv{}, before_bus{};
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGBUS, &action, &before_bus);
    volatile bool done = false;
    if (sigsetjmp(fault_jump, 1) == 0) {
        *static_cast<volatile char *>(at) = *static_cast<volatile char *>(at);
        done = true;
    }
    sigaction(SIGSEGV, &before_segv, nullptr);
    sigaction(SIGBUS, &before_bus, nullptr);
    return done;
}

class Own : public Fake {};

bool is_zero(const char *granule)
{
    for (std::size_t i = 0; i < EBBI_GRANULE; i++)
        if (granule[i] != 0)
            return false;
    return true;
}

TEST_F(Own, EachIsEmptyAndHasNoOther)
{
    std::set<char *> taken;
    Random random(5);
    for (int i = 0; i < 3000; i++) {
        if (random.chance(60) || taken.empty()) {
            auto *granule = static_cast<char *>(ebbi_own_take());
            ASSERT_NE(nullptr, granule);
            ASSERT_EQ(0U, address(granule) % EBBI_GRANULE);
            ASSERT_TRUE(taken.insert(granule).second) << "it is taken already";
            ASSERT_TRUE(is_zero(granule));
            std::memset(granule, 1, EBBI_GRANULE);
        } else {
            auto which = taken.begin();
            std::advance(which, random.below(std::min<std::size_t>(taken.size(), 20)));
            ebbi_own_give(*which);
            taken.erase(which);
        }
    }
    for (char *granule : taken)
        ebbi_own_give(granule);
    EXPECT_EQ("", walk_arena().broken);
}

TEST_F(Own, TheWayToThemIsClosedOnBothSides)
{
    std::set<char *> taken;
    for (int i = 0; i < 40; i++)
        taken.insert(static_cast<char *>(ebbi_own_take()));
    for (char *granule : taken) {
        char *below = granule - EBBI_GRANULE;
        char *above = granule + EBBI_GRANULE;
        EXPECT_TRUE(may_write(granule) && may_write(above - 1));
        EXPECT_EQ(taken.count(below) != 0, may_write(above - EBBI_GRANULE - 1) && may_write(below))
            << "the end of the program's memory, or another record";
    }
    for (char *granule : taken)
        ebbi_own_give(granule);
}

// What lies below the first block of a chunk is nobody's.
TEST_F(Own, AChunkBeginsWithAGap)
{
    ebbi_span *span = ebbi_span_alloc(1, 1, EBBI_SPAN_SHEET);
    const auto *chunk =
        reinterpret_cast<ebbi_chunk *>(address(ebbi_span_start(span)) & ~(EBBI_CHUNK - 1));
    char *first = reinterpret_cast<char *>(address(chunk)) +
                  (std::size_t{chunk->first} << EBBI_GRANULE_SHIFT);
    EXPECT_FALSE(may_write(first - 1));
    EXPECT_FALSE(may_write(first - EBBI_GRANULE));
    EXPECT_LT(std::size_t{chunk->granules}, EBBI_CHUNK_GRANULES);
    ebbi_span_free(span);
}

// The kernel may put a huge object beside the table of tags.
TEST_F(Own, TheTableOfTagsHasAGapAtEachEnd)
{
    char *table = reinterpret_cast<char *>(ebbi_window.tags);
    char *end = reinterpret_cast<char *>(ebbi_window.tags + ebbi_window.granules);
    EXPECT_FALSE(may_write(table - 1) || may_write(table - EBBI_GRANULE));
    EXPECT_FALSE(may_write(end) || may_write(end + EBBI_GRANULE - 1));
}

TEST_F(Own, WithoutMemoryThereIsNoneAndLaterThereIs)
{
    for (fake_call call : {FAKE_COMMIT, FAKE_RESERVE, FAKE_MAP})
        fake_os_refuse(call, 1, true);
    std::vector<void *> taken;
    while (void *granule = ebbi_own_take())
        taken.push_back(granule);
    fake_os_allow();
    for (int i = 0; i < 100; i++) {
        taken.push_back(ebbi_own_take());
        ASSERT_NE(nullptr, taken.back());
    }
    for (void *granule : taken)
        ebbi_own_give(granule);
    EXPECT_EQ("", walk_arena().broken);
}

} // namespace
