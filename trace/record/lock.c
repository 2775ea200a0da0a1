// SPDX-License-Identifier: MIT OR Apache-2.0
// Locks that a call of malloc takes. Who holds one is interrupted by no handler, which might fork and then wait for what
// its own thread holds, and is not cancelled: malloc is no point where a thread may be.
#include "trace/record/record.h"

void take(struct lock *lock)
{
    sigset_t all, signals;
    int cancel;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_mutex_lock(&lock->mutex);
    lock->signals = signals;
    lock->cancel = cancel;
}

void give(struct lock *lock)
{
    sigset_t signals = lock->signals;
    int cancel = lock->cancel;
    pthread_mutex_unlock(&lock->mutex);
    pthread_setcancelstate(cancel, &cancel);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
}
