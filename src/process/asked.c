// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: what another process has asked for (os/control.h). Called with no lock held, but perhaps below locks of the
// program or of libc: nothing here asks the dynamic loader.
#include <errno.h>

#include "heap/blocks.h"
#include "heap/registry.h"
#include "os/control.h"
#include "os/lock.h"
#include "process/process.h"
#include "profile/profile.h"

static struct ebbi_lock asked_lock = EBBI_LOCK(START); // rank: before the registry; only ever tried

int ebbi_profile_switch(size_t mean)
{
    int error = mean != 0 ? ebbi_profile_begin(mean) : 0;
    if (mean == 0) {
        ebbi_profile_end();
    }
    if (error == 0) {
        ebbi_heaps_look_up();
    }
    return error;
}

static int done(const struct ebbi_question *question)
{
    if (question->what != EBBI_ASK_PROFILE) {
        return -ENOSYS;
    }
    return question->with <= EBBI_PROFILE_MOST_MEAN ? ebbi_profile_switch(question->with) : -EINVAL;
}

// Whoever finds the lock taken leaves it to its holder, who looks again.
void ebbi_asked_serve(void)
{
    // relaxed: see ebbi_pass_serve
    while (!ebbi_load_relaxed(&ebbi_dying) && ebbi_control_is_asked() &&
           ebbi_lock_try(&asked_lock)) {
        struct ebbi_question question = ebbi_control_read();
        ebbi_control_answer(question.number, done(&question));
        ebbi_lock_drop(&asked_lock);
    }
}

void ebbi_asked_forget(void)
{
    ebbi_lock_reset(&asked_lock);
    ebbi_control_forget();
}
