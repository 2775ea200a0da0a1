// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: reads everything, writes nothing but its answer. The waterfall from VmRSS down.
#ifndef EBB_DIAG_STATS_H
#define EBB_DIAG_STATS_H

#include <ebbtide.h>

void ebbi_stats_collect(struct ebb_stats *stats);
// As ebb_stats_text and ebb_stats_json; the XML is what malloc_info writes.
size_t ebbi_stats_text(char *out, size_t size);
size_t ebbi_stats_json(char *out, size_t size);
size_t ebbi_stats_xml(char *out, size_t size);
void ebbi_stats_to_stderr(void);

#endif
