// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer reclaim: collectors beside the default one, and the records of threads in them. A record
// belongs to a heap; when its thread ends it stays there while calls wait in it, for the next thread
// of the heap or whoever empties it.
#include "heap/blocks.h"
#include "reclaim/queues.h"

static struct ebbi_collector *collectors; // under the registry lock

struct ebbi_collector *ebbi_collector_create(bool fenced)
{
    struct ebbi_collector *collector = ebbi_own_alloc(sizeof *collector);
    if (collector == NULL) {
        return NULL;
    }
    *collector = (struct ebbi_collector){.clock = EBBI_CLOCK_NEW};
    ebbi_clock_decide(&collector->clock, fenced);
    ebbi_registry_lock();
    collector->next = collectors;
    collectors = collector;
    ebbi_registry_unlock();
    return collector;
}

struct ebbi_record *ebbi_record_find(struct ebbi_heap *heap, const struct ebbi_collector *collector)
{
    ebbi_assert_held(&heap->own.lock);
    struct ebbi_record *record = heap->records;
    while (record != NULL && record->collector != collector) {
        record = record->next_of_heap;
    }
    return record;
}

static struct ebbi_record *record_of_mine(struct ebbi_heap *heap,
                                          const struct ebbi_collector *collector)
{
    ebbi_lock_take(&heap->own.lock); // another thread may destroy another collector
    struct ebbi_record *record = ebbi_record_find(heap, collector);
    ebbi_lock_drop(&heap->own.lock);
    return record;
}

// Under the registry lock.
static bool is_known(const struct ebbi_collector *collector)
{
    EBBI_ASSERT_REGISTRY();
    const struct ebbi_collector *c = collectors;
    while (c != NULL && c != collector) {
        c = c->next;
    }
    return c != NULL;
}

static EBBI_NORETURN void report_unknown(const struct ebbi_collector *collector)
{
    ebbi_fatal("%p is no collector, or was destroyed before", (const void *)collector);
}

static struct ebbi_record *record_create(struct ebbi_heap *heap, struct ebbi_collector *collector)
{
    struct ebbi_record *record = ebbi_own_alloc(sizeof *record);
    if (record == NULL) {
        return NULL;
    }
    *record = (struct ebbi_record){.collector = collector, .heap = heap};
    ebbi_registry_lock();
    if (!is_known(collector)) {
        ebbi_registry_unlock();
        report_unknown(collector);
    }
    record->next_of_collector = collector->records;
    collector->records = record;
    ebbi_lock_take(&heap->own.lock);
    record->next_of_heap = heap->records;
    heap->records = record;
    ebbi_lock_drop(&heap->own.lock);
    ebbi_registry_unlock();
    return record;
}

struct ebb_participant *ebbi_collector_attach(struct ebbi_heap *heap,
                                              struct ebbi_collector *collector)
{
    if (heap == NULL) {
        return NULL;
    }
    if (collector == NULL) {
        return &heap->fast.pin;
    }
    struct ebbi_record *record = record_of_mine(heap, collector);
    if (record == NULL) {
        record = record_create(heap, collector);
    }
    if (record != NULL && !record->joined) {
        ebbi_clock_join(&collector->clock, &record->participant, ebbi_os_thread_number());
        record->joined = true;
    }
    return record != NULL ? &record->participant : NULL;
}

bool ebbi_is_pinned(struct ebbi_collector *collector)
{
    struct ebb_participant *me = &ebbi_current()->pin;
    if (me == &ebbi_heap_gone.pin) {
        return collector == NULL && ebbi_late_is_pinned();
    }
    if (ebbi_pin_is_none(me)) {
        return false;
    }
    if (collector != NULL) {
        struct ebbi_record *record = record_of_mine((struct ebbi_heap *)ebbi_current(), collector);
        return record != NULL && ebbi_pin_depth(&record->participant) != 0;
    }
    return ebbi_pin_depth(me) != 0;
}

void ebbi_records_leave(struct ebbi_heap *heap)
{
    EBBI_ASSERT_REGISTRY();
    for (struct ebbi_record *r = heap->records; r != NULL; r = r->next_of_heap) {
        if (r->joined) {
            r->joined = false;
            EBBI_ASSERT(r->heap == heap);
            ebbi_clock_leave(&r->collector->clock, &r->participant);
        }
    }
}

static void unlink_of_collector(struct ebbi_record *record)
{
    EBBI_ASSERT_REGISTRY();
    struct ebbi_record **link = &record->collector->records;
    while (*link != record) {
        link = &(*link)->next_of_collector;
    }
    *link = record->next_of_collector;
}

static void unlink_of_heap(struct ebbi_record *record)
{
    ebbi_assert_held(&record->heap->own.lock);
    struct ebbi_record **link = &record->heap->records;
    while (*link != record) {
        link = &(*link)->next_of_heap;
    }
    *link = record->next_of_heap;
}

static void record_destroy(struct ebbi_record *record)
{
    EBBI_ASSERT(!record->joined || ebbi_deferred_count(&record->deferred) == 0);
    ebbi_deferred_leave(&record->deferred);
    ebbi_own_send(record);
}

void ebbi_records_discard(struct ebbi_heap *heap)
{
    EBBI_ASSERT_REGISTRY();
    ebbi_assert_held(&heap->own.lock);
    if (ebbi_deferred_count(&heap->deferred) == 0) {
        ebbi_deferred_leave(&heap->deferred);
    }
    struct ebbi_record *next;
    for (struct ebbi_record *r = heap->records; r != NULL; r = next) {
        next = r->next_of_heap;
        if (!r->joined && ebbi_deferred_count(&r->deferred) == 0) {
            unlink_of_collector(r);
            unlink_of_heap(r);
            record_destroy(r);
        }
    }
}

void ebbi_collectors_each(void (*visit)(struct ebbi_collector *collector))
{
    ebbi_registry_lock();
    for (struct ebbi_collector *c = collectors; c != NULL; c = c->next) {
        visit(c);
    }
    ebbi_registry_unlock();
}

void ebbi_collectors_lock(void)
{
    EBBI_ASSERT_REGISTRY();
    ebbi_clock_lock(&ebbi_clock);
    for (struct ebbi_collector *c = collectors; c != NULL; c = c->next) {
        ebbi_clock_lock(&c->clock);
    }
}

void ebbi_collectors_unlock(void)
{
    EBBI_ASSERT_REGISTRY();
    for (struct ebbi_collector *c = collectors; c != NULL; c = c->next) {
        ebbi_clock_unlock(&c->clock);
    }
    ebbi_clock_unlock(&ebbi_clock);
}

// Under all locks, as the only thread.
void ebbi_collectors_keep_only(struct ebbi_heap *mine)
{
    struct ebb_participant *late = ebbi_late_participant();
    ebbi_clock_keep_only(&ebbi_clock, mine != NULL ? &mine->fast.pin : late);
    for (struct ebbi_collector *c = collectors; c != NULL; c = c->next) {
        struct ebbi_record *kept = mine != NULL ? ebbi_record_find(mine, c) : NULL;
        bool joined = kept != NULL && kept->joined;
        ebbi_clock_keep_only(&c->clock, joined ? &kept->participant : NULL);
        for (struct ebbi_record *r = c->records; r != NULL; r = r->next_of_collector) {
            r->joined = r == kept && joined;
        }
    }
}

static void unlink_collector(struct ebbi_collector *collector)
{
    EBBI_ASSERT_REGISTRY();
    EBBI_ASSERT(collector->records == NULL);
    struct ebbi_collector **link = &collectors;
    while (*link != collector) {
        link = &(*link)->next;
    }
    *link = collector->next;
}

static void destroy_records(struct ebbi_collector *collector)
{
    ebbi_registry_lock();
    while (collector->records != NULL) {
        struct ebbi_record *record = collector->records;
        EBBI_ASSERT(record->collector == collector);
        collector->records = record->next_of_collector;
        ebbi_lock_take(&record->heap->own.lock);
        unlink_of_heap(record);
        ebbi_lock_drop(&record->heap->own.lock);
        record_destroy(record);
    }
    unlink_collector(collector);
    ebbi_registry_unlock();
}

static void check_nobody_pinned(struct ebbi_collector *collector)
{
    struct ebbi_clock_state state;
    ebbi_clock_state(&collector->clock, &state);
    if (state.pinned > 0) {
        ebbi_fatal("collector %p destroyed while thread %u is pinned in it", (void *)collector,
                   state.oldest_thread);
    }
}

static void finish(struct ebbi_collector *collector)
{
    struct ebbi_limbo_totals totals;
    check_nobody_pinned(collector);
    // Destructors may retire, and another thread take that between the two looks: nothing is left, twice in a row.
    for (int empty = 0; empty < 2; empty = totals.calls == 0 ? empty + 1 : 0) {
        ebbi_calls_finish(collector); // advances at once: nobody is pinned
        ebbi_limbo_totals(collector, &totals);
    }
}

static void let_go(struct ebbi_collector *collector)
{
    EBBI_ASSERT(collector->ends);
    destroy_records(collector);
    ebbi_own_send(collector);
}

void ebbi_collector_check(const struct ebbi_collector *collector)
{
    if (collector == NULL) {
        return;
    }
    ebbi_registry_lock();
    bool known = is_known(collector);
    ebbi_registry_unlock();
    if (!known) {
        report_unknown(collector);
    }
}

static void doom(struct ebbi_collector *collector)
{
    ebbi_registry_lock();
    bool fresh = is_known(collector) && !collector->ends;
    if (fresh) {
        collector->ends = true;
    }
    ebbi_registry_unlock();
    if (!fresh) {
        report_unknown(collector);
    }
}

static void unlink_doomed(struct ebbi_heap *heap, struct ebbi_collector *collector)
{
    EBBI_ASSERT(collector->ends);
    struct ebbi_collector **link = &heap->doomed;
    while (*link != collector) {
        link = &(*link)->next_doomed;
    }
    *link = collector->next_doomed;
}

// One by one: what they run may doom more. One stays in the list until all has run: if a call ends the
// thread, ebbi_calls_abandon comes here again.
void ebbi_collectors_bury(struct ebbi_heap *heap)
{
    if (heap->buries) {
        return;
    }
    heap->buries = true;
    for (struct ebbi_collector *collector; (collector = heap->doomed) != NULL;) {
        finish(collector);
        unlink_doomed(heap, collector);
        let_go(collector);
    }
    heap->buries = false;
}

static void bury_now(struct ebbi_heap *heap, struct ebbi_collector *collector)
{
    check_nobody_pinned(collector);
    if (ebbi_is_pinned(NULL)) {
        ebbi_fatal("collector %p destroyed inside a pin of the default one: it runs destructors",
                   (void *)collector);
    }
    ebbi_collectors_bury(heap);
}

void ebbi_collector_destroy(struct ebbi_heap *heap, struct ebbi_collector *collector)
{
    doom(collector);
    if (heap == NULL) {
        finish(collector);
        let_go(collector);
        return;
    }
    collector->next_doomed = heap->doomed;
    heap->doomed = collector;
    if (!heap->runs_calls) {
        bury_now(heap, collector);
    }
}
