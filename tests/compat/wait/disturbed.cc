// SPDX-License-Identifier: MIT OR Apache-2.0
// Waits that are cancelled, interrupted, in signal handlers and in children; and a crowd of threads.
#include <array>
#include <atomic>
#include <csetjmp>

#include <malloc.h>

#include "wait.h"

namespace {

struct Unwound {
    std::string text = std::string(100, 'u');
    int *seen;
    explicit Unwound(int *flag) : seen(flag) {}
    ~Unwound() { *seen += text.size() == 100 ? 1 : 100; }
};

void for_ever(int which)
{
    epoll_event event;
    pollfd fd = {place->pipe_ends[0], POLLIN, 0};
    const timespec hour = {3600, 0};
    const timespec late = after(CLOCK_REALTIME, 999999999);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(place->pipe_ends[0], &in);
    const int limit = place->pipe_ends[0] + 1;
    switch (which) {
    case 0:
        epoll_wait(place->events, &event, 1, -1);
        break;
    case 1:
        epoll_pwait(place->events, &event, 1, -1, nullptr);
        break;
    case 2:
        poll(&fd, 1, -1);
        break;
    case 3:
        ppoll(&fd, 1, nullptr, nullptr);
        break;
    case 4:
        select(limit, &in, nullptr, nullptr, nullptr);
        break;
    case 5:
        pselect(limit, &in, nullptr, nullptr, nullptr, nullptr);
        break;
    case 6:
        accept(place->listener, nullptr, nullptr);
        break;
    case 7:
        accept4(place->listener, nullptr, nullptr, 0);
        break;
    case 8:
        nanosleep(&hour, nullptr);
        break;
    case 9:
        clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, nullptr);
        break;
    case 10:
        pthread_cond_wait(&place->condition, &place->mutex);
        break;
    default:
        while (pthread_cond_timedwait(&place->condition, &place->mutex, &late) == 0) {
        }
    }
}
constexpr int kinds = 12, first_condition = 10;

struct Victim {
    int which;
    int unwound = 0;
    sem_t here;
};

void unlock(void *) { CHECK(pthread_mutex_unlock(&place->mutex) == 0); }

void *be_cancelled(void *argument)
{
    auto *victim = static_cast<Victim *>(argument);
    Work work;
    work.run();
    Unwound unwound(&victim->unwound);
    if (victim->which < first_condition) {
        sem_post(&victim->here);
        for_ever(victim->which);
        return nullptr;
    }
    pthread_mutex_lock(&place->mutex);
    pthread_cleanup_push(unlock, nullptr);
    sem_post(&victim->here);
    for_ever(victim->which);
    pthread_cleanup_pop(1);
    return nullptr;
}

void check_cancelled()
{
    for (int which = 0; which < kinds; which++) {
        Victim victim{which, 0, {}};
        pthread_t thread;
        void *result;
        sem_init(&victim.here, 0, 0);
        CHECK(pthread_create(&thread, nullptr, be_cancelled, &victim) == 0);
        while (sem_wait(&victim.here) != 0) {
        }
        nanosleep(&soon, nullptr); // on its way in, or waiting
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        if (result != PTHREAD_CANCELED || victim.unwound != 1) {
            std::fprintf(stderr, "call %d was not cancelled as it should\n", which);
            std::_Exit(1);
        }
        CHECK(pthread_mutex_trylock(&place->mutex) == 0 &&
              pthread_mutex_unlock(&place->mutex) == 0);
    }
}

volatile sig_atomic_t handled;
void on_signal(int)
{
    const int saved = errno;
    pollfd fd = {place->pipe_ends[0], POLLIN, 0};
    const timespec none = {0, 0};
    epoll_event event;
    handled = handled + (poll(&fd, 1, 0) == 0 && nanosleep(&none, nullptr) == 0 &&
                         epoll_wait(place->events, &event, 1, 0) == 0);
    errno = saved;
}

void handle(int number, int flags)
{
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = flags;
    CHECK(sigaction(number, &action, nullptr) == 0);
}

// A wait in a handler ends no epoch: malloc may have been interrupted.
void check_handler(bool on)
{
    handle(SIGUSR1, 0);
    Work work;
    work.run();
    nanosleep(&soon, nullptr);
    work.run();
    const long before = epochs();
    CHECK(raise(SIGUSR1) == 0 && handled == 1 && epochs() == before);
    nanosleep(&soon, nullptr);
    CHECK(on ? epochs() > before : epochs() == before);

    handled = 0;
    handle(SIGALRM, SA_RESTART);
    const itimerval often = {{0, 200}, {0, 200}}, never = {};
    CHECK(setitimer(ITIMER_REAL, &often, nullptr) == 0);
    while (handled < 500) {
        Work interrupted;
        interrupted.run();
        for (std::size_t i = 0; i < interrupted.kept.size(); i++)
            CHECK(interrupted.kept[i][15] == static_cast<char>(i * 10));
    }
    CHECK(setitimer(ITIMER_REAL, &never, nullptr) == 0);
}

void check_interrupted()
{
    handle(SIGALRM, 0);
    const itimerval once = {{0, 0}, {0, 20000}};
    const timespec hour = {3600, 0};
    timespec left = {};
    CHECK(setitimer(ITIMER_REAL, &once, nullptr) == 0);
    errno = 0;
    CHECK(nanosleep(&hour, &left) == -1 && errno == EINTR && left.tv_sec == 3599);
    CHECK(setitimer(ITIMER_REAL, &once, nullptr) == 0);
    errno = 0;
    CHECK(poll(nullptr, 0, -1) == -1 && errno == EINTR);
    errno = 0;
    CHECK(accept(-1, nullptr, nullptr) == -1 && errno == EBADF);
    epoll_event event;
    errno = 0;
    CHECK(epoll_wait(-1, &event, 1, 0) == -1 && errno == EBADF);
}

void in_child(pid_t child)
{
    if (child == 0) {
        nanosleep(&soon, nullptr);
        _exit(poll(nullptr, 0, 1) == 0 ? 7 : 8);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

void check_children()
{
    Work work;
    work.run();
    in_child(fork());
    work.run();
    const pid_t child = vfork();
    if (child == 0) {
        poll(nullptr, 0, 1);
        _exit(7);
    }
    in_child(child);
    work.run();
}

// Signals come in waits alone, of a thread that allocates: a handler that leaves them by a jump, and one that holds the thread
// there while others free what it has given away, and trim.
sigjmp_buf out;
volatile sig_atomic_t may_jump, held, goes_on;

void jump(int)
{
    if (may_jump) {
        may_jump = 0;
        siglongjmp(out, 1);
    }
}

void hold_on(int)
{
    held = 1;
    while (!goes_on) {
    }
    held = 0;
}

void handle(int signal, void (*handler)(int))
{
    struct sigaction action = {};
    action.sa_handler = handler;
    CHECK(sigaction(signal, &action, nullptr) == 0);
}

// A unit of more than 64 KiB: its end has something to do.
void fill_unit()
{
    static thread_local std::array<void *, 1500> blocks;
    for (std::size_t i = 0; i < blocks.size(); i++)
        blocks[i] = std::malloc(64 + i % 64 * 8);
    for (void *block : blocks)
        std::free(block);
}

void wait_with(const sigset_t &signals)
{
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    for (int i = 0; i < 50; i++)
        poll(nullptr, 0, 0);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void check_jumps()
{
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, nullptr);
    handle(SIGALRM, jump);
    volatile int jumps = 0;
    for (volatile int i = 0; i < 20000 && jumps < 2000; i = i + 1) {
        fill_unit();
        if (sigsetjmp(out, 1) == 0) {
            const itimerval soon = {{0, 0}, {0, 1 + i % 50}};
            may_jump = 1;
            setitimer(ITIMER_REAL, &soon, nullptr);
            wait_with(alarms);
            may_jump = 0;
        } else {
            jumps = jumps + 1;
        }
    }
    CHECK(jumps >= 100);
    handle(SIGALRM, SIG_IGN);
    pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
}

void check_stops()
{
    handle(SIGUSR1, hold_on);
    std::atomic<bool> ends{false};
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &stops, nullptr);
    std::thread stopped([&] {
        while (!ends) {
            fill_unit();
            wait_with(stops);
        }
    });
    for (int i = 0; i < 3000; i++) {
        goes_on = 0;
        pthread_kill(stopped.native_handle(), SIGUSR1);
        while (!held)
            std::this_thread::yield();
        fill_unit();
        malloc_trim(0);
        goes_on = 1;
        while (held)
            std::this_thread::yield();
    }
    ends = true;
    stopped.join();
    pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
}

// Workers that hand each other blocks, and wait in between.
void check_crowd()
{
    std::mutex mutex;
    std::condition_variable condition;
    std::vector<char *> handed;
    int working = 4;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 500; i++) {
                Work work;
                work.run();
                std::lock_guard<std::mutex> hold(mutex);
                handed.insert(handed.end(), work.kept.begin(), work.kept.end());
                work.kept.clear();
                condition.notify_one();
            }
            std::lock_guard<std::mutex> hold(mutex);
            working--;
            condition.notify_one();
        });
    std::unique_lock<std::mutex> hold(mutex);
    std::size_t seen = 0;
    while (working > 0 || !handed.empty()) {
        condition.wait(hold, [&] { return working == 0 || !handed.empty(); });
        for (char *block : handed)
            std::free(block);
        seen += handed.size();
        handed.clear();
    }
    hold.unlock();
    for (auto &thread : threads)
        thread.join();
    CHECK(seen == 4 * 500 * 30);
}

} // namespace

int main(int, char **arguments)
{
    const bool on = std::strcmp(arguments[1], "on") == 0;
    place = new Place;
    check_cancelled();
    check_handler(on);
    check_interrupted();
    check_children();
    check_jumps();
    check_stops();
    check_crowd();
    CHECK((epochs() >= 0) == on);
    std::puts("ok");
    return 0;
}
