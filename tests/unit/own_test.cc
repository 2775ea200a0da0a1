// SPDX-License-Identifier: MIT OR Apache-2.0
// Granules for the allocator's own records (src/arena/own.c), against the OS that refuses.
#include "ebbtide/region.h"
#include "support/arena_walk.h"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <functional>
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

// ---- what is asked for while another thread, or a signal handler, asks for the same ---------------------

std::size_t clusters()
{
    std::size_t count = 0;
    ebbi_arena_each_chunk(
        [](ebbi_chunk *chunk, void *context) {
            for (std::size_t g = chunk->first; g < chunk->granules;) {
                const ebbi_span *span = ebbi_chunk_header(chunk, g);
                *static_cast<std::size_t *>(context) += span->state == EBBI_SPAN_OWN;
                g += span->granules;
            }
        },
        &count);
    return count;
}

// The next granule is of a new cluster.
void use_up_clusters()
{
    void *granule;
    std::size_t before = clusters();
    do
        granule = ebbi_own_take();
    while (clusters() == before);
    ebbi_own_give(granule);
}

std::function<void()> asks_meanwhile;

struct OwnMeanwhile : Own {
    void SetUp() override
    {
        Own::SetUp();
        ebb_free(ebb_malloc(1)); // the thread has its heap
    }
    void TearDown() override { fake_os_watch_close(nullptr); }
    // Amid the next call that asks for a granule of its own.
    static void meanwhile(std::function<void()> ask)
    {
        use_up_clusters();
        asks_meanwhile = std::move(ask);
        fake_os_watch_close([] {
            fake_os_watch_close(nullptr);
            std::function<void()> ask_once;
            std::swap(ask_once, asks_meanwhile);
            ask_once();
        });
    }
};

TEST_F(OwnMeanwhile, ALabelIsFoundByBoth)
{
    auto name = [](std::uint64_t n) { return "label " + std::to_string(n); };
    while (ebbi_labels.labels < EBBI_BOARD_LABELS + EBBI_LABELS_A_PART)
        ASSERT_NE(nullptr, ebbi_label_find(name(ebbi_labels.labels).c_str(), false));
    const std::string pairs[][2] = {{"one", "one"}, {"two", "three"}};
    for (const auto &pair : pairs) {
        const std::string &here = pair[0], &there = pair[1];
        const ebbi_label *theirs = nullptr;
        const std::size_t before = clusters();
        const std::uint64_t labels = ebbi_labels.labels;
        meanwhile([&] { theirs = ebbi_label_find(there.c_str(), true); });
        const ebbi_label *mine = ebbi_label_find(here.c_str(), true);
        ASSERT_NE(nullptr, theirs) << "nobody asked";
        EXPECT_EQ(here, mine->name);
        EXPECT_EQ(there, theirs->name);
        EXPECT_EQ(here == there, mine == theirs);
        EXPECT_EQ(labels + (mine == theirs ? 1 : 2), ebbi_labels.labels);
        EXPECT_EQ(before + 1, clusters()) << "the granule too many is still there";
        while ((ebbi_labels.labels - EBBI_BOARD_LABELS) % EBBI_LABELS_A_PART != 0)
            ASSERT_NE(nullptr, ebbi_label_find(name(ebbi_labels.labels).c_str(), false));
    }
}

TEST_F(OwnMeanwhile, ARegionIsOpenedByBoth)
{
    std::vector<ebb_region *> open;
    std::size_t before = 0;
    bool asked = false;
    while (!asked) {
        before = clusters();
        meanwhile([&] {
            asked = true;
            open.push_back(ebb_region_open(nullptr));
        });
        open.push_back(ebb_region_open(nullptr));
    }
    EXPECT_EQ(before + 1, clusters()) << "the granule too many is still there";
    EXPECT_EQ(open.size(), std::set<ebb_region *>(open.begin(), open.end()).size());
    for (ebb_region *region : open) {
        ASSERT_NE(nullptr, region);
        EXPECT_NE(nullptr, ebb_region_alloc(region, 100));
        ebb_region_release(region);
    }
}

// Each has a heap for the domain afterwards, and what they allocate there is two blocks.
TEST_F(OwnMeanwhile, ADomainIsEnteredByBoth)
{
    ebb_domain *domain = ebb_domain_open("entered");
    ASSERT_NE(nullptr, domain);
    void *theirs = nullptr, *mine = nullptr;
    const auto allocate = [&] {
        const ebb_scope before = ebb_domain_enter(domain);
        void *p = ebb_malloc(100);
        ebb_leave(before);
        return p;
    };
    meanwhile([&] { theirs = allocate(); });
    mine = allocate();
    ASSERT_NE(nullptr, theirs) << "nobody asked";
    ASSERT_NE(nullptr, mine);
    EXPECT_NE(theirs, mine);
    EXPECT_STREQ("entered", ebbi_slab_of(mine)->owner->label->name);
    EXPECT_STREQ("entered", ebbi_slab_of(theirs)->owner->label->name);
    ebb_free(mine);
    ebb_free(theirs);
}

} // namespace
