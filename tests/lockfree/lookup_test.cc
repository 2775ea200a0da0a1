// SPDX-License-Identifier: MIT OR Apache-2.0
// The program's own functions are not called for those of the library that have their names.
#include <atomic>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ebbtide.hpp"
#include "ebbtide/hazard_pointer.hpp"
#include "ebbtide/lockfree.hpp"
#include "ebbtide/object.hpp"
#include "ebbtide/rcu.hpp"
#include "ebbtide/region.hpp"

namespace app {

int calls;

// As good for every call as any.
#define GREEDY(name)                                                                               \
    template <typename... As> void name(As &&...) { calls++; }                                     \
    template <typename T, typename... As> T *name(As &&...)                                        \
    {                                                                                              \
        calls++;                                                                                   \
        return nullptr;                                                                            \
    }
GREEDY(make)
GREEDY(destroy)
GREEDY(need)
GREEDY(give_back)
GREEDY(allocate)
GREEDY(block_of)
GREEDY(address_of)
GREEDY(retire)
GREEDY(retire_hooked)
GREEDY(promote)
GREEDY(plain)
GREEDY(copy)
GREEDY(read)
GREEDY(put)
GREEDY(name)
GREEDY(visit)
GREEDY(construct)
GREEDY(is_rcu_base)
GREEDY(hazard_base)
GREEDY(ebb_free)
GREEDY(ebb_map_each)
GREEDY(ebb_region_promote)
GREEDY(ebb_retire_with)
GREEDY(ebb_retire_hooked)
GREEDY(ebb_participant_retire_with)
#undef GREEDY

struct Value {
    int numbers[8] = {};
    bool operator==(const Value &other) const { return numbers[0] == other.numbers[0]; }
};
struct Hash {
    std::size_t operator()(const Value &value) const
    {
        return static_cast<std::size_t>(value.numbers[0]);
    }
};
struct Visit {
    int *sum;
    void operator()(const Value &key, const Value &value) const
    {
        *sum += key.numbers[0] * 10 + value.numbers[0];
    }
};
int ends;
struct Ends {
    ~Ends() { ends++; }
};
struct ByRcu : ebb::rcu_obj_base<ByRcu>, Ends {};
struct ByHazard : ebb::hazard_pointer_obj_base<ByHazard>, Ends {};
struct Deleter {
    int *deleted = nullptr;
    void operator()(Value *p) const
    {
        ++*deleted;
        ebb::destroy(p);
    }
};

} // namespace app

namespace {

template <typename Line> void use_line()
{
    Line line;
    line.push(app::Value{{7}});
    line.push(app::Value{{7}});
    EXPECT_EQ(line.pop()->numbers[0], 7);
}

TEST(Lookup, OfWhatTheProgramNamesAsTheLibraryDoes)
{
    use_line<ebb::queue<app::Value>>();
    use_line<ebb::stack<app::Value>>();
    use_line<ebb::deque<app::Value>>();
    {
        ebb::map<app::Value, app::Value, app::Hash> map;
        EXPECT_TRUE(map.insert(app::Value{{1}}, app::Value{{2}}));
        EXPECT_FALSE(map.insert(app::Value{{1}}, app::Value{{3}}));
        map.insert_or_assign(app::Value{{1}}, app::Value{{4}});
        EXPECT_EQ(map.find(app::Value{{1}})->numbers[0], 4);
        int sum = 0;
        map.for_each(app::Visit{&sum});
        EXPECT_EQ(sum, 14);
        EXPECT_TRUE(map.erase(app::Value{{1}}));
    }
    ebb::region region;
    EXPECT_EQ(region.make<app::Value>(app::Value{{5}})->numbers[0], 5);
    EXPECT_EQ(region.make_unique<app::Value>()->numbers[0], 0);
    EXPECT_EQ(ebb::promote(app::Value{{6}}, region)->numbers[0], 6);
    ebb::retire(ebb::make<app::Value>());
    EXPECT_EQ(ebb::promote(region.make<app::Value>(app::Value{{8}}), region)->numbers[0], 8);
    {
        std::vector<app::Value, ebb::region_allocator<app::Value>> values(
            region.allocator<app::Value>());
        values.resize(3);
    }
    int deleted = 0;
    ebb::rcu_retire(ebb::make<app::Value>(), app::Deleter{&deleted});
    ebb::rcu_retire(new app::Ends);
    ebb::retire(ebb::make<app::Ends>());
    (new app::ByRcu)->retire();
    auto *hazardous = new app::ByHazard;
    {
        std::atomic<app::ByHazard *> source{hazardous};
        ebb::hazard_pointer hazard = ebb::make_hazard_pointer();
        EXPECT_EQ(hazard.protect(source), hazardous);
    }
    hazardous->retire();
    ebb::rcu_barrier();
    EXPECT_EQ(deleted, 1);
    EXPECT_EQ(app::ends, 4);
    {
        ebb::collector collector;
        collector.retire(ebb::make<app::Ends>());
        collector.barrier();
    }
    EXPECT_EQ(app::ends, 5);
    EXPECT_EQ(app::calls, 0);
}

} // namespace
