// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: the profile as a whole, and EBB_PROFILE.
#define _GNU_SOURCE
#include "diag/profiling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "heap/blocks.h"
#include "os/options.h"
#include "os/os.h"
#include "process/process.h"

int ebbi_profile_start(size_t mean)
{
    int error = ebbi_start();
    if (error == 0) {
        ebbi_fork_watch();
        error = ebbi_profile_switch(mean);
    }
    return error;
}

int ebbi_profile_to_file(const char *file)
{
    if (file == NULL) { // open(2) would say so, but its header forbids to ask
        return -EFAULT;
    }
    ebbi_samples_look();
    int fd = ebbi_os_file_open(file);
    int error = fd < 0 ? fd : ebbi_profile_write(fd);
    int closed = fd >= 0 ? ebbi_os_file_close(fd) : 0;
    return error != 0 ? error : closed;
}

// ---- EBB_PROFILE -------------------------------------------------------------------------------------

static pid_t profiled; // the process that writes

static void write_at_exit(void *unused)
{
    char file[EBBI_PATH_ROOM];
    (void)unused;
    if (getpid() != profiled) {
        return;
    }
    bool fits = ebbi_option_file(EBBI_OPTION_PROFILE, file, sizeof file);
    int error = fits ? ebbi_profile_to_file(file) : -ENAMETOOLONG;
    if (error != 0) {
        ebbi_message_file("no heap profile", error, file);
    } else {
        ebbi_message("heap profile in %s", file);
    }
}

void ebbi_profile_at_load(void)
{
    size_t mean = ebbi_option(EBBI_OPTION_PROFILE);
    if (mean == 0) {
        return;
    }
    int error = ebbi_profile_start(mean);
    if (error != 0) {
        ebbi_message("no heap profile: %s", strerror(-error));
        return;
    }
    profiled = getpid();
    ebbi_os_at_exit(write_at_exit);
}
