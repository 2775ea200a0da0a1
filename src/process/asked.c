// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: what another process has asked for (os/control.h). Called with no lock held, but perhaps below locks of the
// program or of libc: nothing here asks the dynamic loader.
#include <errno.h>

#include "heap/blocks.h"
#include "heap/registry.h"
#include "os/control.h"
#include "process/process.h"
#include "profile/profile.h"

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

static int done(uint64_t what, uint64_t with)
{
    if (what != EBBI_ASK_PROFILE) {
        return -ENOSYS;
    }
    return with <= EBBI_PROFILE_MOST_MEAN ? ebbi_profile_switch(with) : -EINVAL;
}

void ebbi_asked_serve(void)
{
    uint32_t asked;
    // relaxed: see ebbi_pass_serve
    if (!ebbi_load_relaxed(&ebbi_dying) && ebbi_control_is_asked() && ebbi_control_take(&asked)) {
        uint64_t what = ebbi_load_relaxed(&ebb_control.what); // relaxed: behind take's fence
        uint64_t with = ebbi_load_relaxed(&ebb_control.with); // relaxed: as above
        ebbi_control_answer(asked, done(what, with));
    }
}
