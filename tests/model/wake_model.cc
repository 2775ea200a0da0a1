// SPDX-License-Identifier: MIT OR Apache-2.0
// The helper's states: src/os/wake.c as it is, under Relacy, and the steps that process/helper.c makes of them. Who
// frees kicks: no helper is idle beside what was freed.
#include "model.h"

#include "os/os.h"

template <typename Word> static void ebbi_os_wait(Word *, uint32_t, uint32_t)
{
    model::pause(); // as long as it likes: each wait of the helper's ends by time
}
template <typename Word> static void ebbi_os_wake(Word *, int) {}

#include "os/wake.c"

namespace {

struct Wake {
    static constexpr rl::thread_id_t threads = 3;

    rl::mutex lock;
    rl::var<int> freed; // under the lock
    model::Block block;

    Wake()
    {
        freed($) = 0;
        ebbi_helper_state_set(EBBI_HELPER_NAPS);
    }
    ~Wake() { RL_ASSERT(freed($) == 0 || ebbi_helper_state() != EBBI_HELPER_IDLE); }

    static void kick()
    {
        uint32_t state = ebbi_helper_state();
        if (!model::is_mutant("kicks_once") || state != EBBI_HELPER_BUSY) {
            ebbi_helper_kick();
        } else {
            (void)ebbi_helper_state_move(EBBI_HELPER_BUSY, EBBI_HELPER_KICKED);
        }
    }
    void free_some()
    {
        lock.lock($);
        freed($) = 1;
        lock.unlock($);
        kick();
    }

    // False: there is nothing left.
    bool pass()
    {
        lock.lock($);
        bool some = freed($) != 0;
        freed($) = 0;
        lock.unlock($);
        if (some) {
            block.reuse();
        }
        return some;
    }
    static void listen(enum ebbi_helper_state from)
    {
        if (ebbi_helper_state_move(from, EBBI_HELPER_BUSY) &&
            !ebbi_helper_state_move(EBBI_HELPER_BUSY, from)) {
            ebbi_helper_state_set(model::is_mutant("listens_deaf") ? from : EBBI_HELPER_NAPS);
        }
    }
    static void idle()
    {
        if (ebbi_helper_state() == EBBI_HELPER_IDLE) {
            ebbi_bell_wait(ebbi_bell_listen(), 1000);
            listen(EBBI_HELPER_IDLE);
        }
    }
    void helper()
    {
        for (int i = 0; i < 2; i++) {
            listen(EBBI_HELPER_NAPS);
            if (ebbi_helper_state_move(EBBI_HELPER_NAPS, EBBI_HELPER_BUSY)) {
                bool waiting = pass();
                if (model::is_mutant("idles_when_kicked")) {
                    ebbi_helper_state_set(EBBI_HELPER_IDLE);
                } else if (waiting || !ebbi_helper_state_move(EBBI_HELPER_BUSY, EBBI_HELPER_IDLE)) {
                    ebbi_helper_state_set(EBBI_HELPER_NAPS);
                }
            }
            idle();
        }
    }
    void thread(unsigned index)
    {
        if (index == 0) {
            helper();
        } else {
            free_some();
        }
    }
};

const model::Scenario scenarios[] = {
    {"wake_helper", rl::simulate<model::Suite<Wake>>},
};

} // namespace

int main(int argc, char **argv) { return model::main(scenarios, argc, argv); }
