// SPDX-License-Identifier: MIT OR Apache-2.0
// The lock: src/os/lock.h and lock.c as they are, under Relacy, over a futex made of a mutex and a
// condition variable. Who holds it writes to plain memory; who sleeps for ever is a deadlock.
#include "model.h"
#undef futex // Relacy's own

namespace {

char *selves[4]; // places that no two threads have in common

} // namespace

#define ebb_self (selves[rl::thread_index()])
#define _Static_assert static_assert
#define EBBI_LOCK_SPINS 1
#include "src/os/lock.h"

namespace {

// What the kernel keeps for the one word: its look and the sleep are one step.
struct Futex {
    model::Placed<rl::mutex> mutex;
    model::Placed<rl::condition_variable> sleepers;
};
Futex *the_futex;

} // namespace

static void ebbi_os_wait(uint32_t *word, uint32_t expected, uint32_t)
{
    auto *whole = reinterpret_cast<model::Atomic<uintptr_t> *>(word);
    the_futex->mutex.real().lock($);
    if (static_cast<uint32_t>(whole->real().load(rl::mo_relaxed, $)) == expected) {
        the_futex->sleepers.real().wait(the_futex->mutex.real(), $);
    }
    the_futex->mutex.real().unlock($);
}

static void ebbi_os_wake(uint32_t *, int)
{
    if (!model::is_mutant("wakes_nobody")) {
        the_futex->mutex.real().lock($);
        the_futex->sleepers.real().notify_one($);
        the_futex->mutex.real().unlock($);
    }
}

void ebbi_fatal(const char *, ...)
{
    RL_ASSERT(!"a thread waits for itself");
    std::abort();
}

#include "os/lock.c"

namespace {

struct Lock {
    Futex kernel;
    struct ebbi_lock lock;
    model::Block block;

    Lock() { the_futex = &kernel; }

    // The word is taken first, and says whose it is a moment later.
    void take_named_late()
    {
        uintptr_t nobody = 0;
        while (!ebbi_cas_acquire(&lock.word, &nobody, uintptr_t{2})) {
            nobody = 0;
            model::pause();
        }
        ebbi_store_relaxed(&lock.word, ebbi_lock_self());
    }
    // Who has slept takes the lock as if nobody slept any more.
    void take_and_forget()
    {
        uintptr_t holder = ebbi_load_relaxed(&lock.word);
        while (!(holder == 0 && ebbi_cas_acquire(&lock.word, &holder, ebbi_lock_self()))) {
            if (holder != 0 && ebbi_cas_relaxed(&lock.word, &holder, holder | EBBI_LOCK_SLEEPERS)) {
                ebbi_os_wait(::futex(&lock), static_cast<uint32_t>(holder | EBBI_LOCK_SLEEPERS), 0);
            }
            holder = ebbi_load_relaxed(&lock.word);
        }
    }
    void take()
    {
        if (model::is_mutant("named_late")) {
            take_named_late();
        } else if (model::is_mutant("sleepers_forgotten")) {
            take_and_forget();
        } else {
            ebbi_lock_take(&lock);
        }
    }
    void drop() { ebbi_lock_drop(&lock); }
    void hold()
    {
        RL_ASSERT(ebbi_lock_is_mine(&lock));
        block.fill();
        model::pause();
        block.read();
        block.reuse();
    }
    void once()
    {
        take();
        hold();
        drop();
    }
};

struct Three : Lock {
    static constexpr rl::thread_id_t threads = 3;

    void thread(unsigned)
    {
        once();
        once();
    }
};

// One that does not wait, beside two that do.
struct Tried : Lock {
    static constexpr rl::thread_id_t threads = 3;

    void thread(unsigned index)
    {
        if (index != 0) {
            once();
        } else if (ebbi_lock_try(&lock)) {
            hold();
            drop();
        }
    }
};

// A signal handler wants the lock wherever it comes: it is told when its thread holds it.
struct Handler : Lock {
    static constexpr rl::thread_id_t threads = 2;

    Handler()
    {
        model::interrupt() = {0,
                              [](void *context) {
                                  auto *handler = static_cast<Handler *>(context);
                                  if (!ebbi_lock_is_mine(&handler->lock)) {
                                      ebbi_lock_take(&handler->lock);
                                      handler->hold();
                                      handler->drop();
                                  }
                              },
                              this};
    }
    void thread(unsigned)
    {
        once();
        once();
    }
};

const model::Scenario scenarios[] = {
    {"lock_three", rl::simulate<model::Suite<Three>>, true},
    {"lock_tried", rl::simulate<model::Suite<Tried>>, true},
    {"lock_handler", rl::simulate<model::Suite<Handler>>, true},
};

} // namespace

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
