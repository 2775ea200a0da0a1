// SPDX-License-Identifier: MIT OR Apache-2.0
// What the programs allocate and retire: 32 bytes, a scheme's own link included, for
// the schemes that need no link inside a node.
#ifndef EBB_BENCH_RECLAIM_NODE_H
#define EBB_BENCH_RECLAIM_NODE_H

#include <stdint.h>

struct node {
    uint64_t word;
    uint64_t check;
    uint64_t unused[2];
};

#endif
