// SPDX-License-Identifier: MIT OR Apache-2.0
// The whole library as one file, for builds without a build system:
//
//     cc -std=gnu17 -O3 -fPIC -shared -fvisibility=hidden -ftls-model=initial-exec -fno-builtin
//        -Isrc -Iinclude src/one.c -o libebbtide.so
//
// With -DEBB_NO_OVERRIDE, ebb_* alone; with -DEBB_STATIC, what may be linked statically.
#define _GNU_SOURCE
// clang-format off
#include "os/linux.c"
#include "os/fault.c"
#include "os/lock.c"
#include "os/fatal.c"
#include "os/options.c"
#include "epoch/clock.c"
#include "arena/tags.c"
#include "arena/chunk.c"
#include "arena/span.c"
#include "arena/purge.c"
#include "arena/huge.c"
#include "slab/classes.c"
#include "slab/slab.c"
#include "slab/purge.c"
#include "region/label.c"
#include "region/sheet.c"
#include "region/orphan.c"
#include "region/pool.c"
#include "region/stack.c"
#include "region/quarantine.c"
#include "region/escape.c"
#include "region/take.c"
#include "region/region.c"
#include "heap/shelf.c"
#include "heap/magazine.c"
#include "heap/refill.c"
#include "heap/bags.c"
#include "heap/retire.c"
#include "heap/stranded.c"
#include "heap/hazard.c"
#include "heap/deferred.c"
#include "heap/collector.c"
#include "heap/reclaim.c"
#include "heap/pin.c"
#include "heap/flush.c"
#include "heap/large.c"
#include "heap/purge.c"
#include "heap/depot.c"
#include "heap/lifetime.c"
#include "heap/domain.c"
#include "heap/helper.c"
#include "heap/thread.c"
#include "api/api.c"
#include "api/reclaim.c"
#include "api/region.c"
#include "diag/stats.c"
#include "diag/reclaim.c"
#include "diag/lifetimes.c"
#include "diag/report.c"
#ifndef EBB_NO_OVERRIDE
#include "override/malloc.c"
#include "override/libc.c"
#include "override/cxx.c"
#include "override/dlopen.c"
#ifndef EBB_STATIC
#include "override/block.c"
#endif
#endif
