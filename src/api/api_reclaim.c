// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer api: include/ebbtide/reclaim.h.
#include <errno.h>

#define EBB_RECLAIM_NO_INLINE
#include <ebbtide/reclaim.h>

#include "diag/load.h"
#include "front/fast.h"
#include "reclaim/reclaim.h"

_Static_assert(offsetof(struct ebbi_fast, pin) == EBB_SELF_PIN, "part of the binary interface");

void ebb_pin(void) { ebbi_pin(ebbi_self()); }
void ebb_unpin(void) { ebbi_unpin(ebbi_self()); }
void ebb_repin(void) { ebbi_repin(ebbi_self()); }
int ebb_is_pinned(void) { return ebbi_is_pinned(NULL); }

void ebb_retire(void *p) { ebbi_retire(p); }

static int result(bool done)
{
    ebbi_helper_look(); // what waits is left to it
    ebbi_serve();
    if (!done) {
        errno = ENOMEM;
    }
    return done ? 0 : -1;
}

// me: NULL for the default one.
static EBBI_NOINLINE int retire_with_slow(struct ebb_participant *me, void *p,
                                          void (*run)(void *p, void *context), void *context)
{
    return result(ebbi_retire_with(ebbi_heap_get(), me, (struct ebbi_call){run, p, context}));
}

int ebb_retire_with(void *p, void (*run)(void *p, void *context), void *context)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    if (heap != NULL &&
        ebbi_defer_append(&heap->deferred, (struct ebbi_call){run, p, context}, 0)) {
        return 0;
    }
    return retire_with_slow(NULL, p, run, context);
}

void ebb_retire_hooked(struct ebb_hook *hook, void *p, void (*run)(void *p, struct ebb_hook *hook))
{
    int saved = errno;
    ebbi_hook_mark(hook, p, run);
    ebbi_retire_hooked(ebbi_heap_get(), hook);
    (void)result(true);
    errno = saved;
}

void ebb_synchronize(void) { ebbi_synchronize(NULL); }
// The calls run as this thread's: it has its heap then.
static void barrier(struct ebbi_collector *collector)
{
    (void)ebbi_heap_get();
    ebbi_barrier(collector);
    ebbi_serve();
}

static size_t reclaim(struct ebbi_collector *collector)
{
    (void)ebbi_heap_get();
    size_t bytes = ebbi_reclaim(collector);
    ebbi_serve();
    return bytes;
}

void ebb_barrier(void) { barrier(NULL); }
size_t ebb_reclaim(void) { return reclaim(NULL); }
uint64_t ebb_epoch_cookie(void) { return ebbi_clock_stamp(&ebbi_clock); }

int ebb_epoch_passed(uint64_t cookie)
{
    return ebbi_clock_passed(&ebbi_clock, cookie) ||
           (ebbi_clock_advance(&ebbi_clock, true) && ebbi_clock_passed(&ebbi_clock, cookie));
}

static struct ebbi_collector *inner(struct ebb_collector *collector)
{
    return (struct ebbi_collector *)collector;
}

struct ebb_collector *ebb_collector_create(unsigned flags)
{
    if ((flags & ~(unsigned)EBB_COLLECTOR_FENCED) != 0) {
        errno = EINVAL;
        return NULL;
    }
    (void)ebbi_heap_get();
    return (struct ebb_collector *)ebbi_collector_create((flags & EBB_COLLECTOR_FENCED) != 0);
}

void ebb_collector_destroy(struct ebb_collector *collector)
{
    if (collector != NULL) {
        ebbi_collector_destroy(ebbi_heap_get(), inner(collector));
    }
}

int ebb_collector_is_fenced(const struct ebb_collector *collector)
{
    const struct ebbi_collector *own = (const struct ebbi_collector *)collector;
    return ebbi_clock_is_fenced(own != NULL ? &own->clock : &ebbi_clock);
}

struct ebb_participant *ebb_collector_attach(struct ebb_collector *collector)
{
    struct ebb_participant *me = ebbi_collector_attach(ebbi_heap_get(), inner(collector));
    if (me == NULL) {
        errno = ENOMEM;
    }
    return me;
}

int ebb_participant_retire(struct ebb_participant *me, void *p)
{
    if (me == ebbi_self()) {
        ebbi_retire(p);
        return 0;
    }
    return ebbi_retire_easily(me, p) ? 0 : result(ebbi_retire_into(ebbi_heap_get(), me, p));
}

int ebb_participant_retire_with(struct ebb_participant *me, void *p,
                                void (*run)(void *p, void *context), void *context)
{
    if (ebbi_defer_to(me, (struct ebbi_call){run, p, context}, 0)) {
        return 0;
    }
    return retire_with_slow(me, p, run, context);
}

void ebb_collector_synchronize(struct ebb_collector *collector)
{
    ebbi_synchronize(inner(collector));
}

void ebb_collector_barrier(struct ebb_collector *collector) { barrier(inner(collector)); }

size_t ebb_collector_reclaim(struct ebb_collector *collector) { return reclaim(inner(collector)); }

struct ebb_hazard *ebb_hazard_open(void)
{
    ebbi_helper_look();
    (void)ebbi_heap_get(); // starts the library
    struct ebb_hazard *hazard = ebbi_hazard_open(ebbi_thread_mark());
    if (hazard == NULL) {
        errno = ENOMEM;
    }
    return hazard;
}

void ebb_hazard_close(struct ebb_hazard *hazard)
{
    if (hazard != NULL) {
        ebbi_hazard_close(hazard);
    }
}

void ebb_reclaim_set_limit(size_t limit, void (*notify)(size_t bytes, void *context), void *context)
{
    ebbi_limbo_set_limit(limit, notify, context);
}
