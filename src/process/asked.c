// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: what another process has asked for (os/control.h). Called with no lock held, but perhaps below locks of the
// program or of libc.
#include <errno.h>

#include "heap/blocks.h"
#include "heap/registry.h"
#include "os/control.h"
#include "os/lock.h"
#include "os/wake.h"
#include "process/process.h"
#include "profile/profile.h"

#define MOST_MS ((uint64_t)1 << 40)

static struct ebbi_lock asked_lock =
    EBBI_LOCK(START); // rank: start; nothing is asked of the loader under it
static bool trims;    // under it: somebody does, without it

static int switch_for(size_t mean, uint64_t until_ms)
{
    ebbi_store_relaxed(&ebbi_profile.until_ms, until_ms); // relaxed: a time
    if (mean == 0) {
        ebbi_profile_end();
    }
    int error = mean != 0 ? ebbi_profile_begin(mean) : 0;
    if (error == 0) {
        ebbi_heaps_look_up();
    }
    return error;
}

// By the program. Under the lock, so that the end of one that was asked for does not end it.
int ebbi_profile_switch(size_t mean)
{
    ebbi_lock_take(&asked_lock);
    int error = switch_for(mean, 0);
    ebbi_lock_drop(&asked_lock);
    return error;
}

static int profile_asked(size_t mean, uint64_t ms)
{
    bool on = ebbi_profile_round() != 0;
    uint64_t until = ebbi_load_relaxed(&ebbi_profile.until_ms); // relaxed: a time
    uint64_t asked = ebbi_os_now_ms() + ms;
    if (mean > EBBI_PROFILE_MOST_MEAN || ms > MOST_MS) {
        return -EINVAL;
    }
    if (on && (until == 0 || mean != 0)) {
        // relaxed: a time; of a profile that the program began, nothing
        ebbi_store_relaxed(&ebbi_profile.until_ms, until != 0 ? ebbi_max(until, asked) : 0);
        return 0;
    }
    return on || mean != 0 ? switch_for(mean, mean != 0 ? asked : 0) : 0;
}

// What is freed may be guarded, and its free asks the loader.
static int trim_asked(bool helper)
{
    trims = true;
    ebbi_lock_drop(&asked_lock);
    (void)ebbi_trim(ebbi_heap_mine(), helper);
    ebbi_lock_take(&asked_lock);
    trims = false;
    return 0;
}

static int done(const struct ebbi_question *question, bool helper)
{
    switch (question->what) {
    case EBBI_ASK_NOTHING:
        return 0;
    case EBBI_ASK_PROFILE:
        return profile_asked(question->with, question->ms);
    case EBBI_ASK_TRIM:
        return trim_asked(helper);
    case EBBI_ASK_SNAPSHOT:
        ebbi_snapshot_publish();
        return 0;
    case EBBI_ASK_PINS:
        ebbi_samples_look();
        return 0;
    default:
        return -ENOSYS;
    }
}

void ebbi_profile_lapse(void)
{
    uint64_t until = ebbi_load_relaxed(&ebbi_profile.until_ms); // relaxed: a time
    if (EBBI_UNLIKELY(until != 0) && ebbi_os_now_ms() >= until && ebbi_lock_try(&asked_lock)) {
        (void)profile_asked(0, 0);
        ebbi_lock_drop(&asked_lock);
    }
}

// Under the lock. False: it is left to the helper, or to who trims and looks again.
static bool answer(bool helper)
{
    struct ebbi_question question = ebbi_control_read();
    ebbi_assert_held(&asked_lock);
    bool is_long = question.what >= EBBI_ASK_TRIM;
    bool does = !trims && (helper || !is_long || !ebbi_helper_is_there());
    if (does) {
        ebbi_control_answer(question.number, done(&question, helper));
    }
    return does;
}

// Whoever finds the lock taken leaves it to its holder, who looks again.
void ebbi_asked_serve(bool helper)
{
    bool goes_on = !ebbi_load_relaxed(&ebbi_dying); // relaxed: see ebbi_pass_serve
    while (goes_on && ebbi_control_is_asked() && ebbi_lock_try(&asked_lock)) {
        goes_on = answer(helper);
        ebbi_lock_drop(&asked_lock);
    }
}

void ebbi_asked_forget(void)
{
    ebbi_lock_reset(&asked_lock);
    trims = false;
    ebbi_control_forget();
}
