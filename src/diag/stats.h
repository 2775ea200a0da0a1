// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: reads everything, writes nothing but its answer. The waterfall from VmRSS down.
#ifndef EBB_DIAG_STATS_H
#define EBB_DIAG_STATS_H

#include <ebbtide.h>

// As ebb_stats_text, in the form that malloc_info writes.
size_t ebbi_stats_xml(char *out, size_t size);
void ebbi_stats_to_stderr(void);

#endif
