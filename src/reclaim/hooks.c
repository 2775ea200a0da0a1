// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: objects that bring the hook in which they wait; heap/limbo.h has the picture and H1 to H4.
// Nothing here allocates.
#define EBB_RECLAIM_NO_INLINE
#include <ebbtide/reclaim.h>

#include "reclaim/queues.h"
#include "report/report.h"

#define MARK ((uintptr_t)0x6562625F686F6F6B) // no address is two others and this

static struct ebbi_hooks_taken nobodys_hooks; // of threads without a heap; its `waits` alone

// ---- chains --------------------------------------------------------------------------------------

static void chain_put(struct ebbi_chain *chain, struct ebb_hook *hook)
{
    hook->next = NULL;
    *(chain->count == 0 ? &chain->first : &chain->last->next) = hook;
    chain->last = hook;
    chain->count++;
}

static struct ebb_hook *chain_pop(struct ebbi_chain *chain)
{
    EBBI_ASSERT(chain->count > 0 && chain->first != NULL);
    struct ebb_hook *hook = chain->first;
    chain->first = hook->next;
    chain->count--;
    return hook;
}

// Behind the others; `more` is empty then.
static void chain_append(struct ebbi_chain *chain, struct ebbi_chain *more)
{
    if (more->count == 0) {
        return;
    }
    *(chain->count == 0 ? &chain->first : &chain->last->next) = more->first;
    chain->last = more->last;
    chain->count += more->count;
    more->count = 0;
}

static void chain_prepend(struct ebbi_chain *chain, struct ebbi_chain *more)
{
    chain_append(more, chain);
    *chain = *more;
    more->count = 0;
}

// The first ones, at most so many.
static struct ebbi_chain chain_cut(struct ebbi_chain *chain, size_t most)
{
    struct ebbi_chain part = {0};
    if (chain->count <= most) {
        chain_append(&part, chain);
    }
    while (chain->count > 0 && part.count < most) {
        chain_put(&part, chain_pop(chain));
    }
    return part;
}

// ---- in and out ------------------------------------------------------------------------------------

void ebbi_hook_mark(struct ebb_hook *hook, void *p, void (*run)(void *p, struct ebb_hook *hook))
{
    uintptr_t mark = (uintptr_t)run ^ (uintptr_t)hook ^ MARK;
    if (hook->mark == mark) {
        ebbi_report_said((struct ebbi_report){.kind = {"double retire"}, .address = (uintptr_t)p},
                         "%p, an object with a hook, waits for its grace period already", p);
    }
    hook->mark = mark;
    hook->p = p;
}

static void count_sealed(struct ebbi_hooked *hooked, size_t count)
{
    ebbi_store_relaxed(&hooked->sealed, count); // relaxed: a hint outside
}

static void settle_hooks(const struct ebbi_clock *clock, struct ebbi_hooked *hooked)
{
    while (hooked->old.chain.count > 0 && ebbi_clock_passed(clock, hooked->old.stamp)) {
        chain_append(&hooked->passed, &hooked->old.chain);
        hooked->old = hooked->young;
        hooked->young.chain.count = 0;
    }
}

void ebbi_hooks_seal(struct ebbi_clock *clock, struct ebbi_hooked *hooked)
{
    if (hooked->filling.count == 0) {
        return;
    }
    uint64_t stamp = ebbi_clock_stamp(clock);
    settle_hooks(clock, hooked); // behind the stamp: what is left is of its epoch or the one before
    bool with_old = hooked->old.chain.count == 0 || hooked->old.stamp == stamp;
    struct ebbi_stamped *to = with_old ? &hooked->old : &hooked->young;
    EBBI_ASSERT(to->chain.count == 0 || to->stamp == stamp);
    EBBI_ASSERT(!with_old || hooked->young.chain.count == 0);
    count_sealed(hooked, hooked->sealed + hooked->filling.count);
    to->stamp = stamp;
    chain_append(&to->chain, &hooked->filling);
}

bool ebbi_hooks_add(struct ebbi_clock *clock, struct ebbi_hooked *hooked, struct ebb_hook *hook)
{
    chain_put(&hooked->filling, hook);
    if (hooked->filling.count < EBBI_CALLS) {
        return false;
    }
    ebbi_hooks_seal(clock, hooked);
    return true;
}

// Of what has passed, until there are so many: what a hazard pointer points to is held.
static EBBI_NOINLINE struct ebbi_chain look_at_passed(struct ebbi_hooked *hooked, size_t most)
{
    struct ebbi_suspects suspects;
    struct ebb_hook *hooks[EBBI_SUSPECTS];
    struct ebbi_chain taken = {0};
    while (hooked->passed.count > 0 && taken.count < most) {
        size_t room = ebbi_min(EBBI_SUSPECTS, most - taken.count);
        size_t count = 0;
        ebbi_suspects_start(&suspects);
        while (hooked->passed.count > 0 && count < room) {
            struct ebb_hook *hook = chain_pop(&hooked->passed);
            hooks[count++] = hook;
            ebbi_suspects_add(&suspects, hook->p, 1);
        }
        ebbi_suspects_mark(&suspects);
        for (size_t i = 0; i < count; i++) {
            chain_put(suspects.marks[i] ? &hooked->held : &taken, hooks[i]);
        }
    }
    return taken;
}

// ---- taken: under the lock of those taken ------------------------------------------------------------

static void hooks_taken_add(struct ebbi_hooks_taken *taken, struct ebbi_chain *hooks, uint64_t turn)
{
    if (taken->count == 0) {
        struct ebbi_hooks_taken **first = &ebbi_calls_taken.hooks;
        taken->turn = turn;
        taken->next = *first;
        taken->link = first;
        if (*first != NULL) {
            (*first)->link = &taken->next;
        }
        *first = taken;
    }
    taken->turn = ebbi_min(taken->turn, turn);
    taken->count += hooks->count;
    chain_prepend(&taken->waits, hooks);
}

static void hooks_taken_less(struct ebbi_hooks_taken *taken, size_t count)
{
    EBBI_ASSERT(taken->count >= count);
    taken->count -= count;
    if (taken->count == 0 && count > 0) {
        *taken->link = taken->next;
        if (taken->next != NULL) {
            taken->next->link = taken->link;
        }
    }
}

// Also under the lock of what they belonged to.
static void hand_hooks_over(struct ebbi_chain *hooks, struct ebbi_expired *expired)
{
    struct ebbi_heap *heap = ebbi_heap_mine();
    expired->hooks_at = heap != NULL ? &heap->hooks : &nobodys_hooks;
    expired->hooks += hooks->count;
    ebbi_lock_take(&ebbi_calls_taken.lock);
    hooks_taken_add(expired->hooks_at, hooks, ebbi_calls_taken.turn);
    ebbi_lock_drop(&ebbi_calls_taken.lock);
}

size_t ebbi_hooks_take(struct ebbi_clock *clock, struct ebbi_hooked *hooked, size_t most,
                       struct ebbi_expired *expired)
{
    settle_hooks(clock, hooked);
    count_sealed(hooked, hooked->sealed + hooked->held.count);
    chain_append(&hooked->passed, &hooked->held);
    if (hooked->passed.count == 0 || most == 0) {
        return 0;
    }
    struct ebbi_chain taken =
        ebbi_hazards_count() == 0 ? chain_cut(&hooked->passed, most) : look_at_passed(hooked, most);
    size_t count = taken.count;
    EBBI_ASSERT(hooked->sealed >= count + hooked->held.count);
    count_sealed(hooked, hooked->sealed - count - hooked->held.count);
    if (count > 0) {
        hand_hooks_over(&taken, expired);
    }
    return count;
}

size_t ebbi_hooks_put(struct ebbi_hooked *hooked, struct ebbi_hooks_taken *taken)
{
    size_t count = taken->waits.count;
    hooks_taken_less(taken, taken->count);
    count_sealed(hooked, hooked->sealed + count);
    chain_prepend(&hooked->passed, &taken->waits);
    return count;
}

// ---- as they run -----------------------------------------------------------------------------------

void ebbi_hooks_claim(struct ebbi_heap *heap, const struct ebbi_expired *expired)
{
    if (heap == NULL || expired->hooks == 0 || expired->hooks_at == &heap->hooks) {
        return;
    }
    ebbi_lock_take(&ebbi_calls_taken.lock);
    hooks_taken_less(&nobodys_hooks, nobodys_hooks.waits.count);
    if (nobodys_hooks.waits.count > 0) {
        hooks_taken_add(&heap->hooks, &nobodys_hooks.waits, nobodys_hooks.turn);
    }
    ebbi_lock_drop(&ebbi_calls_taken.lock);
}

// `ran` are done with. At most so many others become the thread's own, in front of what an outer run has begun.
static size_t hooks_go_on(struct ebbi_hooks_taken *taken, struct ebbi_chain *begun, size_t ran,
                          size_t most)
{
    ebbi_lock_take(&ebbi_calls_taken.lock);
    hooks_taken_less(taken, ran);
    struct ebbi_chain part = chain_cut(&taken->waits, most);
    ebbi_lock_drop(&ebbi_calls_taken.lock);
    size_t count = part.count;
    chain_prepend(begun, &part);
    return count;
}

static void run_hook(struct ebb_hook *hook)
{
    uintptr_t run = hook->mark ^ (uintptr_t)hook ^ MARK;
    void *p = hook->p;
    hook->mark = 0; // H4
    ((void (*)(void *, struct ebb_hook *))run)(p, hook);
}

// Others without a heap may have run some of them.
void ebbi_hooks_run(struct ebbi_heap *heap, size_t count)
{
    struct ebbi_chain late = {0};
    struct ebbi_hooks_taken *own = heap != NULL ? &heap->hooks : &nobodys_hooks;
    struct ebbi_chain *begun = heap != NULL ? &own->begun : &late;
    size_t runs = 0;
    while (count > 0 || runs > 0) {
        runs = hooks_go_on(own, begun, runs, ebbi_min(count, EBBI_CALLS));
        count = runs > 0 ? count - runs : 0;
        for (size_t i = 0; i < runs; i++) {
            run_hook(chain_pop(begun));
        }
    }
}

void ebbi_hooks_abandon(struct ebbi_heap *heap)
{
    struct ebbi_hooks_taken *own = &heap->hooks;
    ebbi_lock_take(&ebbi_calls_taken.lock);
    chain_prepend(&own->waits, &own->begun);
    bool any = own->count > 0;
    ebbi_lock_drop(&ebbi_calls_taken.lock);
    if (any) {
        ebbi_late_put_hooks(own);
    }
}

// A thread that the child has not: what it had begun is lost.
static void give_hooks_back(struct ebbi_heap *heap, void *mine)
{
    if (heap != mine) {
        heap->hooks.begun.count = 0;
        ebbi_late_put_hooks(&heap->hooks);
    }
}

void ebbi_hooks_forked(struct ebbi_heap *heap)
{
    ebbi_heaps_each(give_hooks_back, heap);
    ebbi_late_put_hooks(&nobodys_hooks);
}
