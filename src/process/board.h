// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: the board: where another process finds all that it may read of this one's heap, and the word by which it
// asks (os/control.h). It needs the rights to read this one's memory, and no symbol: a note of the loaded part leads here,
// so that it is found in a stripped program that the library is linked into, and where the file was replaced since:
//
//     program header PT_NOTE -> owner "Ebbtide", type 1: 8 bytes, how far behind themselves the board lies
//
// Nothing waits for the reader: what it reads may change meanwhile, and each part says how that is seen.
#ifndef EBB_PROCESS_BOARD_H
#define EBB_PROCESS_BOARD_H

#include "epoch/clock.h"
#include "os/control.h"
#include "os/options.h"
#include "process/process.h"
#include "profile/profile.h"
#include "reclaim/reclaim.h"
#include "region/label.h"

#define EBBI_BOARD_MAGIC 0x454242424f524431 // "1DROBBBE" in memory
#define EBBI_BOARD_VERSION 4 // goes up with any change of the board, or of what it leads to

struct ebbi_board {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;   // of this
    char release[16]; // of the library, as ebb_version says
    struct ebbi_control *control;
    const struct ebbi_published *snapshot;
    const struct ebbi_labels *labels;
    uint64_t labels_a_part; // of those beyond the rows
    const struct ebbi_option_table *options;
    struct {                                         // the default collector's
        const void *now;                             // uint64_t: epoch << 16, in a fenced clock | 1
        struct ebb_participant *const *participants; // the first, linked by `next`
        const uint64_t *changed_ms;                  // CLOCK_MONOTONIC when `now` changed
        const struct ebbi_waiting_part *waiting;     // bytes that wait to be freed, to be added up
        uint64_t waiting_parts;
    } reclaim;
    struct {
        uint64_t entry_bytes;
        const struct ebbi_profile_state *state;
        const struct ebbi_profile_book *book;
        const struct ebbi_live_table *live;
    } profile;
};
extern EBBI_HIDDEN const struct ebbi_board ebbi_board;

#endif
