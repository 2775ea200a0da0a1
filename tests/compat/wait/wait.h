// SPDX-License-Identifier: MIT OR Apache-2.0
// What both programs of wait.sh share: who closed how many epochs, work, and a place to meet.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ebbtide/region.h>

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0                                                                         \
                 : (std::fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno), \
                    std::_Exit(1)))

// The line of the domain "thread": its closed epochs, or -1 when there is no such line.
inline long epochs()
{
    using getter = std::size_t (*)(ebb_lifetime_stats *, std::size_t);
    static const auto get = reinterpret_cast<getter>(dlsym(RTLD_DEFAULT, "ebb_lifetimes_get"));
    CHECK(get != nullptr);
    static thread_local ebb_lifetime_stats lines[64];
    const std::size_t count = get(lines, 64);
    for (std::size_t i = 0; i < count && i < 64; i++)
        if (lines[i].is_domain != 0 && std::strcmp(lines[i].label, "thread") == 0)
            return static_cast<long>(lines[i].closed);
    return -1;
}

// What a unit of work leaves behind: blocks freed, and some that live on.
struct Work {
    std::vector<char *> kept;
    void run()
    {
        for (int i = 0; i < 300; i++) {
            char *block = static_cast<char *>(std::malloc(static_cast<std::size_t>(16 + i * 7)));
            CHECK(block != nullptr);
            std::memset(block, i, 16);
            if (i % 10 == 0)
                kept.push_back(block);
            else
                std::free(block);
        }
    }
    ~Work()
    {
        for (char *block : kept)
            std::free(block);
    }
};

inline constexpr timespec soon = {0, 1000000};

inline timespec after(clockid_t clock, long ns)
{
    timespec at;
    clock_gettime(clock, &at);
    at.tv_nsec += ns;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

// Two threads that wait for each other through whatever is at hand.
struct Place {
    int pipe_ends[2];
    int events, listener;
    sockaddr_un name = {};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    bool waits = false, told = false; // under the mutex
    Place()
    {
        CHECK(pipe(pipe_ends) == 0);
        events = epoll_create1(0);
        epoll_event event = {};
        event.events = EPOLLIN;
        CHECK(events >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, pipe_ends[0], &event) == 0);
        listener = socket(AF_UNIX, SOCK_STREAM, 0);
        name.sun_family = AF_UNIX;
        std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ebbtide-%d", getpid());
        CHECK(bind(listener, reinterpret_cast<sockaddr *>(&name), sizeof name) == 0);
        CHECK(listen(listener, 5) == 0);
    }
    void tell() // who waits already
    {
        pthread_mutex_lock(&mutex);
        while (!waits) {
            pthread_mutex_unlock(&mutex);
            sched_yield();
            pthread_mutex_lock(&mutex);
        }
        told = true;
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&mutex);
    }
    int connect_to()
    {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(fd, reinterpret_cast<sockaddr *>(&name), sizeof name) == 0);
        return fd;
    }
};

inline Place *place;
