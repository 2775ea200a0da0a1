// SPDX-License-Identifier: MIT OR Apache-2.0
// Frees that a program must not do: each ends in an abort whose line names the pointer. Detection
// of a small block freed twice may wait for the flush, so these tests drive the flush.
// The file that includes this one has chosen the form of the API before.
#pragma once

#include <csignal>
#include <string>

#include <pthread.h>

namespace {

using support::KiB;
using support::MiB;

const std::size_t small_sizes[] = {1, 16, 48, 64, 200, 1024, 4096, 5000, 16384, 32768};
const std::size_t large_sizes[] = {300 * KiB, MiB, 5 * MiB, 64 * MiB};

std::string line_about(const void *pointer)
{
    char text[64];
    std::snprintf(text, sizeof text, "ebbtide: [^\n]*0x0*%zx",
                  static_cast<std::size_t>(support::address(pointer)));
    return text;
}

struct Crowd {
    explicit Crowd(std::size_t bytes) : blocks(bytes < 4096 ? 10000 : 1000), bytes_each(bytes)
    {
        fill();
    }
    void fill()
    {
        for (void *&block : blocks)
            block = api::allocate(bytes_each);
    }
    void release_all()
    {
        for (void *block : blocks)
            api::release(block);
    }
    support::MappedArray<void *> blocks;
    std::size_t bytes_each;
};

// Moves every cached block of the class through the flush and back.
void drive_flush(Crowd &crowd)
{
    for (int round = 0; round < 3; round++) {
        crowd.fill();
        crowd.release_all();
    }
}

class Safety : public testing::Test {
protected:
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "fast"; }
};

using SafetyDeathTest = Safety;

TEST_F(SafetyDeathTest, BlockFreedTwiceInARow)
{
    for (std::size_t bytes : small_sizes) {
        Crowd crowd(bytes);
        void *victim = crowd.blocks[crowd.blocks.size() / 2];
        EXPECT_DEATH(
            {
                api::release(victim);
                api::release(victim);
                for (void *block : crowd.blocks)
                    if (block != victim)
                        api::release(block);
                drive_flush(crowd);
                _exit(0);
            },
            line_about(victim))
            << bytes;
        crowd.release_all();
    }
}

TEST_F(SafetyDeathTest, BlockFreedAgainAfterItsWholeClass)
{
    for (std::size_t bytes : small_sizes) {
        Crowd crowd(bytes);
        void *victim = crowd.blocks[crowd.blocks.size() / 3];
        EXPECT_DEATH(
            {
                crowd.release_all();
                api::release(victim);
                drive_flush(crowd);
                _exit(0);
            },
            line_about(victim))
            << bytes;
        crowd.release_all();
    }
}

TEST_F(SafetyDeathTest, SmallBlockFreedTwiceAtItsThreadsEnd)
{
    void *victim = api::allocate(64);
    EXPECT_DEATH(
        {
            pthread_t thread;
            const auto free_twice = [](void *block) -> void * {
                api::release(block);
                api::release(block);
                return nullptr;
            };
            pthread_create(&thread, nullptr, free_twice, victim);
            pthread_join(thread, nullptr);
            Crowd crowd(64);
            crowd.release_all();
            drive_flush(crowd);
            _exit(0);
        },
        line_about(victim));
    api::release(victim);
}

TEST_F(SafetyDeathTest, LargeBlockFreedTwiceDiesAtOnce)
{
    for (std::size_t bytes : large_sizes) {
        void *victim = api::allocate(bytes);
        EXPECT_DEATH(
            {
                api::release(victim);
                api::release(victim);
                _exit(0);
            },
            line_about(victim))
            << bytes;
        api::release(victim);
    }
}

TEST_F(SafetyDeathTest, InteriorOfASmallBlock)
{
    const std::size_t cases[][2] = {{16, 1},  {16, 8},     {48, 16},   {64, 16},
                                    {64, 63}, {1024, 512}, {5000, 16}, {32768, 4096}};
    for (const auto &pair : cases) {
        Crowd crowd(pair[0]);
        void *inside = static_cast<char *>(crowd.blocks[crowd.blocks.size() / 2]) + pair[1];
        EXPECT_DEATH(
            {
                api::release(inside);
                crowd.release_all();
                drive_flush(crowd);
                _exit(0);
            },
            line_about(inside))
            << pair[0] << "+" << pair[1];
        crowd.release_all();
    }
}

TEST_F(SafetyDeathTest, InteriorOfALargeBlockDiesAtOnce)
{
    for (std::size_t bytes : large_sizes)
        for (std::size_t offset : {std::size_t{16}, 4 * KiB, 64 * KiB, bytes - 16}) {
            auto *block = static_cast<char *>(api::allocate(bytes));
            EXPECT_DEATH(
                {
                    api::release(block + offset);
                    _exit(0);
                },
                line_about(block + offset))
                << bytes << "+" << offset;
            api::release(block);
        }
}

TEST_F(SafetyDeathTest, ForeignPointersDieAtOnce)
{
    int on_stack = 0;
    static int in_data = 0;
    void *mapped =
        mmap(nullptr, 256 * KiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    void *code = nullptr;
    const auto function = &line_about;
    std::memcpy(&code, &function, sizeof code);
    void *foreign[] = {&on_stack, &in_data,
                       mapped,    static_cast<char *>(mapped) + 4096,
                       code,      reinterpret_cast<void *>(std::uintptr_t{16})};
    for (void *pointer : foreign) {
        EXPECT_DEATH(
            {
                api::release(pointer);
                _exit(0);
            },
            line_about(pointer));
    }
    munmap(mapped, 256 * KiB);
}

// No process has these addresses.
TEST_F(SafetyDeathTest, AddressesBeyondTheAddressSpaceDieAtOnce)
{
    for (std::uintptr_t pointer : {UINTPTR_MAX - 15, std::uintptr_t{1} << 55}) {
        EXPECT_DEATH(
            {
                api::release(reinterpret_cast<void *>(pointer));
                _exit(0);
            },
            "does not come from this allocator");
    }
}

TEST_F(SafetyDeathTest, ReallocOfAForeignPointer)
{
    int on_stack = 0;
    EXPECT_DEATH(
        {
            api::release(api::resize(&on_stack, 100));
            _exit(0);
        },
        line_about(&on_stack));
}

// A free that comes while the block's whole slab goes is told of the slab alone.
std::string line_about_race(const void *pointer)
{
    return line_about(pointer) + "|ebbtide: [^\n]*double free: of a block in";
}

struct Rivals {
    Crowd *crowd;
    void *victim;
    pthread_barrier_t start;
};

void *release_crowd(void *argument)
{
    auto *rivals = static_cast<Rivals *>(argument);
    pthread_barrier_wait(&rivals->start);
    rivals->crowd->release_all();
    return nullptr;
}

void *release_victim(void *argument)
{
    auto *rivals = static_cast<Rivals *>(argument);
    pthread_barrier_wait(&rivals->start);
    api::release(rivals->victim);
    return nullptr;
}

void race_to_free(Crowd &crowd, void *victim)
{
    Rivals rivals = {&crowd, victim, {}};
    pthread_barrier_init(&rivals.start, nullptr, 2);
    pthread_t first;
    pthread_t second;
    pthread_create(&first, nullptr, release_crowd, &rivals);
    pthread_create(&second, nullptr, release_victim, &rivals);
    pthread_join(first, nullptr);
    pthread_join(second, nullptr);
    api::trim(); // what either thread sent to another processor's slabs is taken in
    drive_flush(crowd);
    _exit(0);
}

TEST_F(SafetyDeathTest, BlockFreedByTwoThreads)
{
    for (std::size_t bytes : {16U, 48U, 64U, 1024U, 4096U}) {
        Crowd crowd(bytes);
        void *victim = crowd.blocks[crowd.blocks.size() / 2];
        EXPECT_DEATH(race_to_free(crowd, victim), line_about_race(victim)) << bytes;
        crowd.release_all();
    }
}

TEST_F(SafetyDeathTest, BlockFreedByItsOwnerAndAnotherThread)
{
    for (std::size_t bytes : {16U, 48U, 64U, 1024U, 4096U}) {
        Crowd crowd(bytes);
        void *victim = crowd.blocks[crowd.blocks.size() / 2];
        EXPECT_DEATH(
            {
                api::release(victim);
                race_to_free(crowd, crowd.blocks[0]);
            },
            line_about_race(victim) + "|" + line_about(crowd.blocks[0]))
            << bytes;
        crowd.release_all();
    }
}

// What a crash reporter does: allocates in the handler, among other sizes the class that was at
// fault.
void allocate_in_handler(int)
{
    for (int round = 0; round < 200; round++)
        for (std::size_t bytes :
             {std::size_t{16}, std::size_t{64}, std::size_t{1000}, 20 * KiB, MiB}) {
            void *block = api::allocate(bytes);
            if (block == nullptr)
                _exit(1);
            std::memset(block, 1, bytes);
            api::release(block);
        }
    static const char text[] = "the handler has allocated\n";
    _exit(write(STDERR_FILENO, text, sizeof text - 1) > 0 ? 42 : 1);
}

TEST_F(SafetyDeathTest, CrashHandlerMayAllocateAfterAForeignFree)
{
    int on_stack = 0;
    EXPECT_EXIT(
        {
            alarm(20);
            std::signal(SIGABRT, allocate_in_handler);
            api::release(&on_stack);
            _exit(0);
        },
        testing::ExitedWithCode(42), line_about(&on_stack) + ".*the handler has allocated");
}

TEST_F(SafetyDeathTest, CrashHandlerMayAllocateAfterADoubleFree)
{
    for (std::size_t bytes : {std::size_t{64}, std::size_t{1000}, MiB}) {
        Crowd crowd(bytes > 64 * KiB ? 64 : bytes);
        void *victim = api::allocate(bytes);
        EXPECT_EXIT(
            {
                alarm(20);
                std::signal(SIGABRT, allocate_in_handler);
                api::release(victim);
                api::release(victim);
                crowd.release_all();
                drive_flush(crowd);
                _exit(0);
            },
            testing::ExitedWithCode(42), line_about(victim) + ".*the handler has allocated");
        api::release(victim);
        crowd.release_all();
    }
}

} // namespace
