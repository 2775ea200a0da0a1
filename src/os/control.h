// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: the word by which another process asks for something (`ebb profile PID`), which finds it by the board
// (process/board.h). It writes it with the same rights that reading this one's memory needs; no port, no thread and no
// signal is there for it. Who next makes a slow call looks at it, and the helper does once a second; a process that does
// neither does not answer.
//
// The other writes `what`, `with` and `ms`, then `asked`: another number than before. Answered is that number, once it has been
// done, and `result` 0 or an errno below 0. Of two that ask at once one may go unanswered, so they take turns by a lock that
// this process knows nothing of: flock(2) on its /proc/PID/mem.
#ifndef EBB_OS_CONTROL_H
#define EBB_OS_CONTROL_H

#include "base/base.h"
#include "ebbtide/detail/atomic.h"

enum ebbi_what {
    EBBI_ASK_NOTHING, // the question is taken back
    // with: bytes from one sample to the next, for so many ms; or 0: over. What is on otherwise stays as it is. Of
    // several the first one's mean holds, and the time of the last to end.
    EBBI_ASK_PROFILE,
    EBBI_ASK_TRIM, // ebb_trim; by the helper, where there is one, so that no thread of the program pauses
    EBBI_ASK_SNAPSHOT, // ebb_snapshot_get, into the board's; as the one before
    EBBI_ASK_PINS,     // what each sample in use keeps (struct ebbi_live); as the one before
    EBBI_ASK_OPTION,   // with: its number, ms: its new value (ebbi_option_change)
};

struct ebbi_control {
    uint32_t asked; // atomic, as are all of them
    uint32_t answered;
    int32_t result;
    uint32_t unused;
    uint64_t what, with, ms;
};
extern EBBI_HIDDEN struct ebbi_control ebbi_control;

EBBI_INLINE bool ebbi_control_is_asked(void)
{
    // relaxed: a hint; who serves it looks again
    return EBBI_UNLIKELY(ebbi_load_relaxed(&ebbi_control.asked) !=
                         ebbi_load_relaxed(&ebbi_control.answered)); // relaxed: a hint
}

struct ebbi_question {
    uint64_t what, with, ms;
    uint32_t number;
};
struct ebbi_question ebbi_control_read(void); // one thread at a time, as is the next
void ebbi_control_answer(uint32_t number, int result);
void ebbi_control_forget(void); // in the child of a fork, which was not asked

#endif
