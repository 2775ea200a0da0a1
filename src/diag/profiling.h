// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: the profile as a whole: on, into a file. 0, or an error below 0.
#ifndef EBB_DIAG_PROFILING_H
#define EBB_DIAG_PROFILING_H

#include "base/base.h"

int ebbi_profile_start(size_t mean);
int ebbi_profile_to_file(const char *file);
void ebbi_profile_at_load(void); // as EBB_PROFILE says

#endif
