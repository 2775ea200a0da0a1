// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: single blocks whose grace period is over.
#include "heap/blocks.h"
#include "reclaim/queues.h"
#include "report/report.h"

void ebbi_free_passed(void *p, void *bytes)
{
    (void)bytes;
    if (ebbi_tag_class(ebbi_tag_of(p)) == 0) {
        ebbi_large_reclaim(p);
    } else {
        ebbi_class_free(p, 0);
    }
}

// Its sheet waits for this, even where its region has been released since.
void ebbi_free_passed_of_region(void *p, void *bytes)
{
    (void)bytes;
    ebbi_remains_lock();
    if (ebbi_tag_of(p) != EBBI_TAG_REGION) { // its sheet has ended with the first call
        ebbi_report_said((struct ebbi_report){.kind = {"double retire"}, .address = (uintptr_t)p},
                         "%p, a block of a region, has been freed since", p);
    }
    // relaxed: looked at under the lock
    (void)ebbi_fetch_sub_relaxed(&ebbi_sheet_of(p)->retired, 1u);
    (void)ebbi_sheet_free(p);
    ebbi_remains_unlock();
}
