// SPDX-License-Identifier: MIT OR Apache-2.0
// mallctl by names: every one, wrong lengths, names that are none, what may be written. MIBs are in mib_test.cc.
#include <ebbtide/region.h>
#include <jemalloc/jemalloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "compat/names.h"

namespace {

using compat::ACTION;
using compat::Name;
using compat::names;

// Those of them that can be written.
const char *const writable[] = {
    "arena.0.dirty_decay_ms", "arena.0.muzzy_decay_ms", "arenas.dirty_decay_ms",
    "arenas.muzzy_decay_ms",  "background_thread",      "epoch",
    "max_background_threads", "thread.arena",           "thread.tcache.enabled",
};

bool is_writable(const Name &name)
{
    return std::any_of(std::begin(writable), std::end(writable),
                       [&](const char *each) { return strcmp(each, name.name) == 0; });
}

template <class T> T get(const char *name)
{
    T value{};
    size_t length = sizeof value;
    EXPECT_EQ(0, mallctl(name, &value, &length, nullptr, 0)) << name;
    EXPECT_EQ(sizeof value, length) << name;
    return value;
}

template <class T> int set(const char *name, T value)
{
    return mallctl(name, nullptr, nullptr, &value, sizeof value);
}

int call(const char *name) { return mallctl(name, nullptr, nullptr, nullptr, 0); }

void refresh() { EXPECT_EQ(0, set<uint64_t>("epoch", 1)); }

TEST(Mallctl, EveryNameIsRead)
{
    for (const Name &name : names) {
        unsigned char value[16];
        memset(value, 0x55, sizeof value);
        size_t length = name.bytes;
        int error = mallctl(name.name, value, &length, nullptr, 0);
        EXPECT_EQ(name.bytes == ACTION ? EPERM : 0, error) << name.name;
        EXPECT_EQ(name.bytes, length) << name.name;
        EXPECT_EQ(0x55, value[name.bytes]) << name.name;
    }
}

TEST(Mallctl, AWrongLengthIsToldAndAsMuchAsFitsIsRead)
{
    for (const Name &name : names) {
        if (name.bytes == ACTION) {
            continue;
        }
        unsigned char right[16] = {}, value[16];
        size_t length = name.bytes;
        ASSERT_EQ(0, mallctl(name.name, right, &length, nullptr, 0));
        for (size_t wrong : {size_t{0}, name.bytes - 1, name.bytes + 1, size_t{16}}) {
            memset(value, 0x55, sizeof value);
            length = wrong;
            EXPECT_EQ(EINVAL, mallctl(name.name, value, &length, nullptr, 0)) << name.name;
            size_t fits = std::min(wrong, name.bytes);
            EXPECT_EQ(fits, length) << name.name;
            EXPECT_EQ(0, memcmp(right, value, fits)) << name.name;
            EXPECT_EQ(0x55, value[fits]) << name.name;
        }
    }
}

TEST(Mallctl, WritesAreRefusedWhereNothingCanBeWritten)
{
    for (const Name &name : names) {
        uint64_t value = 0;
        if (is_writable(name)) {
            EXPECT_EQ(EINVAL, mallctl(name.name, nullptr, nullptr, &value, name.bytes + 1))
                << name.name;
            EXPECT_EQ(EINVAL, mallctl(name.name, nullptr, nullptr, &value, 0)) << name.name;
        } else {
            EXPECT_EQ(EPERM, mallctl(name.name, nullptr, nullptr, &value, sizeof value))
                << name.name;
            EXPECT_EQ(EPERM, mallctl(name.name, nullptr, nullptr, nullptr, 1)) << name.name;
        }
    }
}

TEST(Mallctl, WhatIsInForceMayBeWritten)
{
    for (const Name &name : names) {
        unsigned char value[16];
        size_t length = name.bytes;
        if (is_writable(name)) {
            ASSERT_EQ(0, mallctl(name.name, value, &length, nullptr, 0));
            EXPECT_EQ(0, mallctl(name.name, nullptr, nullptr, value, length)) << name.name;
        }
    }
    EXPECT_EQ(EPERM, set<ssize_t>("arenas.dirty_decay_ms", 12345));
    EXPECT_EQ(EPERM, set<ssize_t>("arena.0.dirty_decay_ms", -1));
    EXPECT_EQ(EPERM, set<ssize_t>("arenas.muzzy_decay_ms", 10));
    EXPECT_EQ(EPERM, set("background_thread", false));
    EXPECT_EQ(EINVAL, set<size_t>("max_background_threads", 4));
    EXPECT_EQ(EPERM, set<size_t>("max_background_threads", 0));
    EXPECT_EQ(EPERM, set("thread.tcache.enabled", false));
    EXPECT_EQ(EFAULT, set("thread.arena", 1U));
}

// The others write before they read.
TEST(Mallctl, ADecayIsReadBeforeItIsWritten)
{
    for (const char *name : {"arena.0.dirty_decay_ms", "arenas.dirty_decay_ms",
                             "arena.0.muzzy_decay_ms", "arenas.muzzy_decay_ms"}) {
        const ssize_t now = get<ssize_t>(name);
        for (size_t newlen : {size_t{0}, sizeof now - 1, sizeof now + 1, sizeof now}) {
            ssize_t value = 77, other[2] = {12345, 0};
            size_t length = sizeof value;
            int error = newlen == sizeof now ? EPERM : EINVAL;
            EXPECT_EQ(error, mallctl(name, &value, &length, other, newlen)) << name;
            EXPECT_EQ(now, value) << name;
            char wide[9];
            length = sizeof wide;
            EXPECT_EQ(EINVAL, mallctl(name, wide, &length, other, newlen)) << name;
            EXPECT_EQ(sizeof value, length) << name;
        }
    }
    bool flag = true, kept = false;
    size_t length = 1;
    EXPECT_EQ(EINVAL, mallctl("background_thread", &kept, &length, &flag, 2));
    EXPECT_FALSE(kept);
}

TEST(Mallctl, NullsAreNoRequests)
{
    size_t value = 77, length = sizeof value;
    EXPECT_EQ(0, mallctl("stats.allocated", nullptr, nullptr, nullptr, 0));
    EXPECT_EQ(0, mallctl("stats.allocated", nullptr, &length, nullptr, 0));
    EXPECT_EQ(0, mallctl("stats.allocated", &value, nullptr, nullptr, 0));
    EXPECT_EQ(77U, value);
    EXPECT_EQ(0, mallctl("epoch", nullptr, nullptr, nullptr, sizeof value)); // as jemalloc
    EXPECT_EQ(ENOENT, mallctl(nullptr, nullptr, nullptr, nullptr, 0));
    EXPECT_EQ(EPERM, mallctl("arena.0.purge", &value, nullptr, nullptr, 0));
    EXPECT_EQ(EPERM, mallctl("arena.0.purge", nullptr, &length, nullptr, 0));
    EXPECT_EQ(EPERM, mallctl("arena.0.purge", nullptr, nullptr, &value, sizeof value));
    size_t mib[4];
    EXPECT_EQ(EINVAL, mallctlnametomib(nullptr, mib, &length));
    EXPECT_EQ(EINVAL, mallctlnametomib("epoch", nullptr, &length));
    EXPECT_EQ(EINVAL, mallctlnametomib("epoch", mib, nullptr));
    EXPECT_EQ(ENOENT, mallctlbymib(nullptr, 0, nullptr, nullptr, nullptr, 0));
}

TEST(Mallctl, NamesThatHaveNoAnswer)
{
    const char *const unknown[] = {
        "",
        ".",
        "stats",
        "stats.",
        ".stats",
        "stats..allocated",
        "stats.allocated.",
        "stats.allocated.x",
        "stats.allocate",
        "stats.allocatedx",
        "Stats.allocated",
        "nothing",
        "arena",
        "arena.",
        "arena.0",
        "arena.x.purge",
        "arena..purge",
        "arena.-1.purge",
        "arena.2.purge",
        "arena.4097.purge",
        "arena.#.purge",
        "arena.0x0.purge",
        "arena.18446744073709551616.purge",
        "arena.99999999999999999999999.purge",
        "stats.arenas.2.pactive",
        "stats.arenas.4097.pactive",
        "arenas.bin.0.size",
        "stats.arenas.0.bins.0.curregs",
        "stats.arenas.0.small.allocated",
        "arenas.create",
        "arena.0.extent_hooks",
        "arena.0.reset",
        "arena.0.destroy",
        "thread.allocated",
        "thread.allocatedp",
        "thread.deallocated",
        "tcache.create",
        "prof.active",
        "prof.dump",
        "opt.thp",
        "opt.abort",
        "stats.background_thread.num_threads",
    };
    for (const char *name : unknown) {
        size_t value = 0, length = sizeof value;
        EXPECT_EQ(ENOENT, mallctl(name, &value, &length, nullptr, 0)) << name;
        EXPECT_EQ(ENOENT, call(name)) << name;
        EXPECT_EQ(sizeof value, length) << name;
    }
}

TEST(Mallctl, AllArenasAreOne)
{
    EXPECT_EQ(1U, get<unsigned>("arenas.narenas"));
    for (const char *arena : {"0", "1", "4096", "00"}) {
        std::string of = std::string("arena.") + arena;
        EXPECT_EQ(0, call((of + ".purge").c_str()));
        EXPECT_EQ(0, call((of + ".decay").c_str()));
        EXPECT_TRUE(get<bool>((of + ".initialized").c_str()));
        EXPECT_EQ(get<size_t>("stats.resident"),
                  get<size_t>(("stats." + of.insert(5, "s") + ".resident").c_str()));
    }
    for (const char *name : {"arena.4096.dirty_decay_ms", "arena.1.muzzy_decay_ms"}) {
        ssize_t value = 77;
        size_t length = sizeof value;
        EXPECT_EQ(EFAULT, mallctl(name, &value, &length, nullptr, 0)) << name;
        EXPECT_EQ(77, value);
        EXPECT_EQ(EFAULT, set<ssize_t>(name, 0)) << name;
        EXPECT_EQ(EFAULT, mallctl(name, nullptr, nullptr, &value, 1)) << name;
        EXPECT_EQ(EFAULT, call(name)) << name;
    }
}

TEST(Mallctl, StatisticsAreAsOfTheEpoch)
{
    uint64_t first = get<uint64_t>("epoch");
    size_t before = get<size_t>("stats.allocated");
    void *p = je_malloc(10 << 20);
    ASSERT_NE(nullptr, p);
    EXPECT_EQ(before, get<size_t>("stats.allocated"));
    uint64_t now = 1;
    size_t length = sizeof now;
    EXPECT_EQ(0, mallctl("epoch", &now, &length, &now, sizeof now));
    EXPECT_EQ(first + 1, now);
    EXPECT_GE(get<size_t>("stats.allocated"), before + (10 << 20));
    je_free(p);
    refresh();
    EXPECT_LT(get<size_t>("stats.allocated"), before + (10 << 20));
}

TEST(Mallctl, StatisticsFitEachOther)
{
    std::vector<void *> blocks;
    for (size_t i = 0; i < 20000; i++) {
        blocks.push_back(je_malloc(100 + i % 1000));
        memset(blocks.back(), 1, 100);
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        je_free(blocks[i]);
    }
    refresh();
    ebb_stats stats;
    ebb_stats_get(&stats);
    size_t allocated = get<size_t>("stats.allocated"), active = get<size_t>("stats.active");
    size_t page = get<size_t>("arenas.page");
    EXPECT_EQ(static_cast<size_t>(getpagesize()), page);
    EXPECT_EQ(stats.live_bytes, allocated);
    EXPECT_GE(active, allocated);
    EXPECT_EQ(0U, active % page);
    EXPECT_LE(active, get<size_t>("stats.mapped"));
    EXPECT_EQ(active / page, get<size_t>("stats.arenas.0.pactive"));
    EXPECT_GT(get<size_t>("stats.resident"), get<size_t>("stats.metadata"));
    EXPECT_GE(get<size_t>("stats.resident"), allocated);      // all of it was written
    EXPECT_LT(get<size_t>("stats.resident"), stats.resident); // which has the program's code, too
    EXPECT_GT(get<size_t>("stats.metadata"), 0U);
    EXPECT_GT(get<size_t>("stats.retained"), 0U);
    EXPECT_EQ(get<size_t>("stats.mapped"), get<size_t>("stats.arenas.4096.mapped"));
    EXPECT_EQ(get<size_t>("stats.retained"), get<size_t>("stats.arenas.0.retained"));
    EXPECT_EQ(0U, get<size_t>("stats.arenas.0.pmuzzy"));
    for (size_t i = 1; i < blocks.size(); i += 2) {
        je_free(blocks[i]);
    }
}

// What Redis 7.4 asks ten times a second; it ends itself where one of these is refused.
TEST(Mallctl, ANewerRedisIsAnswered)
{
    refresh();
    for (unsigned bin = 0; bin < get<unsigned>("arenas.nbins"); bin++) {
        std::string of = "arenas.bin." + std::to_string(bin);
        (void)get<size_t>((of + ".size").c_str());
        (void)get<uint32_t>((of + ".nregs").c_str());
        of = "stats.arenas.4096.bins." + std::to_string(bin);
        (void)get<size_t>((of + ".curregs").c_str());
        (void)get<size_t>((of + ".curslabs").c_str());
    }
    EXPECT_GE(get<size_t>("stats.resident"),
              get<size_t>("stats.arenas.4096.pmuzzy") * get<size_t>("arenas.page"));
    EXPECT_GT(get<size_t>("stats.retained"), 0U);
}

TEST(Mallctl, APurgeReturnsFreeMemory)
{
    void *p = je_malloc(8 << 20);
    memset(p, 1, 8 << 20);
    je_free(p);
    refresh();
    size_t dirty = get<size_t>("stats.arenas.0.pdirty");
    ASSERT_GT(dirty, 0U);
    EXPECT_EQ(0, call("arena.4096.purge"));
    refresh();
    EXPECT_LT(get<size_t>("stats.arenas.0.pdirty"), dirty);
}

TEST(Mallctl, OptionsAreThoseInForce)
{
    EXPECT_EQ(500, get<ssize_t>("arenas.dirty_decay_ms"));
    EXPECT_EQ(500, get<ssize_t>("opt.dirty_decay_ms"));
    EXPECT_EQ(500, get<ssize_t>("arena.0.dirty_decay_ms"));
    EXPECT_TRUE(get<bool>("background_thread"));
    EXPECT_TRUE(get<bool>("opt.tcache"));
    EXPECT_FALSE(get<bool>("opt.prof"));
    EXPECT_FALSE(get<bool>("opt.stats_print"));
    EXPECT_STREQ("", get<const char *>("config.malloc_conf"));
    EXPECT_STREQ("false", get<const char *>("opt.junk"));
    EXPECT_EQ(std::string("ebbtide ") + ebb_version(), get<const char *>("version"));
    EXPECT_EQ(0U, reinterpret_cast<uintptr_t>(je_malloc(1)) % get<size_t>("arenas.quantum"));
}

TEST(Mallctl, AFlushPutsTheThreadsBlocksBack)
{
    std::vector<void *> blocks;
    for (int i = 0; i < 2000; i++) {
        blocks.push_back(je_malloc(100));
    }
    for (void *p : blocks) {
        je_free(p);
    }
    EXPECT_EQ(0, call("thread.tcache.flush"));
    EXPECT_EQ(0, call("thread.idle"));
    // What it does is ebb_thread_idle's: the thread has a domain now.
    ebb_lifetime_stats lines[8];
    size_t count = ebb_lifetimes_get(lines, 8);
    ASSERT_EQ(1U, count);
    EXPECT_STREQ("thread", lines[0].label);
}

TEST(Mallctl, TheOtherNamesAreTheSame)
{
    for (const Name &name : names) {
        unsigned char value[16] = {}, other[16] = {};
        size_t length = name.bytes, other_length = name.bytes, mib[8], depth = 8;
        int error = mallctl(name.name, value, &length, nullptr, 0);
        EXPECT_EQ(error, je_mallctl(name.name, other, &other_length, nullptr, 0));
        EXPECT_EQ(0, memcmp(value, other, sizeof value)) << name.name;
        EXPECT_EQ(0, je_mallctlnametomib(name.name, mib, &depth));
        EXPECT_EQ(error, je_mallctlbymib(mib, depth, other, &other_length, nullptr, 0));
    }
}

TEST(Mallctl, ThreadsReadWhileOthersRefresh)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    dallocx(mallocx(100, 0), 0);
    refresh();
    threads.emplace_back([&] {
        for (int i = 0; i < 200; i++) {
            refresh();
        }
        stop = true;
    });
    for (int n = 0; n < 3; n++) {
        threads.emplace_back([&] {
            uint64_t last = 0;
            do {
                void *p = mallocx(100, MALLOCX_ZERO);
                uint64_t now = get<uint64_t>("epoch");
                EXPECT_GE(now, last);
                last = now;
                EXPECT_GE(get<size_t>("stats.mapped"), 4096U);
                dallocx(p, 0);
            } while (!stop);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_GE(get<uint64_t>("epoch"), 200U);
}

#ifndef EBBTEST_SANITIZED
TEST(Mallctl, AChildOfAForkRefreshes)
{
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) {
            refresh();
        }
    });
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(20);
            uint64_t one = 1;
            _exit(mallctl("epoch", nullptr, nullptr, &one, sizeof one));
        }
        int status = -1;
        EXPECT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status);
    }
    stop = true;
    other.join();
}
#endif

} // namespace
