// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: what EBB_STATS asks for.
#ifndef EBB_DIAG_REPORT_H
#define EBB_DIAG_REPORT_H

void ebbi_reports_start(void); // when the library is loaded

#endif
