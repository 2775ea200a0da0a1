// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: reads everything, writes nothing but its answer. The waterfall from VmRSS down.
#ifndef EBB_DIAG_STATS_H
#define EBB_DIAG_STATS_H

#include <ebbtide.h>
#include <stdint.h>

// As ebb_stats_text, in the form that malloc_info writes.
size_t ebbi_stats_xml(char *out, size_t size);
void ebbi_stats_to_stderr(void);

struct ebbi_os_pages;
// Bytes of it in resident pages.
size_t ebbi_resident_in(struct ebbi_os_pages *pages, uintptr_t start, size_t bytes);

#endif
