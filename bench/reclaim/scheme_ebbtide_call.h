// SPDX-License-Identifier: MIT OR Apache-2.0
// Ebbtide's default collector, pins by a call of the shared library: what a caller in
// another language pays.
#ifndef EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_CALL_H
#define EBB_BENCH_RECLAIM_SCHEME_EBBTIDE_CALL_H

#define EBB_RECLAIM_NO_INLINE 1
#include "scheme_ebbtide.h"

#endif
