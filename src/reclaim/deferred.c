// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: calls that wait for a grace period. Under the lock of the heap they belong to, so that
// any thread can seal and run those of one that sleeps.

#include "heap/blocks.h"
#include "os/wake.h"
#include "reclaim/queues.h"

_Static_assert(sizeof(struct ebbi_calls) <= sizeof(struct ebbi_bag), "one size of block for both");

// Records of calls taken out of their queues and not run to the end. A record comes here from its queue, and goes
// back there, under the lock of that, so whoever finds it in neither, in this order and with `returned` as it was,
// knows that it has run.
//
// They are in one list, of all threads: the child of a fork puts back what the threads that it does not
// have had taken and not begun. A record begins, and ends, under this lock, too: while fork() holds both, nothing of
// that happens.
struct ebbi_calls_taken ebbi_calls_taken = {.lock = EBBI_LOCK(OWNER),
                                            .end = &ebbi_calls_taken.first};

static void taken_add(struct ebbi_calls *calls)
{
    calls->taker = ebbi_lock_self();
    calls->runs = false;
    ebbi_lock_take(&ebbi_calls_taken.lock);
    calls->turn = ebbi_calls_taken.turn;
    calls->taken_next = NULL;
    calls->taken_link = ebbi_calls_taken.end;
    *ebbi_calls_taken.end = calls;
    ebbi_calls_taken.end = &calls->taken_next;
    ebbi_lock_drop(&ebbi_calls_taken.lock);
}

void ebbi_taken_remove(struct ebbi_calls *calls, bool returns)
{
    ebbi_lock_take(&ebbi_calls_taken.lock);
    EBBI_ASSERT(*calls->taken_link == calls);
    *calls->taken_link = calls->taken_next;
    *(calls->taken_next != NULL ? &calls->taken_next->taken_link : &ebbi_calls_taken.end) =
        calls->taken_link;
    ebbi_calls_taken.returned += returns;
    ebbi_lock_drop(&ebbi_calls_taken.lock);
}

// ---- calls that free a block -------------------------------------------------------------------------
// Their context is its bytes. Those that wait for the default clock are under its limit.

// Of the first `count`.
static struct ebbi_limbo_totals sum_of_calls(const struct ebbi_calls *calls, size_t count)
{
    struct ebbi_limbo_totals sum = {.calls = count};
    for (size_t i = 0; i < count; i++) {
        size_t bytes = ebbi_call_bytes(&calls->calls[i]);
        sum.blocks += bytes != 0;
        sum.bytes += bytes;
    }
    return sum;
}

static struct ebbi_limbo_totals count_in(struct ebbi_deferred *deferred,
                                         const struct ebbi_calls *calls, bool any_blocks)
{
    struct ebbi_limbo_totals sum = sum_of_calls(calls, any_blocks ? calls->count : 0);
    deferred->count += calls->count;
    deferred->blocks += sum.blocks;
    deferred->bytes += sum.bytes;
    return sum;
}

// Bytes.
static size_t count_out(struct ebbi_deferred *deferred, const struct ebbi_calls *calls)
{
    struct ebbi_limbo_totals sum = sum_of_calls(calls, deferred->blocks > 0 ? calls->count : 0);
    EBBI_ASSERT(sum.bytes <= deferred->bytes && calls->count <= deferred->count);
    deferred->count -= calls->count;
    deferred->blocks -= sum.blocks;
    deferred->bytes -= sum.bytes;
    if (sum.bytes > 0 && calls->clock == &ebbi_clock) {
        ebbi_limbo_count(0, sum.bytes);
    }
    return sum.bytes;
}

// ---- in and out ------------------------------------------------------------------------------------

// Whether any of the calls that have been seen may: their thread stored the bytes before.
static bool fills_with_blocks(const struct ebbi_deferred *deferred)
{
    // relaxed: behind the acquire of the count
    return ebbi_load_relaxed(&deferred->filling_bytes) != 0;
}

size_t ebbi_deferred_count(const struct ebbi_deferred *deferred)
{
    return deferred->count + ebbi_record_count(deferred->filling);
}

struct ebbi_limbo_totals ebbi_deferred_totals(const struct ebbi_deferred *deferred)
{
    size_t count = ebbi_record_count(deferred->filling);
    struct ebbi_limbo_totals sum = {0};
    if (count > 0 && fills_with_blocks(deferred)) {
        sum = sum_of_calls(deferred->filling, count);
    }
    sum.blocks += deferred->blocks;
    sum.bytes += deferred->bytes;
    sum.calls = deferred->count + count;
    sum.calls_for_blocks = sum.blocks;
    return sum;
}

uint32_t ebbi_deferred_turns(const struct ebbi_deferred *deferred)
{
    return deferred->turns + (uint32_t)ebbi_record_count(deferred->filling);
}

void ebbi_deferred_seal(struct ebbi_clock *clock, struct ebbi_deferred *deferred)
{
    struct ebbi_calls *calls = deferred->filling;
    ebbi_hooks_seal(clock, &deferred->hooked);
    if (ebbi_record_count(calls) == 0) {
        return;
    }
    ebbi_record_close(calls);
    EBBI_ASSERT(calls->clock == clock && calls->count <= EBBI_CALLS && calls->begun == 0);
    (void)count_in(deferred, calls, fills_with_blocks(deferred));
    deferred->turns += calls->count;
    calls->stamp = ebbi_clock_stamp(clock);
    calls->held = false;
    calls->next = NULL;
    *(deferred->first == NULL ? &deferred->first : &deferred->last->next) = calls;
    deferred->last = calls;
    ebbi_store_relaxed(&deferred->sealed, deferred->sealed + 1); // relaxed: a hint outside
}

static void open_record(struct ebbi_deferred *deferred, struct ebbi_clock *clock,
                        struct ebbi_calls *calls)
{
    calls->clock = clock;
    calls->begun = 0;
    ebbi_store_relaxed(&calls->state, 0u);                   // relaxed: under the lock
    ebbi_store_relaxed(&deferred->filling_bytes, (size_t)0); // relaxed: as above
    deferred->filling = calls;
}

// True: a record is open. One that is closed has been left, or is open again when its calls have run.
static bool has_open(struct ebbi_deferred *deferred, struct ebbi_clock *clock)
{
    struct ebbi_calls *calls = deferred->filling;
    if (calls == NULL || ebbi_record_is_open(calls)) {
        return calls != NULL;
    }
    deferred->filling = NULL;
    if (!ebbi_record_let_go(calls, EBBI_CALLS_LEFT)) {
        return false;
    }
    open_record(deferred, clock, calls);
    return true;
}

void ebbi_deferred_leave(struct ebbi_deferred *deferred)
{
    struct ebbi_calls *calls = deferred->filling;
    if (calls == NULL) {
        return;
    }
    EBBI_ASSERT(ebbi_record_count(calls) == 0);
    deferred->filling = NULL;
    if (ebbi_record_is_open(calls) || ebbi_record_let_go(calls, EBBI_CALLS_LEFT)) {
        ebbi_own_send(calls);
    }
}

// Whether the record is full now and has been sealed.
static bool add(struct ebbi_clock *clock, struct ebbi_deferred *deferred, struct ebbi_call call)
{
    struct ebbi_calls *calls = deferred->filling;
    uint32_t count = ebbi_load_relaxed(&calls->state); // relaxed: under the lock
    EBBI_ASSERT(count < EBBI_CALLS && calls->clock == clock);
    size_t bytes = deferred->filling_bytes + ebbi_call_bytes(&call);
    calls->calls[count] = call;
    ebbi_store_relaxed(&deferred->filling_bytes, bytes); // relaxed: as above
    ebbi_store_relaxed(&calls->state, count + 1);        // relaxed: as above
    if (count + 1 < EBBI_CALLS && bytes < EBBI_LIMBO_BYTES) {
        return false;
    }
    ebbi_deferred_seal(clock, deferred);
    return true;
}

// F4. True: what was open has been sealed.
static bool seal_other_kind(struct ebbi_clock *clock, struct ebbi_deferred *deferred,
                            const struct ebbi_call *call)
{
    bool other = clock == &ebbi_clock && ebbi_record_count(deferred->filling) > 0 &&
                 fills_with_blocks(deferred) != (ebbi_call_bytes(call) > 0);
    if (other) {
        ebbi_deferred_seal(clock, deferred);
    }
    return other;
}

enum ebbi_deferral ebbi_defer(struct ebbi_lock *lock, struct ebbi_clock *clock,
                              struct ebbi_deferred *deferred, struct ebbi_call call)
{
    struct ebbi_calls *fresh = NULL;
    size_t bytes = clock == &ebbi_clock ? ebbi_call_bytes(&call) : 0;
    if (bytes > 0) { // may call the program, so without a lock, and before they can be counted out
        ebbi_limbo_count(bytes, 0);
    }
    ebbi_lock_take(lock);
    bool sealed = seal_other_kind(clock, deferred, &call);
    if (!has_open(deferred, clock)) {
        ebbi_lock_drop(lock);
        fresh = ebbi_own_alloc(sizeof *fresh);
        if (fresh == NULL) {
            ebbi_limbo_count(0, bytes);
            return EBBI_REFUSED;
        }
        ebbi_lock_take(lock);
        sealed |= seal_other_kind(clock, deferred, &call);
        if (!has_open(deferred, clock)) { // no other thread of its kind was faster
            open_record(deferred, clock, fresh);
            fresh = NULL;
        }
    }
    sealed |= add(clock, deferred, call);
    ebbi_lock_drop(lock);
    ebbi_own_free(fresh);
    return sealed ? EBBI_SEALED : EBBI_ADDED;
}

enum ebbi_deferral ebbi_defer_hook(struct ebbi_lock *lock, struct ebbi_clock *clock,
                                   struct ebbi_deferred *deferred, struct ebb_hook *hook)
{
    ebbi_lock_take(lock);
    bool sealed = ebbi_hooks_add(clock, &deferred->hooked, hook);
    deferred->count++;
    deferred->turns++;
    ebbi_lock_drop(lock);
    return sealed ? EBBI_SEALED : EBBI_ADDED;
}

size_t ebbi_deferred_records(const struct ebbi_deferred *deferred)
{
    size_t hooks = ebbi_load_relaxed(&deferred->hooked.sealed);       // relaxed: a hint
    return ebbi_load_relaxed(&deferred->sealed) + hooks / EBBI_CALLS; // relaxed: as above
}

static bool first_passed(struct ebbi_clock *clock, const struct ebbi_deferred *deferred)
{
    return deferred->first != NULL && ebbi_clock_passed(clock, deferred->first->stamp);
}

static EBBI_NOINLINE bool holds_protected(const struct ebbi_calls *calls)
{
    struct ebbi_suspects suspects;
    ebbi_suspects_start(&suspects);
    for (size_t i = 0; i < calls->count; i++) {
        const struct ebbi_call *call = &calls->calls[i];
        if (call->p != NULL) {
            ebbi_suspects_add(&suspects, call->p, ebbi_max(ebbi_call_bytes(call), 1));
        }
    }
    return ebbi_suspects_any(&suspects);
}

bool ebbi_deferred_take(struct ebbi_clock *clock, struct ebbi_deferred *deferred, size_t most,
                        struct ebbi_expired *expired)
{
    struct ebbi_calls *held_back = NULL;
    while (first_passed(clock, deferred) && deferred->first->count <= most) {
        struct ebbi_calls *calls = deferred->first;
        deferred->first = calls->next;
        calls->held = ebbi_hazards_count() != 0 && holds_protected(calls);
        if (EBBI_UNLIKELY(calls->held)) {
            calls->next = held_back;
            held_back = calls;
            continue;
        }
        most -= calls->count;
        EBBI_ASSERT(deferred->sealed > 0 && calls->clock == clock);
        expired->bytes += count_out(deferred, calls);
        ebbi_store_relaxed(&deferred->sealed, deferred->sealed - 1); // relaxed: a hint outside
        taken_add(calls);
        calls->next = NULL;
        *expired->calls_end = calls;
        expired->calls_end = &calls->next;
    }
    bool more = first_passed(clock, deferred);
    deferred->count -= ebbi_hooks_take(clock, &deferred->hooked, most, expired);
    more |= deferred->hooked.passed.count > 0;
    while (held_back != NULL) { // oldest first again; they have passed and are looked at next time
        struct ebbi_calls *calls = held_back;
        held_back = calls->next;
        if (deferred->first == NULL) {
            deferred->last = calls;
        }
        calls->next = deferred->first;
        deferred->first = calls;
    }
    return more;
}

static bool has_destructor(const struct ebbi_calls *calls)
{
    bool has = false;
    for (size_t i = 0; i < calls->count && !has; i++) {
        has = !ebbi_call_is_block(&calls->calls[i]);
    }
    return has;
}

// Behind a take of all. What has passed and is there still was held or put back, in any order; of the others the
// first is the oldest.
static bool is_awaited(const struct ebbi_clock *clock, const struct ebbi_deferred *deferred,
                       uint64_t until)
{
    const struct ebbi_stamped *old = &deferred->hooked.old;
    bool awaited = old->chain.count > 0 && old->stamp <= until;
    bool passed = true;
    for (const struct ebbi_calls *c = deferred->first; c != NULL && passed; c = c->next) {
        awaited |= c->stamp <= until && (!c->held || has_destructor(c));
        passed = c->held || ebbi_clock_passed(clock, c->stamp);
    }
    return awaited;
}

void ebbi_deferred_take_all(struct ebbi_clock *clock, struct ebbi_deferred *deferred,
                            struct ebbi_expired *expired)
{
    if (ebbi_deferred_count(deferred) ==
        0) { // the page of a heap that never had any is not written to
        return;
    }
    ebbi_deferred_seal(clock, deferred);
    (void)ebbi_deferred_take(clock, deferred, SIZE_MAX, expired);
    expired->waiting |= deferred->count > 0;
    expired->awaited |= is_awaited(clock, deferred, expired->until);
}

// Taken: back, in front.
static void deferred_put(struct ebbi_deferred *deferred, struct ebbi_calls *calls)
{
    EBBI_ASSERT(calls->count > 0 && calls->begun == 0);
    ebbi_taken_remove(calls, true);
    deferred->last = deferred->first == NULL ? calls : deferred->last;
    calls->next = deferred->first;
    deferred->first = calls;
    struct ebbi_limbo_totals sum = count_in(deferred, calls, true);
    if (calls->clock == &ebbi_clock) {
        ebbi_limbo_add(sum.bytes);
    }
    ebbi_store_relaxed(&deferred->sealed, deferred->sealed + 1); // relaxed: a hint outside
}

// ---- of threads without a heap -----------------------------------------------------------------------

static struct {
    struct ebbi_lock lock; // rank: owner
    struct ebbi_deferred deferred;
} nobody = {.lock = EBBI_LOCK(OWNER)};

bool ebbi_defer_late(struct ebbi_call call)
{
    return ebbi_defer(&nobody.lock, &ebbi_clock, &nobody.deferred, call) != EBBI_REFUSED;
}

void ebbi_defer_hook_late(struct ebb_hook *hook)
{
    (void)ebbi_defer_hook(&nobody.lock, &ebbi_clock, &nobody.deferred, hook);
}

static struct ebbi_deferred *late_deferred(struct ebbi_collector *collector)
{
    return collector != NULL ? &collector->left : &nobody.deferred;
}

void ebbi_late_take_of(struct ebbi_collector *collector, struct ebbi_expired *expired)
{
    struct ebbi_clock *clock = collector != NULL ? &collector->clock : &ebbi_clock;
    struct ebbi_deferred *deferred = late_deferred(collector);
    ebbi_lock_take(&nobody.lock);
    ebbi_deferred_take_all(clock, deferred, expired);
    ebbi_lock_drop(&nobody.lock);
}

void ebbi_late_put(struct ebbi_calls *calls)
{
    bool is_own = calls->clock == &ebbi_clock;
    ebbi_lock_take(&nobody.lock);
    deferred_put(late_deferred(is_own ? NULL : (struct ebbi_collector *)calls->clock), calls);
    ebbi_lock_drop(&nobody.lock);
    ebbi_helper_kick();
}

void ebbi_late_put_hooks(struct ebbi_hooks_taken *taken)
{
    ebbi_lock_take(&nobody.lock);
    ebbi_lock_take(&ebbi_calls_taken.lock);
    nobody.deferred.count += ebbi_hooks_put(&nobody.deferred.hooked, taken);
    ebbi_calls_taken.returned++;
    ebbi_lock_drop(&ebbi_calls_taken.lock);
    ebbi_lock_drop(&nobody.lock);
    ebbi_helper_kick();
}

void ebbi_late_seal(struct ebbi_collector *collector)
{
    ebbi_lock_take(&nobody.lock);
    ebbi_deferred_seal(collector != NULL ? &collector->clock : &ebbi_clock,
                       late_deferred(collector));
    ebbi_lock_drop(&nobody.lock);
}

size_t ebbi_late_count(struct ebbi_collector *collector)
{
    ebbi_lock_take(&nobody.lock);
    size_t count = ebbi_deferred_count(late_deferred(collector));
    ebbi_lock_drop(&nobody.lock);
    return count;
}

void ebbi_late_calls_lock(void) { ebbi_lock_take(&nobody.lock); }
void ebbi_late_calls_unlock(void) { ebbi_lock_drop(&nobody.lock); }
