// SPDX-License-Identifier: MIT OR Apache-2.0
// Errors of the caller, each in a child of its own: it must end at once, by the signal and with the words
// that the headers name, whatever the run has come to.
#pragma once

#include <functional>
#include <optional>

#include <sys/mman.h>

#include "ops_thread.h"

namespace random_test {

struct Misuse {
    std::string words; // on stderr, behind "ebbtide: "
    std::function<void()> commit;
    int signal = SIGABRT;
    std::string or_words = {};
};
using ChosenMisuse = std::optional<Misuse>;

inline void hold(const void *p) { asm volatile("" : : "r"(p) : "memory"); }

inline void end_grace_period()
{
    ebb_synchronize();
    ebb_reclaim();
    ebb_trim();
}

// Destructors that wait may allocate, and so may what is retired in them: later they could be given what has been freed
// here, whose second free is then of a live block.
inline void end_destructors()
{
    end_grace_period();
    end_grace_period();
}

// ---- of blocks -----------------------------------------------------------------------------------

inline ChosenMisuse free_twice(Worker &w, const Record &r)
{
    const Block *const block = w.model.pick(r.pick());
    if (block == nullptr)
        return {};
    void *const p = block->at;
    return Misuse{" free: ", [p] {
                      ebb_free(p);
                      ebb_free(p);
                  }};
}

inline ChosenMisuse free_inside(Worker &w, const Record &r)
{
    const Block *const block = w.model.pick(r.pick());
    if (block == nullptr || block->usable < 2)
        return {};
    void *const p = block->at + 1 + r.number() % (block->usable - 1);
    switch (r.y() % 4) {
    case 0:
        return Misuse{"invalid ", [p] { hold(ebb_realloc(p, 100)); }};
    case 1:
        if (!may_wait(w))
            return {};
        return Misuse{"invalid ", [p] {
                          ebb_retire(p);
                          end_grace_period();
                      }};
    default:
        return Misuse{"invalid free: ", [p] { ebb_free(p); }};
    }
}

inline ChosenMisuse free_foreign(Worker &w, const Record &r)
{
    static char own[64];
    void *const places[] = {own,
                            &w,
                            w.run.regions.data(),
                            reinterpret_cast<void *>(16),
                            reinterpret_cast<void *>(&free_twice),
                            reinterpret_cast<void *>(-4096)};
    void *const p = places[r.y() % std::size(places)];
    if (p == nullptr)
        return {};
    if (r.number() % 3 == 0)
        return Misuse{"invalid ", [p] { hold(ebb_realloc(p, 10)); }};
    return Misuse{"invalid free: ", [p] { ebb_free(p); }};
}

// ---- of retired blocks and pins ------------------------------------------------------------------

inline ChosenMisuse retire_twice(Worker &w, const Record &r)
{
    const Block *const block = w.model.pick(r.pick());
    if (block == nullptr || !may_wait(w))
        return {};
    void *const p = block->at;
    Misuse misuse{"double ", [p] {
                      ebb_retire(p);
                      ebb_retire(p);
                      end_grace_period();
                  }};
    // Outside of pins the first retire of a large block may free it: then the second is of no block. One on pages of its own is
    // said to be retired: of the size that was asked for, and as near to a page's end as its alignment lets it be.
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(p);
    if (at % 4096 == 0)
        misuse.or_words = "invalid retire: ";
    else if (block->usable == block->size && -(at + block->size) % 4096 < (at & -at))
        misuse.or_words = "invalid retire: retired, waits for its grace period: ";
    return misuse;
}

inline ChosenMisuse unpin_again(Worker &w, const Record &r)
{
    Clock &clock = w.clocks[pick_clock(r)];
    if (&clock != &w.clocks[0] && clock.me == nullptr)
        return {};
    ebb_participant *const me = &clock == &w.clocks[0] ? nullptr : clock.me;
    const unsigned depth = clock.depth;
    return Misuse{"unpin without a pin", [=, &w] {
                      for (auto &pins : w.run.pins)
                          pins[w.slot] = 0; // what they held back may be destroyed before the last
                      for (unsigned i = 0; i <= depth; i++)
                          me == nullptr ? ebb_unpin() : ebb_participant_unpin(me);
                  }};
}

inline ChosenMisuse pin_deeper(Worker &, const Record &)
{
    return Misuse{"pins nested more than ", [] {
                      for (unsigned i = 0; i < 1 << 20; i++)
                          ebb_pin();
                  }};
}

inline ChosenMisuse wait_inside(Worker &, const Record &r)
{
    static void (*const waits[])() = {ebb_synchronize, ebb_barrier,
                                      [] { ebb_collector_barrier(nullptr); }};
    const auto wait = waits[r.y() % std::size(waits)];
    return Misuse{"inside a pin", [wait] {
                      ebb_pin();
                      wait();
                  }};
}

inline ChosenMisuse wait_in_destructor(Worker &w, const Record &)
{
    if (!may_wait(w))
        return {};
    return Misuse{"barrier inside a destructor", [] {
                      static char own;
                      if (ebb_retire_with(
                              &own, [](void *, void *) { ebb_barrier(); }, nullptr) == 0)
                          ebb_barrier();
                  }};
}

inline ChosenMisuse close_hazard_twice(Worker &, const Record &)
{
    return Misuse{"closed twice", [] {
                      ebb_hazard *const hazard = ebb_hazard_open();
                      ebb_hazard_close(hazard);
                      ebb_hazard_close(hazard);
                  }};
}

inline ChosenMisuse end_collector(Worker &w, const Record &r)
{
    if (!may_wait(w))
        return {};
    ebb_collector *const collector = ebb_collector_create(0);
    const auto ends = [collector] { ebb_collector_destroy(collector); };
    switch (r.y() % 4) {
    case 0:
        return Misuse{"is no collector, or was destroyed before", [=] {
                          ends();
                          ends();
                      }};
    case 1:
        return Misuse{"destroyed while thread", [=] {
                          ebb_participant_pin(ebb_collector_attach(collector));
                          ends();
                      }};
    case 2:
        return Misuse{"destroyed inside a pin", [=] {
                          ebb_pin();
                          ends();
                      }};
    default:
        return Misuse{"is no collector, or was destroyed before", [=] {
                          ends();
                          ebb_collector_reclaim(collector);
                      }};
    }
}

// Each has its copy to give back.
inline ChosenMisuse free_in_two_threads(Worker &w, const Record &r)
{
    const Block *const block = w.model.pick(r.pick());
    if (block == nullptr || !may_wait(w))
        return {};
    void *const p = block->at;
    return Misuse{" free: ", [p] {
                      end_destructors();
                      std::thread([p] { ebb_free(p); }).join();
                      ebb_free(p);
                      end_grace_period();
                  }};
}

// ---- of regions ----------------------------------------------------------------------------------

inline ebb_region *region_to_misuse(bool closes)
{
    const ebb_region_options options = {"random misused", nullptr, 0, 0, closes};
    return ebb_region_open(&options);
}

inline ChosenMisuse end_region(Worker &, const Record &r)
{
    const bool closes = r.y() % 2 == 0;
    switch (r.number() % 4) {
    case 0:
        return Misuse{"a region that has ended", [=] {
                          ebb_region *const region = region_to_misuse(closes);
                          ebb_region_close(region);
                          ebb_region_close(region);
                      }};
    case 1:
        return Misuse{"a region that has ended", [] {
                          ebb_region *const region = region_to_misuse(false);
                          ebb_region_release(region);
                          hold(ebb_region_alloc(region, 100));
                      }};
    case 2:
        return Misuse{"which is current in a thread", [=] {
                          ebb_region *const region = region_to_misuse(false);
                          ebb_region_enter(region);
                          closes ? ebb_region_reset(region) : ebb_region_release(region);
                      }};
    default:
        return Misuse{"which was opened to be closed",
                      [] { ebb_region_release(region_to_misuse(true)); }};
    }
}

inline ChosenMisuse free_released(Worker &w, const Record &r)
{
    if (!may_wait(w))
        return {};
    const std::size_t size = r.size(w.run.config.profile);
    Misuse misuse{" free: ", [size] {
                      end_destructors();
                      ebb_region *const region = region_to_misuse(false);
                      void *const p = ebb_region_alloc(region, size);
                      ebb_region_release(region);
                      end_grace_period();
                      ebb_free(p);
                  }};
    misuse.or_words = "free after release: "; // with EBB_REGION_DEBUG
    return misuse;
}

// EBB_REGION_DEBUG: the access itself is reported, with the block's size and the place in it.
inline ChosenMisuse use_released(Worker &w, const Record &r)
{
    if (!may_wait(w) || option_value("EBB_REGION_DEBUG") == 0)
        return free_released(w, r);
    const std::size_t size = 1 + r.size(w.run.config.profile), at = r.number() % size;
    const bool is_free = r.y() % 2 == 0;
    const bool is_write = r.y() % 4 < 2;
    std::string words = "use after release: ";
    if (is_free)
        words = "free after release: ";
    return Misuse{words,
                  [=] {
                      end_destructors();
                      ebb_region *const region = region_to_misuse(false);
                      char *const p = static_cast<char *>(ebb_region_alloc(region, size));
                      hold(ebb_region_alloc(region, 100));
                      ebb_region_release(region);
                      end_grace_period();
                      if (is_free)
                          ebb_free(p);
                      else if (is_write)
                          static_cast<volatile char *>(p)[at] = 1;
                      else
                          hold(p + static_cast<volatile char *>(p)[at]);
                  },
                  is_free ? SIGABRT : SIGSEGV};
}

// ---- in a child ----------------------------------------------------------------------------------

[[noreturn]] inline void end_by_misuse(Worker &w, const Misuse &misuse, int output)
{
    settle_in_child(w, false);
    dup2(output, STDERR_FILENO);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(child_seconds());
    failing = true; // what ends it is no failure
    misuse.commit();
    _exit(0);
}

inline std::string said(int output)
{
    std::string text(8192, '\0');
    const ssize_t length = pread(output, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    return text;
}

inline void op_misuse(Worker &w, const Record &r)
{
    static constexpr ChosenMisuse (*all[])(Worker &, const Record &) = {
        free_twice, free_inside,   free_foreign,       retire_twice,        unpin_again,
        pin_deeper, wait_inside,   wait_in_destructor, close_hazard_twice,  end_collector,
        end_region, free_released, use_released,       free_in_two_threads, use_released};
    if (under_sanitizer || w.run.refusing || fork_depth >= 2)
        return;
    const unsigned number = r.x() % std::size(all);
    const ChosenMisuse misuse = all[number](w, r);
    if (!misuse)
        return;
    const int output = memfd_create("said", MFD_CLOEXEC);
    const pid_t child = fork();
    if (child == 0)
        end_by_misuse(w, *misuse, output);
    int status = 0;
    RANDOM_CHECK(await_child(child, status, child_seconds()), "misuse %u to end within %u s",
                 number, child_seconds());
    const std::string text = said(output);
    close(output);
    RANDOM_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == misuse->signal,
                 "misuse %u to end by signal %d, not %s %d; \"%s\" was said", number,
                 misuse->signal, WIFSIGNALED(status) ? "signal" : "exit",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), text.c_str());
    const std::size_t from = text.find("ebbtide: ");
    const auto says = [&](const std::string &words) {
        return from != std::string::npos && text.find(words, from) != std::string::npos;
    };
    RANDOM_CHECK(says(misuse->words) || (!misuse->or_words.empty() && says(misuse->or_words)),
                 "misuse %u to say \"%s\", not \"%s\"", number, misuse->words.c_str(),
                 text.c_str());
}

} // namespace random_test
