// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer api: what happens when the library is loaded.
#include "api/load.h"

#include "base/base.h"
#include "diag/report.h"
#include "os/options.h"
#include "process/process.h"

const char ebbi_loads = 1;

// Not left to the first malloc: a program whose first call is a free of something foreign is to be
// told so. Costs the reservation of the tag table.
__attribute__((constructor)) static void start_at_load(void)
{
    (void)ebbi_start();
    ebbi_options_report();
    ebbi_reports_start();
}
