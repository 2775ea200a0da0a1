// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer region: labels, the names under which regions and domains are counted. A label is made at its
// first use and stays. The first EBBI_BOARD_LABELS of them lie side by side, the others in parts that follow; other
// processes read all of them out of this one's memory (process/board.h).
//
// All numbers are atomic and relaxed: they order nothing and may be out of date by each thread's last
// slow call. The name and `is_domain` are written before `ebbi_labels.labels` and `rows` count it.
#ifndef EBB_REGION_LABEL_H
#define EBB_REGION_LABEL_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"

#define EBBI_LABEL_BYTES 32
#define EBBI_BOARD_LABELS 64

struct ebbi_label {
    char name[EBBI_LABEL_BYTES];
    uint64_t is_domain;
    uint64_t open;   // regions, or heaps of threads
    uint64_t opened; // regions, or scopes
    uint64_t closed; // regions, or epochs
    uint64_t drained;
    uint64_t released;
    uint64_t held_bytes; // slabs, sheets and large objects
    uint64_t peak_bytes; // of them
    uint64_t
        live_bytes;   // of domains: when an epoch last ended; of regions: in use when last measured
    uint64_t slabs;   // and sheets
    uint64_t demoted; // sheets of closed regions
    uint64_t late;
    uint64_t refused;
    uint64_t oldest_ms; // when the oldest demoted sheet became so; 0: none
    uint64_t demoted_bytes;
};

// Labels beyond the first: a granule of them.
struct ebbi_more_labels {
    struct ebbi_more_labels *next;
    struct ebbi_label label[];
};

#define EBBI_LABELS_A_PART                                                                         \
    ((EBBI_GRANULE - sizeof(struct ebbi_more_labels)) / sizeof(struct ebbi_label))

struct ebbi_labels {
    uint64_t rows;
    struct ebbi_label row[EBBI_BOARD_LABELS];
    uint64_t labels; // with those beyond the rows
    struct ebbi_more_labels *more;
};

extern EBBI_HIDDEN struct ebbi_labels ebbi_labels;

// The label of that name and kind, cut to fit; NULL when memory is refused. O(labels), takes a lock.
struct ebbi_label *ebbi_label_find(const char *name, bool is_domain);
// The label behind `label`, in the order of their making; NULL: the first; NULL after the last.
struct ebbi_label *ebbi_label_next(const struct ebbi_label *label);
size_t ebbi_label_count(void);
// From 0, in that order; SIZE_MAX: none that this thread knows of. O(parts)
size_t ebbi_label_number(const struct ebbi_label *label);
void ebbi_labels_lock(void); // fork()
void ebbi_labels_unlock(void);

EBBI_INLINE void ebbi_count(uint64_t *number, uint64_t more)
{
    (void)ebbi_fetch_add_relaxed(number, more); // relaxed: a count
}

EBBI_INLINE void ebbi_label_hold(struct ebbi_label *label, size_t bytes)
{
    // relaxed: a count
    uint64_t now = ebbi_fetch_add_relaxed(&label->held_bytes, bytes) + bytes;
    if (now > ebbi_load_relaxed(&label->peak_bytes)) { // relaxed: a count
        ebbi_store_relaxed(&label->peak_bytes, now);   // relaxed: two at once may miss one peak
    }
}

EBBI_INLINE void ebbi_label_drop(struct ebbi_label *label, size_t bytes)
{
    (void)ebbi_fetch_sub_relaxed(&label->held_bytes, (uint64_t)bytes); // relaxed: a count
}

#endif
