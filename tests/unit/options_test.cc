// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: options of every kind, good and bad. Each case sets its own environment.
#include <unistd.h>

#include "support/engine.h"

namespace {

using namespace unit;

struct Options : Fake {
    void SetUp() override
    {
        Fake::SetUp();
        clearenv();
    }

    static void read(std::initializer_list<const char *> entries)
    {
        clearenv();
        for (const char *entry : entries)
            putenv(const_cast<char *>(entry));
        ebbi_options_read();
    }

    static std::string report()
    {
        fake_os_capture();
        ebbi_options_report();
        return fake_os_captured();
    }

    static std::size_t lines(const std::string &text)
    {
        return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    }

    // Refused with one line that names it, and the value in force stays.
    static void expect_refused(const char *entry, ebbi_option_id id)
    {
        std::size_t before = ebbi_option(id);
        read({entry});
        std::string text = report();
        EXPECT_EQ(before, ebbi_option(id)) << entry;
        EXPECT_EQ(1U, lines(text)) << entry << " -> " << text;
        EXPECT_EQ(0U, text.find("ebbtide: unit_options[")) << text;
        EXPECT_NE(std::string::npos, text.find(ebbi_option_name(id))) << text;
    }
};

TEST_F(Options, SizesWithEverySuffix)
{
    const std::pair<const char *, std::size_t> cases[] = {
        {"EBB_CACHE=0", 0},          {"EBB_CACHE=12345", 12345}, {"EBB_CACHE=64k", 64 * KiB},
        {"EBB_CACHE=64K", 64 * KiB}, {"EBB_CACHE=3m", 3 * MiB},  {"EBB_CACHE=3M", 3 * MiB},
        {"EBB_CACHE=1g", GiB},       {"EBB_CACHE=1G", GiB},      {"EBB_CACHE=0001", 1},
    };
    for (auto [entry, value] : cases) {
        read({entry});
        EXPECT_EQ(value, ebbi_option(EBBI_OPTION_CACHE)) << entry;
        EXPECT_EQ(EBBI_BY_ENVIRONMENT, ebbi_option_source(EBBI_OPTION_CACHE));
        EXPECT_EQ("", report()) << entry;
    }
}

TEST_F(Options, EachKindOfGoodValue)
{
    read({"EBB_PURGE_DELAY_MS=3600000", "EBB_PURGE_THREAD=0", "EBB_THP=always", "EBB_STATS=signal",
          "EBB_STATS_SIGNAL=10", "EBB_DEEPBIND=1", "PATH=/bin", "EBBLE=1", "EB=EBB_"});
    EXPECT_EQ(3600000U, ebbi_option(EBBI_OPTION_PURGE_DELAY));
    EXPECT_EQ(0U, ebbi_option(EBBI_OPTION_PURGE_THREAD));
    EXPECT_EQ(static_cast<std::size_t>(EBBI_HUGE_ALWAYS), ebbi_option(EBBI_OPTION_THP));
    EXPECT_EQ(static_cast<std::size_t>(EBBI_STATS_SIGNAL), ebbi_option(EBBI_OPTION_STATS));
    EXPECT_EQ(10U, ebbi_option(EBBI_OPTION_STATS_SIGNAL));
    EXPECT_EQ(1U, ebbi_option(EBBI_OPTION_DEEPBIND));
    EXPECT_EQ(EBBI_BY_DEFAULT, ebbi_option_source(EBBI_OPTION_CACHE));
    EXPECT_EQ("", report());
}

TEST_F(Options, AChoiceWithTwoWordsForOne)
{
    const std::pair<const char *, std::size_t> cases[] = {
        {"EBB_CHECK=log", EBBI_CHECKS_LOG}, {"EBB_CHECK=sample", EBBI_CHECKS_SAMPLE},
        {"EBB_CHECK=on", EBBI_CHECKS_ON},   {"EBB_CHECK=0", EBBI_CHECKS_OFF},
        {"EBB_CHECK=1", EBBI_CHECKS_ON},    {"EBB_CHECK=off", EBBI_CHECKS_OFF}};
    for (auto [entry, value] : cases) {
        read({entry});
        EXPECT_EQ(value, ebbi_option(EBBI_OPTION_CHECK)) << entry;
        EXPECT_EQ("", report()) << entry;
    }
    for (const char *entry :
         {"EBB_CHECK=", "EBB_CHECK=o", "EBB_CHECK=off|0", "EBB_CHECK=|", "EBB_CHECK=2",
          "EBB_CHECK=logs", "EBB_CHECK=1 ", "EBB_CHECK=samples", "EBB_CHECK=3"})
        expect_refused(entry, EBBI_OPTION_CHECK);
}

TEST_F(Options, AFile)
{
    char name[64], exact[5];
    read({"EBB_CHECK_REPORT=100%/%p-%"});
    EXPECT_EQ(1U, ebbi_option(EBBI_OPTION_CHECK_REPORT));
    EXPECT_TRUE(ebbi_option_file(EBBI_OPTION_CHECK_REPORT, name, sizeof name));
    EXPECT_EQ("100%/" + std::to_string(getpid()) + "-%", name);
    read({"EBB_CHECK_REPORT=four"});
    EXPECT_TRUE(ebbi_option_file(EBBI_OPTION_CHECK_REPORT, exact, sizeof exact));
    EXPECT_STREQ("four", exact);
    read({"EBB_CHECK_REPORT=5char"});
    EXPECT_FALSE(ebbi_option_file(EBBI_OPTION_CHECK_REPORT, exact, sizeof exact));
    EXPECT_STREQ("5cha", exact);
    const std::string longest = "EBB_CHECK_REPORT=" + std::string(EBBI_PATH_ROOM - 1, 'x');
    read({longest.c_str()});
    EXPECT_EQ("", report());
    const std::string longer = longest + "x";
    read({longer.c_str()});
    EXPECT_EQ(1U, lines(report()));
    read({"EBB_CHECK_REPORT="});
    EXPECT_EQ(1U, lines(report()));
}

TEST_F(Options, BadNumbers)
{
    for (const char *entry :
         {"EBB_CACHE=", "EBB_CACHE=-1", "EBB_CACHE=+1", "EBB_CACHE= 1", "EBB_CACHE=1 ",
          "EBB_CACHE=0x10", "EBB_CACHE=1kb", "EBB_CACHE=k", "EBB_CACHE=1.5m", "EBB_CACHE=1t",
          "EBB_CACHE=99999999999999999999999", "EBB_CACHE=18446744073709551616",
          "EBB_CACHE=17179869184g", "EBB_CACHE=2g", "EBB_CACHE=1073741825"})
        expect_refused(entry, EBBI_OPTION_CACHE);
    for (const char *entry : {"EBB_PURGE_DELAY_MS=1k", "EBB_PURGE_DELAY_MS=3600001",
                              "EBB_PURGE_DELAY_MS=", "EBB_PURGE_DELAY_MS=soon"})
        expect_refused(entry, EBBI_OPTION_PURGE_DELAY);
    for (const char *entry : {"EBB_PURGE_THREAD=2", "EBB_PURGE_THREAD=yes", "EBB_PURGE_THREAD="})
        expect_refused(entry, EBBI_OPTION_PURGE_THREAD);
    for (const char *entry : {"EBB_STATS_SIGNAL=0", "EBB_STATS_SIGNAL=65", "EBB_STATS_SIGNAL=1k",
                              "EBB_STATS_SIGNAL=USR1"})
        expect_refused(entry, EBBI_OPTION_STATS_SIGNAL);
}

TEST_F(Options, BadWords)
{
    for (const char *entry : {"EBB_THP=", "EBB_THP=Always", "EBB_THP=1", "EBB_THP=always,"})
        expect_refused(entry, EBBI_OPTION_THP);
    expect_refused("EBB_STATS=exitt", EBBI_OPTION_STATS);
}

TEST_F(Options, UnknownKeysAreOneLineEach)
{
    read({"EBB_CACHES=1", "EBB_=1", "EBB_cache=1", "EBB_PURGE_DELAY=5"});
    std::string text = report();
    EXPECT_EQ(4U, lines(text)) << text;
    EXPECT_NE(std::string::npos, text.find("unknown option EBB_CACHES"));
}

TEST_F(Options, LongAndStrangeValuesAreCutToOneLine)
{
    std::string huge = "EBB_THP=" + std::string(100000, 'x');
    expect_refused(huge.c_str(), EBBI_OPTION_THP);
    std::string key = "EBB_" + std::string(5000, 'Y') + "=1";
    read({key.c_str()});
    EXPECT_EQ(1U, lines(report()));
    expect_refused("EBB_THP=never\nebbtide: a line of its own", EBBI_OPTION_THP);
}

TEST_F(Options, AGoodValueAmongBadOnesHolds)
{
    read({"EBB_CACHE=bad", "EBB_PURGE_DELAY_MS=77", "EBB_NOTHING=1"});
    EXPECT_EQ(77U, ebbi_option(EBBI_OPTION_PURGE_DELAY));
    EXPECT_EQ(2U, lines(report()));
}

TEST_F(Options, OfOneNameTheFirstCountsAsForGetenv)
{
    char first[] = "EBB_CACHE=1k", second[] = "EBB_CACHE=2k", bad[] = "EBB_PURGE_DELAY_MS=soon",
         good[] = "EBB_PURGE_DELAY_MS=77", worse[] = "EBB_PURGE_DELAY_MS=later";
    char *entries[] = {first, bad, second, good, worse, nullptr};
    const std::size_t delay = ebbi_option(EBBI_OPTION_PURGE_DELAY);
    char **saved = environ;
    environ = entries;
    ebbi_options_read();
    const std::string text = report();
    EXPECT_STREQ("1k", getenv("EBB_CACHE"));
    environ = saved;
    EXPECT_EQ(KiB, ebbi_option(EBBI_OPTION_CACHE));
    EXPECT_EQ(delay, ebbi_option(EBBI_OPTION_PURGE_DELAY)) << "the first one is malformed";
    EXPECT_EQ(1U, lines(text)) << text;
}

TEST_F(Options, ASecureProcessHeedsAndReportsNothing)
{
    fake_os_secure(true);
    read({"EBB_CACHE=1", "EBB_WRONG=1", "EBB_CHECK_REPORT=file"});
    EXPECT_EQ(EBBI_BY_DEFAULT, ebbi_option_source(EBBI_OPTION_CACHE));
    EXPECT_EQ(EBBI_BY_DEFAULT, ebbi_option_source(EBBI_OPTION_CHECK_REPORT));
    EXPECT_EQ("", report());
}

TEST_F(Options, NoEnvironmentAtAll)
{
    char **saved = environ;
    environ = nullptr;
    ebbi_options_read();
    EXPECT_EQ("", report());
    environ = saved;
}

TEST_F(Options, ValuesAndTheirSourcesCanBeAsked)
{
    read({"EBB_CACHE=7k"});
    std::size_t value = 0;
    int is_set = 0;
    EXPECT_STREQ("EBB_CACHE", ebb_option_value(EBBI_OPTION_CACHE, &value, &is_set));
    EXPECT_EQ(7 * KiB, value);
    EXPECT_EQ(1, is_set);
    EXPECT_STREQ("EBB_PURGE_THREAD", ebb_option_value(EBBI_OPTION_PURGE_THREAD, &value, &is_set));
    EXPECT_EQ(0, is_set);
    EXPECT_EQ(nullptr, ebb_option_value(EBBI_OPTION_COUNT, &value, &is_set));
}

} // namespace
