// SPDX-License-Identifier: MIT OR Apache-2.0
// Every line on standard error says whose it is.
#include <cerrno>
#include <sys/wait.h>
#include <unistd.h>

#include "support/engine.h"
extern "C" {
#include "os/os.h"
}

namespace {

struct Message : testing::Test {
    char *const before = program_invocation_short_name;
    ~Message() override
    {
        program_invocation_short_name = before;
        ebbi_message_start();
    }

    static std::string head()
    {
        char out[EBBI_HEAD_ROOM];
        const std::size_t length = ebbi_message_head(out);
        EXPECT_EQ(length, std::strlen(out));
        return out;
    }
    static std::string head_of(std::string name)
    {
        program_invocation_short_name = name.data();
        ebbi_message_start();
        return head();
    }
    static std::string process()
    {
        char text[32];
        std::snprintf(text, sizeof text, "[%d]: ", static_cast<int>(getpid()));
        return text;
    }
};

TEST_F(Message, BeginsWithTheProgramAndTheProcess)
{
    EXPECT_EQ("ebbtide: redis-server" + process(), head_of("redis-server"));
}

TEST_F(Message, StaysOnItsLine)
{
    EXPECT_EQ("ebbtide: a?b?[31m?" + process(), head_of("a\nb\033[31m\177"));
    EXPECT_EQ("ebbtide: " + std::string(47, 'x') + process(), head_of(std::string(4000, 'x')));
    EXPECT_EQ("ebbtide: " + process(), head_of(""));
}

TEST_F(Message, IsOneLineWhateverItSpeaksOf)
{
    const std::string first = head_of("server");
    fake_os_capture();
    ebbi_message("heap profile in %s", "a\nb\033[31m\177\t\xC3\xA4");
    EXPECT_EQ(first + "heap profile in a?b?[31m??\xC3\xA4\n", fake_os_captured());
    fake_os_capture();
    ebbi_message("%s", std::string(4000, '\n').c_str());
    EXPECT_EQ(std::string(510 - first.size(), '?') + "\n",
              std::string(fake_os_captured()).substr(first.size()));
}

// As programs do that change what ps shows.
TEST_F(Message, KeepsTheNameOfTheStart)
{
    std::string name = "worker";
    program_invocation_short_name = name.data();
    ebbi_message_start();
    name = "?????";
    EXPECT_EQ("ebbtide: worker" + process(), head());
}

TEST_F(Message, NamesTheChildOfAFork)
{
    const pid_t child = fork();
    if (child == 0)
        _exit(head().find(process()) == std::string::npos);
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

TEST_F(Message, HeadsWhatAProcessDiesOf)
{
    EXPECT_DEATH(ebbi_fatal("this %d", 5), "^ebbtide: unit_message[[][0-9]+]: this 5\n");
}

TEST_F(Message, HeadsStatistics)
{
    char text[4096];
    (void)ebb_stats_text(text, sizeof text);
    EXPECT_EQ(0U, std::string(text).find(head() + "where the resident memory is\n"));
}

} // namespace
