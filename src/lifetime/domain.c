// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer lifetime: domains, and what is current in a thread.
//
// For each domain that it enters a thread has a heap, a *seat*: slabs and magazines as its own has, but
// for what is allocated in that domain. The seats of all domains share a second set of bins: a block that is
// freed while another domain is current may be handed out there, and counts under the first until it goes
// home; between domains and the rest no block moves. To enter is to let malloc and free
// work on that heap. The seats of ended threads wait, slabs included, for the next thread that enters.
//
// Epochs of a domain share its slabs. Memory of the next epoch goes first where the one before has
// left holes: so no policy strands anything, and what survives is as dense as under malloc (ADR 11).
// An epoch's end counts what has survived it and, if it has taken much, sends what is free home.
#include "lifetime/domain.h"

#include "heap/blocks.h"
#include "heap/registry.h"
#include "os/wake.h"

#define TELL_SCOPES 1024u                 // a label learns of them so late, or by half
#define TELL_EPOCHS 64u                   // the same of epochs
#define FLUSH_BYTES ((uint64_t)256 << 10) // taken since the last time, for an end to flush
#define IDLE_BYTES ((uint64_t)64 << 10)   // the same, of a thread that waits

enum policy { BY_NOTHING, BY_SCOPES, BY_BYTES, BY_MS, BY_CALL, POLICIES };

struct ebb_domain {
    struct ebbi_label *label;
    struct ebb_domain *next; // under the registry lock
    struct ebbi_heap *idle;  // seats without a thread, through seat.next; under the registry lock
    uint64_t n;              // atomic, as are the next two
    uint64_t advance;        // counts ebbi_domain_advance
    uint32_t policy;
};

static struct ebb_domain *all_domains; // under the registry lock

// ---- domains -------------------------------------------------------------------------------------

static struct ebb_domain *domain_of(const struct ebbi_label *label)
{
    EBBI_ASSERT_REGISTRY();
    struct ebb_domain *domain = all_domains;
    while (domain != NULL && domain->label != label) {
        domain = domain->next;
    }
    return domain;
}

struct ebb_domain *ebbi_domain_find(const char *name)
{
    struct ebbi_label *label = ebbi_label_find(name, true);
    return label != NULL ? ebbi_domain_of_label(label) : NULL;
}

struct ebb_domain *ebbi_domain_of_label(struct ebbi_label *label)
{
    ebbi_registry_lock();
    struct ebb_domain *known = domain_of(label);
    ebbi_registry_unlock();
    struct ebb_domain *fresh = known == NULL ? ebbi_own_alloc(sizeof *fresh) : NULL;
    if (fresh == NULL) {
        return known;
    }
    ebbi_registry_lock();
    struct ebb_domain *domain = domain_of(label);
    if (domain == NULL) {
        *fresh = (struct ebb_domain){.label = label, .next = all_domains};
        all_domains = domain = fresh;
        fresh = NULL;
    }
    ebbi_registry_unlock();
    if (fresh != NULL) {
        ebbi_own_free(fresh);
    }
    return domain;
}

const struct ebbi_label *ebbi_domain_label(const struct ebb_domain *domain)
{
    return domain->label;
}

bool ebbi_domain_set_policy(struct ebb_domain *domain, unsigned policy, size_t n)
{
    if (policy >= POLICIES ||
        (n == 0 && (policy == BY_SCOPES || policy == BY_BYTES || policy == BY_MS))) {
        return false;
    }
    // relaxed: an epoch that begins now may take either
    ebbi_store_relaxed(&domain->n, (uint64_t)n);
    ebbi_store_relaxed(&domain->policy, (uint32_t)policy); // relaxed: as above
    return true;
}

// ---- epochs --------------------------------------------------------------------------------------

static size_t cached_bytes(const struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->seat.domain != NULL);
    size_t total = 0;
    for (unsigned w = 0; w < 2; w++) {
        for (uint64_t left = heap->arrays[w]; left != 0; left &= left - 1) {
            unsigned c = w * 64 + ebbi_lowest_bit(left);
            void **top = heap->fast.top[ebbi_class_bin(c, heap->lane)];
            EBBI_ASSERT(top > heap->magazines[c].base);
            total += (size_t)(top - heap->magazines[c].base - 1) * ebbi_classes[c].size;
        }
    }
    return total;
}

static void tell(struct ebbi_heap *heap, size_t live)
{
    EBBI_ASSERT(heap->seat.domain != NULL && heap->own.label == heap->seat.domain->label);
    EBBI_ASSERT(heap->seat.scopes >= heap->seat.scopes_told);
    struct ebbi_seat *seat = &heap->seat;
    ebbi_count(&heap->own.label->live_bytes, live - seat->live_told);
    ebbi_count(&heap->own.label->opened, seat->scopes - seat->scopes_told);
    ebbi_count(&heap->own.label->closed, seat->closed);
    ebbi_count(&heap->own.label->drained, seat->drained);
    seat->live_told = live;
    // A snapshot that reads these meanwhile misses what has just been told.
    ebbi_store_relaxed(&seat->scopes_told, seat->scopes); // relaxed: a count
    ebbi_store_relaxed(&seat->closed, 0u);                // relaxed: a count
    ebbi_store_relaxed(&seat->drained, 0u);               // relaxed: a count
}

// Few at first, so that a thread that soon falls asleep is not unknown to its label.
static uint64_t tells_at(const struct ebbi_seat *seat)
{
    return seat->scopes + ebbi_min(seat->scopes, TELL_SCOPES);
}

static void begin_epoch(struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->seat.domain != NULL);
    struct ebbi_seat *seat = &heap->seat;
    const struct ebb_domain *domain = seat->domain;
    uint64_t n = ebbi_load_relaxed(&domain->n);           // relaxed: see ebbi_domain_set_policy
    uint32_t policy = ebbi_load_relaxed(&domain->policy); // relaxed: as above
    seat->advance = ebbi_load_relaxed(&domain->advance);  // relaxed: a count
    seat->scopes_end = policy == BY_SCOPES ? seat->scopes + n : UINT64_MAX;
    seat->scopes_limit = ebbi_min(seat->scopes_end, tells_at(seat));
    seat->taken_limit = policy == BY_BYTES ? heap->taken_bytes + n : UINT64_MAX;
    seat->ends_ms = policy == BY_MS ? ebbi_os_now_ms() + n : 0;
}

static void seat_flush(struct ebbi_heap *heap)
{
    ebbi_flush_all(heap);
    heap->seat.taken_flushed = heap->taken_bytes;
    ebbi_purge_tick(heap);
}

static size_t live_bytes(const struct ebbi_heap *heap)
{
    size_t cached = cached_bytes(heap);
    // relaxed: others give blocks back meanwhile, which counts next time
    size_t out = ebbi_load_relaxed(&heap->own.out_bytes);
    return out - ebbi_min(out, cached);
}

static void end_epoch(struct ebbi_heap *heap)
{
    EBBI_ASSERT(heap->seat.domain != NULL && heap->seat.taken_flushed <= heap->taken_bytes);
    struct ebbi_seat *seat = &heap->seat;
    size_t live = live_bytes(heap);
    ebbi_store_relaxed(&seat->closed, seat->closed + 1);             // relaxed: a count
    ebbi_store_relaxed(&seat->drained, seat->drained + (live == 0)); // relaxed: a count
    if (seat->closed >= ebbi_min(TELL_EPOCHS, seat->scopes_told) || live != seat->live_told) {
        tell(heap, live);
    }
    if (heap->taken_bytes - seat->taken_flushed >= FLUSH_BYTES) {
        seat_flush(heap);
    }
    begin_epoch(heap);
}

void ebbi_domain_advance(struct ebbi_heap *own, struct ebb_domain *domain)
{
    (void)ebbi_fetch_add_relaxed(&domain->advance, (uint64_t)1); // relaxed: a count
    if (own != NULL) {
        struct ebbi_heap *inside = ebbi_inside(); // a pass may have parked it
        ebbi_flush_foreign(own);                  // blocks of the domain may wait in it
        ebbi_outside(inside);
    }
    for (struct ebbi_heap *heap = own != NULL ? own->seats : NULL; heap != NULL;
         heap = heap->seat.next) {
        if (heap->seat.domain == domain) {
            end_epoch(heap);
            seat_flush(heap);
        }
    }
}

void ebbi_seats_flush(struct ebbi_heap *own)
{
    for (struct ebbi_heap *heap = own->seats; heap != NULL; heap = heap->seat.next) {
        ebbi_flush_all(heap);
    }
}

// ---- seats ---------------------------------------------------------------------------------------

static struct ebbi_heap *make_heap(struct ebb_domain *domain)
{
    struct ebbi_heap *heap = ebbi_heap_make(EBBI_TAG_DOMAIN);
    if (heap != NULL) {
        heap->seat.domain = domain;
        heap->own.label = domain->label;
    }
    return heap;
}

static struct ebbi_heap *take_seat(struct ebbi_heap *own, struct ebb_domain *domain)
{
    ebbi_registry_lock();
    struct ebbi_heap *heap = domain->idle;
    if (heap != NULL) {
        domain->idle = heap->seat.next;
    } else {
        ebbi_registry_unlock();
        heap = make_heap(domain);
        ebbi_registry_lock();
        if (heap != NULL) {
            ebbi_heap_join(heap);
        }
    }
    if (heap != NULL) {
        EBBI_ASSERT(heap->seat.domain == domain && heap->own.label == domain->label);
        heap->seat.thread = own;
        heap->seat.next = own->seats;
        heap->seat.depth = 0;
        own->seats = heap;
    }
    ebbi_registry_unlock();
    if (heap != NULL) {
        ebbi_count(&domain->label->open, domain->label->is_domain); // else it counts regions
        begin_epoch(heap);
    }
    return heap;
}

// The thread's heap for the domain, first in its list from now on. NULL: memory refused.
static EBBI_NOINLINE struct ebbi_heap *find_seat(struct ebbi_heap *own, struct ebb_domain *domain)
{
    for (struct ebbi_heap **link = &own->seats; *link != NULL; link = &(*link)->seat.next) {
        struct ebbi_heap *heap = *link;
        if (heap->seat.domain == domain) {
            *link = heap->seat.next;
            heap->seat.next = own->seats;
            own->seats = heap;
            return heap;
        }
    }
    return take_seat(own, domain);
}

void *ebbi_domain_alloc(struct ebbi_heap *own, struct ebb_domain *domain, size_t align,
                        size_t bytes, ebbi_site site)
{
    struct ebbi_heap *heap = own->seats;
    if (heap == NULL || heap->seat.domain != domain) {
        heap = find_seat(own, domain);
    }
    return ebbi_heap_alloc(heap != NULL ? heap : own, align, bytes, site);
}

void ebbi_seat_abandon(struct ebbi_heap *heap)
{
    struct ebbi_seat *seat = &heap->seat;
    seat->thread = NULL;
    seat->next = seat->domain->idle;
    seat->domain->idle = heap;
    ebbi_count(&heap->own.label->open, -heap->own.label->is_domain);
}

void ebbi_seats_rest(struct ebbi_heap *own)
{
    if (own->seats != NULL) {
        ebbi_flush_foreign(own); // blocks of domains may wait in it
    }
    for (struct ebbi_heap *heap = own->seats; heap != NULL; heap = heap->seat.next) {
        ebbi_heap_rest(heap);
        tell(heap, live_bytes(heap));
    }
}

void ebbi_seats_leave(struct ebbi_heap *own)
{
    while (own->seats != NULL) {
        struct ebbi_heap *heap = own->seats;
        own->seats = heap->seat.next;
        ebbi_seat_abandon(heap);
    }
}

// ---- what is current -----------------------------------------------------------------------------

static uintptr_t current_scope(const struct ebbi_heap *own)
{
    struct ebbi_fast *source = ebbi_source_now();
    if (EBBI_LIKELY(source == &own->fast || source == &ebbi_heap_parked)) {
        return 0;
    }
    return source == &ebbi_heap_scoped ? (uintptr_t)own->region | EBBI_SCOPE_REGION
                                       : (uintptr_t)source | EBBI_SCOPE_DOMAIN;
}

// The scope that was current.
static uintptr_t set_scope(struct ebbi_heap *own, uintptr_t scope)
{
    EBBI_ASSERT((scope & (EBBI_SCOPE_REGION | EBBI_SCOPE_DOMAIN)) !=
                (EBBI_SCOPE_REGION | EBBI_SCOPE_DOMAIN));
    struct ebbi_heap *inside = ebbi_inside();
    uintptr_t before = current_scope(own);
    if ((scope & EBBI_SCOPE_REGION) != 0) {
        own->region = (struct ebb_region *)(scope - EBBI_SCOPE_REGION);
        ebbi_source_set(&ebbi_heap_scoped);
    } else {
        ebbi_source_set(scope == 0 ? &own->fast : (struct ebbi_fast *)(scope - EBBI_SCOPE_DOMAIN));
    }
    ebbi_outside(inside);
    return before;
}

uintptr_t ebbi_enter_region(struct ebbi_heap *own, struct ebb_region *region)
{
    ebbi_region_enter(region);
    ebbi_heap_prepare(&ebbi_heap_scoped);
    own->has_regions = true;
    if (own->entered_count < EBBI_ENTERED) {
        own->entered[own->entered_count] = region;
    }
    own->entered_count++;
    return set_scope(own, (uintptr_t)region | EBBI_SCOPE_REGION);
}

uintptr_t ebbi_enter_domain(struct ebbi_heap *own, struct ebb_domain *domain)
{
    struct ebbi_heap *heap = own->seats;
    if (EBBI_UNLIKELY(heap == NULL || heap->seat.domain != domain)) {
        heap = find_seat(own, domain);
        if (heap == NULL) {
            return EBBI_SCOPE_NONE;
        }
    }
    // relaxed: a count
    if (heap->seat.depth++ == 0 && ebbi_load_relaxed(&domain->advance) != heap->seat.advance) {
        end_epoch(heap);
    }
    return set_scope(own, (uintptr_t)&heap->fast | EBBI_SCOPE_DOMAIN);
}

uintptr_t ebbi_enter_heap(struct ebbi_heap *own) { return set_scope(own, 0); }

static EBBI_NOINLINE void look_at_policy(struct ebbi_heap *heap)
{
    struct ebbi_seat *seat = &heap->seat;
    if (seat->scopes >= seat->scopes_end || heap->taken_bytes >= seat->taken_limit ||
        (seat->ends_ms != 0 && ebbi_os_now_ms() >= seat->ends_ms) ||
        ebbi_load_relaxed(&seat->domain->advance) != seat->advance) { // relaxed: a count
        end_epoch(heap);
    } else if (seat->scopes >= seat->scopes_limit) {
        tell(heap, live_bytes(heap));
        seat->scopes_limit = ebbi_min(seat->scopes_end, tells_at(seat));
    }
}

static void leave_domain(struct ebbi_heap *heap)
{
    struct ebbi_seat *seat = &heap->seat;
    EBBI_ASSERT(seat->depth > 0);
    if (--seat->depth > 0) {
        return;
    }
    ebbi_store_relaxed(&seat->scopes, seat->scopes + 1); // relaxed: a count
    if (EBBI_UNLIKELY(seat->scopes >= seat->scopes_limit || seat->ends_ms != 0 ||
                      heap->taken_bytes >= seat->taken_limit ||
                      // relaxed: a count
                      ebbi_load_relaxed(&seat->domain->advance) != seat->advance)) {
        look_at_policy(heap);
    }
}

void ebbi_leave(struct ebbi_heap *own, uintptr_t before)
{
    uintptr_t scope = set_scope(own, before);
    if ((scope & EBBI_SCOPE_DOMAIN) != 0) {
        leave_domain((struct ebbi_heap *)(scope - EBBI_SCOPE_DOMAIN));
    } else if ((scope & EBBI_SCOPE_REGION) != 0) {
        struct ebb_region *region = (struct ebb_region *)(scope - EBBI_SCOPE_REGION);
        EBBI_ASSERT(own->entered_count > 0);
        own->entered_count--;
        ebbi_region_leave(region, scope == before);
        if (EBBI_UNLIKELY(!ebbi_region_is_open(region))) {
            ebbi_helper_kick(); // that may have been its end
        }
    }
}

void ebbi_scope_abandon(struct ebbi_heap *own)
{
    for (size_t i = ebbi_min(own->entered_count, EBBI_ENTERED); i > 0; i--) {
        ebbi_region_leave(own->entered[i - 1], false);
    }
    own->entered_count = 0;
}

// ---- the domain of threads that wait --------------------------------------------------------------

void ebbi_domain_idle(struct ebbi_heap *own)
{
    static struct ebb_domain *threads;
    // acquire[idle-find <- idle-found]: the domain
    struct ebb_domain *domain = ebbi_load_acquire(&threads);
    if (domain == NULL) {
        domain = ebbi_domain_find("thread");
        // release[idle-found -> idle-find]: the domain
        ebbi_store_release(&threads, domain);
    }
    if (domain == NULL) {
        return;
    }
    if (current_scope(own) == 0) {
        (void)ebbi_enter_domain(own, domain); // for good
    }
    struct ebbi_heap *heap = own->seats;
    if (heap == NULL || ebbi_source_now() != &heap->fast || heap->seat.domain != domain) {
        return; // the program has its own idea of what is current
    }
    ebbi_store_relaxed(&heap->seat.scopes, heap->seat.scopes + 1); // relaxed: a count
    end_epoch(heap);
    tell(heap, heap->seat.live_told);
    if (heap->taken_bytes - heap->seat.taken_flushed >= IDLE_BYTES) {
        seat_flush(heap);
    }
}
