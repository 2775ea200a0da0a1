// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the words by which every layer says that memory can be returned. Who returns it lives far above
// (process/helper.c, process/pass.c); nothing here calls it.
//
//     NONE --kick--> WANTED --start--> NAPS <--> BUSY --nothing left--> IDLE --kick--> NAPS
//       ^                              |  ^        `--kick--> KICKED --> NAPS
//       \--time is up-- LINGERS <------/  \--> HELD (during a fork)
//                        | ^
//                        v '--all is returned
//                        BUSY
//
// The helper touches memory in BUSY and KICKED alone; amid its naps, too, it is BUSY while it does what another
// process asks for, or gathers. What there is to return is found under the locks: no state needs an order. The bell
// ends its naps. Where there is no helper a pass is asked for instead, and made by the thread that next leaves a
// slow free or another slow call.
#ifndef EBB_OS_WAKE_H
#define EBB_OS_WAKE_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"

enum ebbi_helper_state {
    EBBI_HELPER_NONE,
    EBBI_HELPER_WANTED,
    EBBI_HELPER_HELD,
    EBBI_HELPER_LINGERS,
    EBBI_HELPER_IDLE,
    EBBI_HELPER_NAPS,
    EBBI_HELPER_BUSY,
    EBBI_HELPER_KICKED,
};

// Any thread.
bool ebbi_helper_is_there(void); // or can be at once: what is kept for a while will be returned
void ebbi_helper_kick(void);     // there may be something to return later; creates no thread

// The state, for process/helper.c alone.
uint32_t ebbi_helper_state(void);
void ebbi_helper_state_set(uint32_t to);
bool ebbi_helper_state_move(uint32_t from, uint32_t to); // false: it was another
void ebbi_bell_ring(void);
uint32_t ebbi_bell_listen(void);
void ebbi_bell_wait(uint32_t heard,
                    uint32_t ms); // until it rings, if it has not since; 0: for ever

// The helper looks for what threads have freed of each other's memory, as soon as it sleeps: a hint, like its answer.
void ebbi_gather_ask(void);
bool ebbi_gather_claim(void);

void ebbi_nap(uint32_t ms); // the calling thread, that long

extern EBBI_HIDDEN EBBI_ATOMIC(uint32_t) ebbi_pass_wanted;
// Without a helper: whoever leaves a slow call next is to make a pass over all memory.
EBBI_INLINE bool ebbi_pass_is_wanted(void)
{
    return EBBI_UNLIKELY(ebbi_load_relaxed(&ebbi_pass_wanted) != 0); // relaxed: a hint
}
void ebbi_pass_ask(void);
bool ebbi_pass_claim(void); // of those who see it wanted, one

#endif
