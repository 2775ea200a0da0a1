// SPDX-License-Identifier: MIT OR Apache-2.0
// Every call that wait.c stands before, once: it waits as it should, and an epoch ends.
#include <atomic>

#include "wait.h"

namespace {

// Each waits once and checks what it is told. `ready`: what is waited for has happened.
int taken(int fd)
{
    CHECK(fd >= 0);
    close(fd);
    return 0;
}
int drain()
{
    char c;
    CHECK(read(place->pipe_ends[0], &c, 1) == 1);
    return 0;
}
void wait_epoll()
{
    epoll_event event;
    CHECK(epoll_wait(place->events, &event, 1, -1) == 1 && (event.events & EPOLLIN) != 0);
    drain();
    CHECK(epoll_wait(place->events, &event, 1, 1) == 0);
}
void wait_epoll_p()
{
    epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    CHECK(epoll_pwait(place->events, &event, 1, -1, &none) == 1);
    drain();
}
void wait_poll()
{
    pollfd fd = {place->pipe_ends[0], POLLIN, 0};
    CHECK(poll(&fd, 1, -1) == 1 && fd.revents == POLLIN);
    drain();
    CHECK(poll(&fd, 1, 1) == 0);
}
void wait_ppoll()
{
    pollfd fd = {place->pipe_ends[0], POLLIN, 0};
    sigset_t none;
    sigemptyset(&none);
    CHECK(ppoll(&fd, 1, nullptr, &none) == 1);
    drain();
    CHECK(ppoll(&fd, 1, &soon, &none) == 0);
}
void wait_select()
{
    fd_set in;
    FD_ZERO(&in);
    FD_SET(place->pipe_ends[0], &in);
    timeval limit = {20, 0};
    CHECK(select(place->pipe_ends[0] + 1, &in, nullptr, nullptr, &limit) == 1);
    CHECK(FD_ISSET(place->pipe_ends[0], &in) && limit.tv_sec < 20);
    drain();
}
void wait_pselect()
{
    fd_set in;
    FD_ZERO(&in);
    FD_SET(place->pipe_ends[0], &in);
    sigset_t none;
    sigemptyset(&none);
    CHECK(pselect(place->pipe_ends[0] + 1, &in, nullptr, nullptr, nullptr, &none) == 1);
    drain();
}
void wait_accept()
{
    sockaddr_un from = {};
    socklen_t length = sizeof from;
    taken(accept(place->listener, reinterpret_cast<sockaddr *>(&from), &length));
    CHECK(from.sun_family == AF_UNIX && length >= sizeof(sa_family_t));
}
void wait_accept4() { taken(accept4(place->listener, nullptr, nullptr, SOCK_CLOEXEC)); }
void wait_condition()
{
    pthread_mutex_lock(&place->mutex);
    place->waits = true;
    while (!place->told)
        CHECK(pthread_cond_wait(&place->condition, &place->mutex) == 0);
    place->waits = place->told = false;
    pthread_mutex_unlock(&place->mutex);
}
void wait_condition_until()
{
    const timespec late = after(CLOCK_REALTIME, 1000000);
    pthread_mutex_lock(&place->mutex);
    CHECK(pthread_cond_timedwait(&place->condition, &place->mutex, &late) == ETIMEDOUT);
    pthread_mutex_unlock(&place->mutex);
}
void wait_condition_clock()
{
    std::mutex mutex;
    std::condition_variable condition;
    std::unique_lock<std::mutex> hold(mutex);
    CHECK(condition.wait_for(hold, std::chrono::milliseconds(1)) == std::cv_status::timeout);
}
void wait_nano() { CHECK(nanosleep(&soon, nullptr) == 0); }
void wait_clock()
{
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &soon, nullptr) == 0);
    const timespec wrong = {0, -1};
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &wrong, nullptr) == EINVAL); // not in errno
}

void nothing() {}
void write_one() { CHECK(write(place->pipe_ends[1], "x", 1) == 1); }
void connect_once() { close(place->connect_to()); }
void tell() { place->tell(); }

struct Case {
    const char *name;
    void (*wait)();
    void (*wake)();
};
const Case cases[] = {
    {"epoll_wait", wait_epoll, write_one},
    {"epoll_pwait", wait_epoll_p, write_one},
    {"poll", wait_poll, write_one},
    {"ppoll", wait_ppoll, write_one},
    {"select", wait_select, write_one},
    {"pselect", wait_pselect, write_one},
    {"accept", wait_accept, connect_once},
    {"accept4", wait_accept4, connect_once},
    {"pthread_cond_wait", wait_condition, tell},
    {"pthread_cond_timedwait", wait_condition_until, nothing},
    {"pthread_cond_clockwait", wait_condition_clock, nothing},
    {"nanosleep", wait_nano, nothing},
    {"clock_nanosleep", wait_clock, nothing},
};

// With the option the wait ends at least one epoch of a thread that has worked; work alone ends none.
void check_case(const Case &each, bool on)
{
    std::thread([&] {
        Work work;
        nanosleep(&soon, nullptr);
        work.run();
        const long before = epochs();
        work.run();
        CHECK(epochs() == before && (before >= 0) == on);
        std::atomic<bool> counted = false;
        std::thread other([&] { // whose own end must not be what is counted
            each.wake();
            while (!counted)
                std::this_thread::yield();
        });
        errno = 77;
        each.wait();
        CHECK(errno == 77);
        const long now = epochs();
        if (on ? now <= before : now != -1) {
            std::fprintf(stderr, "%s: %ld epochs before, %ld after\n", each.name, before, now);
            std::_Exit(1);
        }
        counted = true;
        other.join();
    }).join();
}

} // namespace

int main(int, char **arguments)
{
    const bool on = std::strcmp(arguments[1], "on") == 0;
    place = new Place;
    for (const Case &each : cases)
        check_case(each, on);
    CHECK((epochs() >= 0) == on);
    std::puts("ok");
    return 0;
}
