// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations on threads and processes: hand-over, begin and end of threads, fork, memory and system
// calls that are refused.
#pragma once

#include <cstddef>
#include <new>
#include <system_error>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "ops_hazard.h"

namespace random_test {

void run_records(Worker &w);                             // run_stream.h
void finish_run(Worker &w);                              // run_stream.h
void run_thread(Run &run, unsigned slot, Stream stream); // run_stream.h

inline std::atomic<bool> had_threads; // the library's helper may run from then on

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool under_sanitizer = true;
#elif defined(__has_feature)
inline constexpr bool under_sanitizer =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool under_sanitizer = false;
#endif

// ---- hand-over -----------------------------------------------------------------------------------

inline void pack_tree(Worker &w, Region *region, Parcel &parcel)
{
    parcel.regions.push_back(region);
    std::erase(w.regions, region);
    w.model.for_each([=](const Block &b) { return b.region == region; },
                     [&](Block *b) { parcel.blocks.insert(w.model.remove(b)); });
    for (Region *child : region->children)
        pack_tree(w, child, parcel);
}

inline void send(Run &run, std::unique_ptr<Parcel> parcel)
{
    const std::lock_guard lock(run.mutex);
    run.parcels.push_back(std::move(parcel));
}

inline void op_send_blocks(Worker &w, const Record &r)
{
    auto parcel = std::make_unique<Parcel>();
    for (unsigned i = 0; i < 1u + r.x() % 20; i++) {
        Block *const block = w.model.pick(r.pick() + i * 7);
        if (block == nullptr)
            break;
        if (block->region != nullptr && (block->region->closed || !w.run.own_pid || r.y() % 2 == 0))
            continue;
        if (block->region != nullptr)
            block->region->must_close = true;
        Model::Owned owned = w.model.remove(block);
        if (owned->region != nullptr && !owned->region->shared)
            owned->region = nullptr; // whoever gets it cannot know when its region is closed
        parcel->blocks.insert(std::move(owned));
    }
    send(w.run, std::move(parcel));
}

inline void op_send_region(Worker &w, const Record &r)
{
    if (w.regions.empty())
        return;
    Region *const region = w.regions[r.pick() % w.regions.size()];
    const auto stays = [&](const Region &one) {
        return one.closed || one.entered > 0 || is_lent(w, &one);
    };
    if (region->parent != nullptr || any_of_tree(region, stays))
        return;
    if (r.x() % 2 == 0)
        ebb_region_detach(region->handle);
    auto parcel = std::make_unique<Parcel>();
    pack_tree(w, region, *parcel);
    send(w.run, std::move(parcel));
}

// Many that are opened here and ended elsewhere.
inline void op_relay(Worker &w, const Record &r)
{
    auto parcel = std::make_unique<Parcel>();
    const unsigned count = w.run.config.forks() ? r.x() % 16u : r.x() * 8u;
    for (unsigned i = 0; i < count; i++) {
        ebb_region *const handle = ebb_region_open(nullptr);
        if (handle == nullptr)
            break;
        Region *const region = new_region(w.run);
        region->handle = handle;
        if (r.y() % 2 == 0)
            ebb_region_detach(handle);
        parcel->regions.push_back(region);
    }
    send(w.run, std::move(parcel));
}

inline void take_in(Worker &w, Parcel &parcel)
{
    w.model.absorb(parcel.blocks);
    w.regions.insert(w.regions.end(), parcel.regions.begin(), parcel.regions.end());
}

inline void op_receive(Worker &w, const Record &r)
{
    std::unique_ptr<Parcel> parcel;
    {
        const std::lock_guard lock(w.run.mutex);
        if (w.run.parcels.empty())
            return;
        auto &chosen = w.run.parcels[r.pick() % w.run.parcels.size()];
        std::swap(chosen, w.run.parcels.back());
        parcel = std::move(w.run.parcels.back());
        w.run.parcels.pop_back();
    }
    take_in(w, *parcel);
}

// ---- threads -------------------------------------------------------------------------------------

inline void op_spawn(Worker &w, const Record &r)
{
    if (w.run.refusing || !w.run.config.threads())
        return;
    const std::lock_guard lock(w.run.mutex);
    const unsigned slot = static_cast<unsigned>(__builtin_ctz(~w.run.used_slots));
    if (slot > 4 || w.run.threads->size() > 60)
        return;
    had_threads = true;
    const Stream given = w.stream.take(10 + r.number() % 300);
    try {
        w.run.threads->emplace_back(run_thread, std::ref(w.run), slot, given);
        w.run.used_slots |= 1u << slot;
    } catch (const std::system_error &) {
        RANDOM_CHECK(w.run.config.mode == 4, "a thread");
    }
}

inline void join_all(Worker &w)
{
    std::vector<std::thread> ended;
    {
        const std::lock_guard lock(w.run.mutex);
        ended.swap(*w.run.threads);
    }
    for (std::thread &thread : ended)
        thread.join();
    if (!ended.empty())
        join_all(w); // those may have begun others
}

// What this thread has freed may go home meanwhile; libebbtide_wait.so would end its epoch.
inline void op_wait(Worker &, const Record &r)
{
    if (r.x() % 3 == 0) {
        errno = 12345;
        ebb_thread_idle();
        RANDOM_CHECK(errno == 12345, "errno %d", errno);
    }
    if (r.y() % 16 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(r.x() % 8));
    else
        poll(nullptr, 0, r.x() % 2);
}

inline void op_helper(Worker &w, const Record &)
{
    if (w.run.refusing)
        return;
    had_threads = true;
    errno = 0;
    const int result = ebb_helper_start();
    RANDOM_CHECK(result == 0 || (result == -1 && errno == EAGAIN &&
                                 (w.may_be_refused() || option_value("EBB_PURGE_THREAD") == 0)),
                 "%d, errno %d", result, errno);
}

// EBB_STATS=signal: another thread answers. In the child of a fork there is none.
inline void op_ask(Worker &, const Record &)
{
    const int number = static_cast<int>(option_value("EBB_STATS_SIGNAL"));
    if (option_value("EBB_STATS") == 2 && number != SIGSEGV)
        kill(getpid(), number);
}

// ---- fork ----------------------------------------------------------------------------------------

// True when the child has ended by itself, before the time is over.
inline bool await_child(pid_t child, int &status, unsigned seconds)
{
    long pause = 50000;
    for (long waited = 0; waited < seconds * 1000000000L; waited += pause) {
        if (waitpid(child, &status, WNOHANG) == child)
            return true;
        pause = std::min(pause * 5 / 4, 10000000L);
        const timespec time = {0, pause};
        nanosleep(&time, nullptr);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

inline void expect_good_end(pid_t child, unsigned seconds)
{
    int status = 0;
    RANDOM_CHECK(await_child(child, status, seconds), "the child of a fork to end within %u s",
                 seconds);
    RANDOM_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                 "the child of a fork ended with %s %d", WIFEXITED(status) ? "exit" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

// Only the calling thread is here; what the others held is lost.
inline void settle_in_child(Worker &w, bool alone)
{
    Run &run = w.run;
    fork_depth++;
    prctl(PR_SET_PDEATHSIG, SIGKILL); // none is left when a test is ended
    run.own_pid = false;
    run.crowded = false;
    if (!alone) {
        run.complete = false;
        run.era++;
        // The kernel copies pages while the others go on: a link may be from before its node was retired.
        run.links.fill(nullptr);
    }
    run.threads = new std::vector<std::thread>; // the old one cannot be joined: left where it is
    run.used_slots = 1u << w.slot;
    for (const auto &doom : run.dooms)
        doom->guarded = std::any_of(w.guards.begin(), w.guards.end(), [&](const Guard &guard) {
            return guard.block != nullptr && guard.block->doom == doom.get();
        });
    for (auto &clock : run.pins)
        for (unsigned i = 0; i < slot_count; i++)
            if (i != w.slot)
                clock[i] = 0;
}

inline unsigned child_seconds() { return under_sanitizer ? 60 : 20; }

inline void op_fork(Worker &w, const Record &r)
{
    if (fork_depth >= 2 || w.run.refusing)
        return;
    w.run.mutex.lock();
    const pid_t child = fork();
    if (child == 0) {
        settle_in_child(w, !had_threads);
        w.run.mutex.unlock();
        w.model.check_all();
        w.stream = w.stream.peek(4 + r.number() % 60);
        run_records(w);
        finish_run(w);
        _exit(0);
    }
    w.run.mutex.unlock();
    RANDOM_CHECK(child > 0, "fork, errno %d", errno);
    expect_good_end(child, child_seconds());
}

// ---- refusals ------------------------------------------------------------------------------------

inline int limited = RLIMIT_AS;

inline void raise_limit(Run &run)
{
    rlimit limit;
    getrlimit(static_cast<__rlimit_resource>(limited), &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(static_cast<__rlimit_resource>(limited), &limit);
    run.raises++;
    run.refusing = false;
}

// The model's own memory is not to be refused. (Another thread may have given way meanwhile.)
inline void give_way()
{
    static thread_local unsigned tries = 0;
    rlimit limit;
    getrlimit(static_cast<__rlimit_resource>(limited), &limit);
    if (limit.rlim_cur == limit.rlim_max && ++tries > 100)
        throw std::bad_alloc();
    limit.rlim_cur = limit.rlim_max;
    setrlimit(static_cast<__rlimit_resource>(limited), &limit);
}

inline std::size_t mapped_bytes(bool data)
{
    char text[128] = {};
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    const ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    unsigned long field[6] = {};
    if (got <= 0 || std::sscanf(text, "%lu %lu %lu %lu %lu %lu", field, field + 1, field + 2,
                                field + 3, field + 4, field + 5) != 6)
        return 0;
    return (data ? field[5] : field[0]) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

inline void op_refuse(Worker &w, const Record &r)
{
    if (w.run.config.mode != 4 || under_sanitizer || w.slot != 0)
        return;
    if (w.run.refusing)
        return raise_limit(w.run);
    volatile char stack[100000]; // it may not grow later
    for (std::size_t i = 0; i < sizeof stack; i += 1000)
        stack[i] = 0;
    std::set_new_handler(give_way);
    limited = r.x() % 2 == 0 ? RLIMIT_AS : RLIMIT_DATA;
    rlimit limit;
    getrlimit(static_cast<__rlimit_resource>(limited), &limit);
    static constexpr std::size_t rooms[] = {0, 0, 65536, 262144, 1 << 20, 4 << 20};
    limit.rlim_cur = mapped_bytes(limited == RLIMIT_DATA) + rooms[r.y() % std::size(rooms)];
    w.run.refusing = true;
    setrlimit(static_cast<__rlimit_resource>(limited), &limit);
}

inline void op_filter(Worker &w, const Record &r)
{
    if (w.run.config.mode != 5)
        return;
    static constexpr int calls[] = {SYS_membarrier, SYS_madvise,           SYS_mremap, SYS_getcpu,
                                    SYS_mincore,    SYS_sched_getaffinity, SYS_prctl};
    const unsigned chosen = r.x() % 4 == 0 ? 1u << r.y() % 7 : r.y();
    const unsigned error = r.at[3] % 2 == 0 ? EPERM : ENOSYS;
    w.run.filtered = true;
    if (r.at[3] / 2 % 2 == 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    else
        syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); // which the library does not see
    std::vector<sock_filter> code = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (unsigned i = 0; i < std::size(calls); i++)
        if (chosen >> i & 1) {
            code.push_back(
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(calls[i]), 0, 1));
            code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
        }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

} // namespace random_test
