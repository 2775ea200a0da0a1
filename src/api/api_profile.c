// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer api: include/ebbtide/profile.h.
#include <errno.h>

#include <ebbtide/profile.h>

#include "diag/load.h"
#include "diag/profiling.h"
#include "process/process.h"
#include "profile/profile.h"

#define MEAN ((size_t)512 << 10)

static int said(int error)
{
    if (error != 0) {
        errno = -error;
    }
    return error != 0 ? -1 : 0;
}

int ebb_profile_start(size_t mean)
{
    if (mean > EBBI_PROFILE_MOST_MEAN) {
        return said(-EINVAL);
    }
    return said(ebbi_profile_start(mean != 0 ? mean : MEAN));
}

void ebb_profile_stop(void) { (void)ebbi_profile_switch(0); }

int ebb_profile_write(const char *file) { return said(ebbi_profile_to_file(file)); }
