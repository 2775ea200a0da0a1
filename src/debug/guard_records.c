// SPDX-License-Identifier: MIT OR Apache-2.0
#include "debug/guard_records.h"

#include "base/mix.h"
#include "os/lock.h"

#define SAMPLES_USED 512u      // by time
#define KINDS 1024u            // of samples: a number from the calls that made one
#define OF_A_KIND 8u           // once half of the samples are in use: others' turn
#define MOST_USED 8192u        // with EBB_CHECK
#define MOST_HELD 512u         // where each may split a mapping, of which Linux allows 65,530
#define MOST_HELD_MARKED 4096u // where none does
#define MOST_HELD_BYTES ((size_t)1 << 30) // of address space, which has headers and page tables

static struct {
    struct ebbi_lock lock; // rank: arena, as it is taken with no other below
    struct ebbi_guard *
        records; // [most_used + most_held + 1], number 0 is nobody's; set once, atomic, behind the sizes
    uint32_t most_used, most_held;
    uint32_t fresh,
        unused; // the first number that was never used; the chain of others that are free
    uint32_t used, held, samples; // samples: of those that are used
    uint32_t held_first, held_last;
    size_t held_bytes; // of their spans
} guards = {.lock = EBBI_LOCK(ARENA), .fresh = 1};
static EBBI_SPARSE uint16_t used_of[KINDS]; // how many of each kind are in use; under the lock

void ebbi_guard_lock(void) { ebbi_lock_take(&guards.lock); }
void ebbi_guard_unlock(void) { ebbi_lock_drop(&guards.lock); }

bool ebbi_guards_begin(bool samples)
{
    guards.most_used = samples ? SAMPLES_USED : MOST_USED;
    guards.most_held = ebbi_os_fences_begin() ? MOST_HELD_MARKED : MOST_HELD;
    size_t bytes = (guards.most_used + guards.most_held + 1) * sizeof *guards.records;
    struct ebbi_guard *made = ebbi_os_map(NULL, ebbi_align_up(bytes, ebbi_os_page_size()));
    if (made != NULL) {
        // release[guards-begun -> guards-seen]: how many there are
        ebbi_store_release(&guards.records, made);
    }
    return made != NULL;
}

static struct ebbi_guard *guard_records(void)
{
    // acquire[guards-seen <- guards-begun]: how many there are
    return ebbi_load_acquire(&guards.records);
}

uint32_t ebbi_guards_last(void)
{
    return guard_records() != NULL ? guards.most_used + guards.most_held : 0;
}

struct ebbi_guard *ebbi_guard_at(uint32_t number)
{
    EBBI_ASSERT(number > 0 && number <= guards.most_used + guards.most_held);
    return &guard_records()[number];
}

static uint16_t sample_kind(const struct ebbi_event *sampled)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sampled->depth; i++) {
        sum = ebbi_scramble(sum ^ sampled->calls[i]);
    }
    return (uint16_t)(1 + sum % (KINDS - 1));
}

// Under the lock. What lives for long is not to take the place of all else.
static bool has_room(uint16_t kind)
{
    return guards.used < guards.most_used &&
           (kind == 0 || (guards.samples < SAMPLES_USED &&
                          (guards.samples < SAMPLES_USED / 2 || used_of[kind] < OF_A_KIND)));
}

uint32_t ebbi_guard_take(const struct ebbi_event *sampled)
{
    uint16_t kind = sampled != NULL ? sample_kind(sampled) : 0;
    uint32_t number = 0;
    ebbi_lock_take(&guards.lock);
    if (has_room(kind)) {
        number = guards.unused;
        if (number != 0) {
            guards.unused = ebbi_guard_at(number)->next;
        } else {
            number = guards.fresh++;
        }
        guards.used++;
        guards.samples += kind != 0;
        used_of[kind]++;
        ebbi_guard_at(number)->kind = kind;
    }
    ebbi_lock_drop(&guards.lock);
    return number;
}

// Under the lock.
static void record_is_free(uint32_t number)
{
    struct ebbi_guard *guard = ebbi_guard_at(number);
    ebbi_assert_held(&guards.lock);
    ebbi_store_relaxed(&guard->state, (uint32_t)EBBI_GUARD_FREE); // relaxed: G1
    guard->next = guards.unused;
    guards.unused = number;
}

// Under the lock.
static void end_use(uint32_t number)
{
    uint16_t kind = ebbi_guard_at(number)->kind;
    ebbi_assert_held(&guards.lock);
    guards.used--;
    guards.samples -= kind != 0;
    used_of[kind]--;
}

void ebbi_guard_return(uint32_t number)
{
    ebbi_lock_take(&guards.lock);
    end_use(number);
    record_is_free(number);
    ebbi_lock_drop(&guards.lock);
}

static size_t bytes_held_by(const struct ebbi_guard *guard)
{
    return (size_t)guard->granules << EBBI_GRANULE_SHIFT;
}

// The oldest of those that are held leaves, if there is one: the span that it had, or NULL.
static struct ebbi_span *take_oldest(void)
{
    uint32_t number = guards.held_first;
    ebbi_assert_held(&guards.lock);
    if (number == 0) {
        return NULL;
    }
    const struct ebbi_guard *guard = ebbi_guard_at(number);
    guards.held_first = guard->next;
    guards.held_last = guards.held_first != 0 ? guards.held_last : 0;
    guards.held--;
    guards.held_bytes -= bytes_held_by(guard);
    record_is_free(number);
    return guard->span;
}

// What address space is limited to is the program's as well.
static uint32_t most_held(void)
{
    return ebbi_os_address_limit() == SIZE_MAX ? guards.most_held : MOST_HELD;
}

// Under the lock. Records are for no more of them than that.
static bool too_much_is_held(size_t most)
{
    ebbi_assert_held(&guards.lock);
    return guards.held > most || guards.held_bytes > MOST_HELD_BYTES;
}

struct ebbi_span *ebbi_guard_hold(uint32_t number)
{
    struct ebbi_guard *guard = ebbi_guard_at(number);
    size_t most = most_held();
    ebbi_lock_take(&guards.lock);
    end_use(number);
    guards.held++;
    guards.held_bytes += bytes_held_by(guard);
    guard->next = 0;
    *(guards.held_last != 0 ? &ebbi_guard_at(guards.held_last)->next : &guards.held_first) = number;
    guards.held_last = number;
    struct ebbi_span *leaves = too_much_is_held(most) ? take_oldest() : NULL;
    ebbi_lock_drop(&guards.lock);
    return leaves;
}

struct ebbi_span *ebbi_guard_leave(bool any)
{
    size_t most = any ? 0 : most_held();
    ebbi_lock_take(&guards.lock);
    struct ebbi_span *leaves = too_much_is_held(most) ? take_oldest() : NULL;
    ebbi_lock_drop(&guards.lock);
    return leaves;
}
