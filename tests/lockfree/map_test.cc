// SPDX-License-Identifier: MIT OR Apache-2.0
// The hash map: against std::map, keys that are compared, growth, races, who destroys what and when.
#include <map>
#include <set>
#include <string>

#include "ebbtide/map.h"
#include "lockfree/support.h"

namespace {

using lockfree::item;
using lockfree::number;

class Map : public testing::Test {
protected:
    ~Map() override { ebb_map_destroy(map_); }
    ebb_map *map_ = ebb_map_create(nullptr);
};

using Model = std::map<std::uint64_t, void *>;

bool collect(std::uint64_t key, void *value, void *context)
{
    return static_cast<Model *>(context)->emplace(key, value).second; // false: seen twice
}

void expect_same(ebb_map *map, const Model &model)
{
    Model seen;
    ebb_map_each(map, collect, &seen);
    EXPECT_EQ(seen, model);
    EXPECT_EQ(ebb_map_size(map), model.size());
}

void step(ebb_map *map, Model &model, std::size_t operation, std::uint64_t key, void *fresh)
{
    const auto found = model.find(key);
    void *was = found != model.end() ? found->second : nullptr;
    void *got = nullptr;
    switch (operation) {
    case 0:
        ASSERT_EQ(ebb_map_insert(map, key, fresh), found == model.end() ? 1 : 0);
        model.emplace(key, fresh);
        break;
    case 1:
        ASSERT_EQ(ebb_map_replace(map, key, fresh, &got), found == model.end() ? 1 : 0);
        ASSERT_EQ(got, was);
        model[key] = fresh;
        break;
    case 2:
        ASSERT_EQ(ebb_map_find(map, key, &got), found != model.end());
        ASSERT_EQ(got, was);
        break;
    default:
        ASSERT_EQ(ebb_map_remove(map, key, &got), found != model.end());
        ASSERT_EQ(got, was);
        model.erase(key);
    }
}

TEST_F(Map, DoesWhatStdMapDoes)
{
    support::Random random(1);
    Model model;
    for (std::size_t range : {4, 100, 20000})
        for (std::size_t i = 0; i < support::scaled(60000); i++)
            step(map_, model, random.below(4), random.below(range), item(i + 1));
    expect_same(map_, model);
}

TEST_F(Map, TakesExtremeKeysAndNullValues)
{
    void *got = item(1);
    for (std::uint64_t key : {std::uint64_t{0}, UINT64_MAX, std::uint64_t{1} << 63})
        EXPECT_EQ(ebb_map_insert(map_, key, nullptr), 1);
    EXPECT_TRUE(ebb_map_find(map_, UINT64_MAX, &got));
    EXPECT_EQ(got, nullptr);
    EXPECT_TRUE(ebb_map_find(map_, 0, nullptr));
    EXPECT_FALSE(ebb_map_find(map_, 1, &got));
    EXPECT_EQ(ebb_map_replace(map_, 0, item(3), nullptr), 0);
    EXPECT_TRUE(ebb_map_remove(map_, 0, nullptr));
    EXPECT_FALSE(ebb_map_remove(map_, 0, nullptr));
    EXPECT_EQ(ebb_map_size(map_), 2U);
}

std::uint64_t hash_text(std::uint64_t key, void *)
{
    EXPECT_TRUE(ebb_is_pinned());
    return std::hash<std::string>()(reinterpret_cast<const char *>(key));
}

std::uint64_t hash_badly(std::uint64_t, void *) { return 42; }

bool is_same_text(std::uint64_t a, std::uint64_t b, void *)
{
    EXPECT_TRUE(ebb_is_pinned());
    return std::strcmp(reinterpret_cast<const char *>(a), reinterpret_cast<const char *>(b)) == 0;
}

std::uint64_t key_of(const std::string &text)
{
    return reinterpret_cast<std::uint64_t>(text.c_str());
}

// With the bad hash everything stands in one place of the list.
void use_texts(std::uint64_t (*hash)(std::uint64_t, void *))
{
    ebb_map_options options = {hash, is_same_text, nullptr, nullptr};
    ebb_map *map = ebb_map_create(&options);
    std::vector<std::string> texts;
    for (int i = 0; i < 300; i++)
        texts.push_back("text " + std::to_string(i));
    for (std::string &text : texts)
        ASSERT_EQ(ebb_map_insert(map, key_of(text), &text), 1);
    for (std::size_t i = 0; i < texts.size(); i += 2)
        ASSERT_TRUE(ebb_map_remove(map, key_of(std::string(texts[i])), nullptr));
    for (std::size_t i = 0; i < texts.size(); i++) {
        void *got = nullptr;
        ASSERT_EQ(ebb_map_find(map, key_of(std::string(texts[i])), &got), i % 2 == 1);
        ASSERT_EQ(got, i % 2 == 1 ? &texts[i] : nullptr);
        ASSERT_EQ(ebb_map_insert(map, key_of(texts[i]), &texts[i]), i % 2 == 0 ? 1 : 0);
    }
    ebb_map_destroy(map);
}

TEST(MapKeys, MayBeWhatTheCallerCompares) { use_texts(hash_text); }
TEST(MapKeys, MayAllHaveOneHash) { use_texts(hash_badly); }

TEST(MapKeys, NeedBothFunctions)
{
    ebb_map_options options = {hash_text, nullptr, nullptr, nullptr};
    EXPECT_EQ(ebb_map_create(&options), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ebb_map_destroy(nullptr);
}

// Each thread inserts, replaces and removes keys of its own among the others', and looks for one that
// is always there.
TEST_F(Map, KeepsEveryThreadsKeysWhileItGrows)
{
    const std::size_t each = support::scaled(40000);
    const std::size_t before = lockfree::live_blocks();
    ASSERT_EQ(ebb_map_insert(map_, UINT64_MAX, item(5)), 1);
    lockfree::run_together(3, [&](unsigned id) {
        void *got;
        for (std::uint64_t i = 0; i < each; i++) {
            const std::uint64_t key = i * 3 + id;
            ASSERT_EQ(ebb_map_insert(map_, key, item(key)), 1);
            ASSERT_EQ(ebb_map_replace(map_, key, item(key + 1), &got), 0);
            ASSERT_EQ(got, item(key));
            ASSERT_TRUE(ebb_map_find(map_, UINT64_MAX, &got));
        }
        for (std::uint64_t i = 0; i < each; i++) {
            ASSERT_TRUE(ebb_map_remove(map_, i * 3 + id, &got));
            ASSERT_EQ(got, item(i * 3 + id + 1));
        }
    });
    EXPECT_EQ(ebb_map_size(map_), 1U);
    ebb_map_destroy(map_);
    map_ = nullptr;
    lockfree::expect_drained(before);
}

// A few keys, all threads: what was inserted or replaced is removed or replaced, or is still there.
TEST_F(Map, EveryEntryLeavesOnce)
{
    const std::size_t each = support::scaled(150000);
    lockfree::Ledger ledger(each * 3);
    lockfree::run_together(3, [&](unsigned id) {
        support::Random random(id);
        for (std::size_t i = 0; i < each; i++) {
            void *old = nullptr;
            if (ebb_map_replace(map_, random.below(4), item(i * 3 + id), &old) == 0)
                ledger.take(old);
            if (ebb_map_remove(map_, random.below(4), &old))
                ledger.take(old);
        }
    });
    for (std::uint64_t key = 0; key < 4; key++) {
        void *old;
        if (ebb_map_remove(map_, key, &old))
            ledger.take(old);
    }
    EXPECT_EQ(ebb_map_size(map_), 0U);
    ledger.expect_each_once();
}

// Of the keys 0 to 999 the even ones stay; a walk sees each of those once, whatever happens around.
TEST_F(Map, AWalkSeesWhatStaysOnce)
{
    for (std::uint64_t key = 0; key < 1000; key += 2)
        ASSERT_EQ(ebb_map_insert(map_, key, item(1)), 1);
    std::atomic<bool> done{false};
    lockfree::run_together(2, [&](unsigned id) {
        support::Random random(9);
        while (id == 1 && !done.load()) {
            const std::uint64_t odd = random.below(500) * 2 + 1;
            ebb_map_insert(map_, odd, item(1));
            ebb_map_replace(map_, random.below(500) * 2, item(1), nullptr);
            ebb_map_remove(map_, odd, nullptr);
        }
        for (int walk = 0; id == 0 && walk < 200; walk++) {
            std::multiset<std::uint64_t> seen;
            ebb_map_each(
                map_,
                [](std::uint64_t key, void *, void *context) {
                    if (key % 2 == 0)
                        static_cast<std::multiset<std::uint64_t> *>(context)->insert(key);
                    return true;
                },
                &seen);
            ASSERT_EQ(seen.size(), 500U);
            ASSERT_EQ(std::set<std::uint64_t>(seen.begin(), seen.end()).size(), 500U);
        }
        if (id == 0)
            done.store(true);
    });
}

bool is_same(std::uint64_t a, std::uint64_t b, void *) { return a == b; }
std::uint64_t hash_to_three(std::uint64_t key, void *) { return key % 3; }

bool see(std::uint64_t key, void *, void *context)
{
    auto *seen = static_cast<std::multiset<std::uint64_t> *>(context);
    seen->insert(key);
    return seen->count(key) == 1;
}

// Every key leaves when it is visited, and comes again.
TEST(MapHash, AWalkMeetsNoKeyTwiceThatComesAgain)
{
    ebb_map_options options = {hash_badly, is_same, nullptr, nullptr};
    ebb_map *map = ebb_map_create(&options);
    struct Walk {
        ebb_map *map;
        std::multiset<std::uint64_t> seen;
    } walk = {map, {}};
    for (std::uint64_t key = 0; key < 100; key++)
        ASSERT_EQ(ebb_map_insert(map, key, nullptr), 1);
    ebb_map_each(
        map,
        [](std::uint64_t key, void *, void *context) {
            auto *all = static_cast<Walk *>(context);
            all->seen.insert(key);
            EXPECT_TRUE(ebb_map_remove(all->map, key, nullptr));
            EXPECT_EQ(ebb_map_insert(all->map, key, nullptr), 1);
            return all->seen.count(key) == 1;
        },
        &walk);
    EXPECT_EQ(walk.seen.size(), 100U);
    EXPECT_EQ(ebb_map_size(map), 100U);
    ebb_map_destroy(map);
}

struct Destroyed {
    std::atomic<std::size_t> entries{0};
    std::atomic<std::size_t> sum{0};
};

void count_destroyed(std::uint64_t key, void *value, void *context)
{
    auto *destroyed = static_cast<Destroyed *>(context);
    destroyed->entries.fetch_add(1);
    destroyed->sum.fetch_add(key + number(value));
}

TEST(MapDestroy, PassesEachEntryOnOnceAndNotBeforePinsEnd)
{
    Destroyed destroyed;
    ebb_map_options options = {nullptr, nullptr, count_destroyed, &destroyed};
    ebb_map *map = ebb_map_create(&options);
    ebb_pin();
    ASSERT_EQ(ebb_map_insert(map, 1, item(10)), 1);
    ASSERT_EQ(ebb_map_insert(map, 1, item(99)), 0); // stays the caller's
    ASSERT_EQ(ebb_map_replace(map, 1, item(20), nullptr), 0);
    ASSERT_EQ(ebb_map_insert(map, 2, item(30)), 1);
    ASSERT_TRUE(ebb_map_remove(map, 2, nullptr));
    for (int i = 0; i < 1000; i++)
        ebb_retire(ebb_malloc(100));
    EXPECT_EQ(destroyed.entries.load(), 0U);
    ebb_unpin();
    ebb_barrier();
    EXPECT_EQ(destroyed.entries.load(), 2U);
    ebb_map_destroy(map);
    EXPECT_EQ(destroyed.entries.load(), 3U);
    EXPECT_EQ(destroyed.sum.load(), 1U + 10 + 1 + 20 + 2 + 30);
}

TEST(MapDestroy, ComesToTheSameUnderThreads)
{
    const std::size_t each = support::scaled(50000);
    const std::size_t before = lockfree::live_blocks();
    Destroyed destroyed;
    ebb_map_options options = {nullptr, nullptr, count_destroyed, &destroyed};
    ebb_map *map = ebb_map_create(&options);
    lockfree::run_together(3, [&](unsigned id) {
        support::Random random(id);
        for (std::size_t i = 0; i < each; i++) {
            ASSERT_GE(ebb_map_replace(map, random.below(50), nullptr, nullptr), 0);
            ebb_map_remove(map, random.below(50), nullptr);
        }
    });
    ebb_map_destroy(map);
    EXPECT_EQ(destroyed.entries.load(), each * 3);
    lockfree::expect_drained(before);
}

// Of keys that share three hashes: walks meet none twice, and what has left is passed on by the next barrier, although
// its key may have come again in front of it.
TEST(MapHash, KeysThatShareOneComeAndGoUnderThreads)
{
    Destroyed destroyed;
    std::atomic<std::size_t> left{0};
    ebb_map_options options = {hash_to_three, is_same, count_destroyed, &destroyed};
    ebb_map *map = ebb_map_create(&options);
    const std::size_t rounds = support::scaled(600);
    for (std::size_t round = 0; round < rounds; round++) {
        lockfree::run_together(3, [&](unsigned id) {
            support::Random random(round * 3 + id);
            for (int i = 0; i < 200; i++) {
                left += ebb_map_remove(map, random.below(6), nullptr);
                left += ebb_map_replace(map, random.below(6), nullptr, nullptr) == 0;
                std::multiset<std::uint64_t> seen;
                if (i % 16 == 0)
                    ebb_map_each(map, see, &seen);
                ASSERT_EQ(seen.size(), std::set<std::uint64_t>(seen.begin(), seen.end()).size());
            }
        });
        ebb_barrier();
        ASSERT_EQ(destroyed.entries.load(), left.load());
    }
    ebb_map_destroy(map);
}

} // namespace
