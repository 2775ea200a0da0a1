// SPDX-License-Identifier: MIT OR Apache-2.0
// malloc_stats_print: its text, its JSON, where they go. tests/compat/calls.sh gives the JSON to a parser.
#include <jemalloc/jemalloc.h>
#include <unistd.h>

static bool is_refused;

extern "C" void *__real_ebb_malloc(size_t bytes);
extern "C" void *__wrap_ebb_malloc(size_t bytes);
extern "C" void *__wrap_ebb_malloc(size_t bytes)
{
    return is_refused ? nullptr : __real_ebb_malloc(bytes);
}

namespace {

std::string printed(const char *opts)
{
    std::string all;
    malloc_stats_print(
        [](void *to, const char *text) { static_cast<std::string *>(to)->append(text); }, &all,
        opts);
    return all;
}

TEST(Print, TextIsEbbtidesOwn)
{
    for (const char *opts : {static_cast<const char *>(nullptr), "", "gmdablxh", "?"}) {
        std::string text = printed(opts);
        EXPECT_NE(std::string::npos, text.find("where the resident memory is")) << text;
        EXPECT_EQ('\n', text.back());
    }
}

TEST(Print, JsonHasTheNamesAsATree)
{
    std::string text = printed("gJm");
    for (const char *part :
         {"{\"jemalloc\":{", "\"arenas\":{\"dirty_decay_ms\":500,", "\"config\":{\"debug\":false,",
          "\"arenas\":{\"0\":{\"mapped\":",
          "\"thread\":{\"arena\":0,\"tcache\":{\"enabled\":true}},\"version\":\"ebbtide ",
          "\"ebbtide\":{\"schema\":"}) {
        EXPECT_NE(std::string::npos, text.find(part)) << part << " in " << text;
    }
    EXPECT_EQ(std::count(text.begin(), text.end(), '{'), std::count(text.begin(), text.end(), '}'));
    EXPECT_EQ(std::string::npos, text.find('#'));
    EXPECT_EQ(std::string::npos, text.find(",}"));
    EXPECT_EQ(std::string::npos, text.find("{,"));
}

TEST(Print, WithoutMemoryForIt)
{
    (void)printed("");
    is_refused = true;
    std::string text = printed(nullptr), json = printed("J");
    is_refused = false;
    EXPECT_NE(std::string::npos, text.find("where the resident memory is")) << text;
    EXPECT_NE(std::string::npos, json.find(",\"ebbtide\":{\"schema\":")) << json;
}

TEST(Print, WithoutAFunctionItGoesToStandardError)
{
    testing::internal::CaptureStderr();
    je_malloc_stats_print(nullptr, nullptr, "J");
    std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(0U, text.find("{\"jemalloc\":"));
}

} // namespace
