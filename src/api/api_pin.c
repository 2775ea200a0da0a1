// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer api: the slow halves of pin and unpin; the inline ones (ebbtide/detail/pin.h) call these two by name.
#include "diag/load.h"
#include "front/front.h"
#include "reclaim/reclaim.h"

void ebb_pin_slow(struct ebb_participant *me)
{
    (void)ebbi_heap_get();
    ebbi_pin_slow(me);
}

// What a signal handler's unpin interrupts may be a slow call: no pass is made in it.
void ebb_unpin_slow(struct ebb_participant *me)
{
    if (ebbi_unpin_slow(me)) {
        ebbi_serve();
    }
}
