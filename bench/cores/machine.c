// SPDX-License-Identifier: MIT OR Apache-2.0
#include "cores/hooks.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ebbtide/detail/pin.h"

#define LINES_LOG2 22
#define PLACES_LOG2 13
#define HELD_MOST 192   // a fork takes all owners'
#define QUANTUM 1000    // tenths of a nanosecond that a core may be ahead of another
#define GONE UINT64_MAX // the clock of a core that has left

__extension__ typedef unsigned __int128 cores;

struct line {
    cores sharers;
    uint64_t number;
    uint64_t free_at; // M2
};

struct place { // of the code, and the object if it is a variable of the program
    uintptr_t pc, object;
    uint64_t writes, shared_writes, fetches;
    uint64_t taken, waits, refused, wait_tenths, held_tenths, calls;
};

struct held {
    const void *word;
    struct place *place;
    uint64_t since;
};

struct core {
    uint64_t clock;
    uint32_t turn;         // 1: it is this one's
    uintptr_t self;        // what the words of locks that it holds say
    const void *waits_for; // the word of a lock
    uint64_t waits_since;
    unsigned number;
    bool counted;
    unsigned held_count;
    struct held held[HELD_MOST];
    struct place *places;
} __attribute__((aligned(128)));

static struct core all[MACHINE_CORES];
static unsigned core_count, entered;
static bool simulated;
static pthread_barrier_t meeting;
static struct line *lines;
static size_t lines_used;
static __thread struct core *me;
extern char __data_start[], _end[];

static void die(const char *what)
{
    (void)fprintf(stderr, "cores: %s\n", what);
    abort();
}

static void *zeroed(size_t bytes)
{
    void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) {
        die("no memory");
    }
    return got;
}

static size_t mixed(uintptr_t key, unsigned log2)
{
    return (size_t)((uint64_t)key * 0x9E3779B97F4A7C15u >> (64 - log2));
}

// ---- turns ---------------------------------------------------------------------------------------

static void wait_for_turn(struct core *core)
{
    while (__atomic_exchange_n(&core->turn, 0, __ATOMIC_ACQUIRE) == 0) {
        (void)syscall(SYS_futex, &core->turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
}

static void pass_to(struct core *core)
{
    if (core->clock == GONE) {
        die("all wait");
    }
    __atomic_store_n(&core->turn, 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &core->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static struct core *furthest_behind(void)
{
    struct core *found = &all[0];
    for (unsigned i = 1; i < core_count; i++) {
        if (all[i].clock < found->clock) {
            found = &all[i];
        }
    }
    return found;
}

static void let_others(void)
{
    struct core *mine = me;
    pass_to(furthest_behind());
    wait_for_turn(mine);
}

static void give_way(uint64_t ahead)
{
    uint64_t least = furthest_behind()->clock;
    if (least < me->clock && me->clock - least > ahead) {
        let_others();
    }
}

static void be(struct core *core)
{
    me = core;
    core->self = (uintptr_t)&ebb_self;
}

void machine_start(unsigned count, bool simulates)
{
    core_count = count;
    simulated = simulates;
    (void)pthread_barrier_init(&meeting, NULL, count);
    lines = zeroed(sizeof *lines << LINES_LOG2);
    for (unsigned i = 0; i < count; i++) {
        all[i].number = i;
        all[i].places = zeroed(sizeof(struct place) << PLACES_LOG2);
    }
}

void machine_enter(unsigned core)
{
    if (simulated) {
        if (__atomic_add_fetch(&entered, 1, __ATOMIC_ACQ_REL) == core_count) {
            pass_to(&all[0]);
        }
        wait_for_turn(&all[core]);
    }
    be(&all[core]);
}

void machine_lend(unsigned core) { be(&all[core]); }

void machine_meet(void)
{
    static unsigned met;
    static uint64_t latest;
    if (!simulated) {
        (void)pthread_barrier_wait(&meeting);
        return;
    }
    latest = me->clock > latest ? me->clock : latest;
    if (++met < core_count) {
        me->clock = GONE;
        let_others();
    } else {
        for (unsigned i = 0; i < core_count; i++) {
            all[i].clock = latest;
        }
        met = 0;
    }
}

void machine_leave(void)
{
    struct core *mine = me;
    me = NULL;
    mine->counted = false;
    if (simulated) {
        mine->clock = GONE;
        struct core *next = furthest_behind();
        if (next->clock != GONE) {
            pass_to(next);
        }
    }
}

void machine_count(bool counted) { me->counted = counted; }
uint64_t machine_now(void) { return me->clock; }

void machine_work(unsigned tenths)
{
    if (simulated) {
        me->clock += tenths;
        give_way(QUANTUM);
    }
}

// ---- what is counted -----------------------------------------------------------------------------

static struct place *place_of(uintptr_t pc, uintptr_t address)
{
    bool global = address >= (uintptr_t)__data_start && address < (uintptr_t)_end;
    uintptr_t object = global ? address & ~(uintptr_t)7 : 0;
    size_t i = mixed(pc ^ (object << 20), PLACES_LOG2);
    for (size_t tries = 0; tries < (size_t)1 << PLACES_LOG2; tries++) {
        struct place *place = &me->places[i];
        if (place->pc == 0) {
            place->pc = pc;
            place->object = object;
        }
        if (place->pc == pc && place->object == object) {
            return place;
        }
        i = (i + 1) & (((size_t)1 << PLACES_LOG2) - 1);
    }
    die("too many places");
    return NULL;
}

static struct line *line_of(uintptr_t number)
{
    size_t i = mixed(number, LINES_LOG2);
    while (lines[i].number != number) {
        if (lines[i].number == 0) {
            lines[i].number = number;
            if (++lines_used > ((size_t)3 << LINES_LOG2) / 4) {
                die("too many lines");
            }
        } else {
            i = (i + 1) & (((size_t)1 << LINES_LOG2) - 1);
        }
    }
    return &lines[i];
}

// M1 and M2, for one line.
static void touch_line(uintptr_t number, bool writes, bool atomic, struct place *place)
{
    struct line *line = line_of(number);
    cores mine = (cores)1 << me->number;
    bool others = (line->sharers & ~mine) != 0;
    bool hits = writes ? line->sharers == mine : (line->sharers & mine) != 0;
    if (!hits && atomic && line->free_at > me->clock) {
        me->clock = line->free_at;
    }
    me->clock += hits ? COST_HIT : others ? COST_TRANSFER : COST_COLD;
    me->clock += atomic ? COST_ATOMIC : 0;
    if (!hits && atomic) {
        line->free_at = me->clock;
    }
    if (place != NULL) {
        place->writes += writes;
        place->shared_writes += writes && others;
        place->fetches += !writes && !hits && others;
    }
    line->sharers = writes ? mine : line->sharers | mine;
}

static void touch(uintptr_t address, size_t bytes, bool writes, bool atomic, void *pc)
{
    struct place *place = me->counted ? place_of((uintptr_t)pc, address) : NULL;
    for (uintptr_t n = address / 64; n <= (address + bytes - 1) / 64; n++) {
        touch_line(n, writes, atomic, place);
    }
}

bool machine_is_on(void) { return me != NULL && simulated; }

void machine_touch(const volatile void *p, size_t bytes, bool writes, void *pc)
{
    if (machine_is_on()) {
        touch((uintptr_t)p, bytes, writes, false, pc);
    }
}

void machine_touch_atomic(const volatile void *address, size_t bytes, bool writes, void *pc)
{
    if (machine_is_on()) {
        if (writes) {
            give_way(0);
        }
        touch((uintptr_t)address, bytes, writes, writes, pc);
    }
}

// ---- locks ---------------------------------------------------------------------------------------

// A lock of the library is taken when its word becomes the thread's own name, and dropped when it becomes 0.
bool machine_is_claim(uint64_t from, uint64_t to)
{
    return me != NULL && from == 0 && (to & ~(uint64_t)1) == (uintptr_t)&ebb_self;
}

static void hold(const void *word, struct place *place)
{
    if (me->held_count == HELD_MOST) {
        die("too many locks held");
    }
    me->held[me->held_count++] = (struct held){word, place, me->clock};
    if (place != NULL) {
        place->taken++;
    }
}

// The one that has waited longest goes on.
static void wake_for(const volatile void *word)
{
    struct core *first = NULL;
    for (unsigned i = 0; i < core_count; i++) {
        if (all[i].waits_for == word &&
            (first == NULL || all[i].waits_since < first->waits_since)) {
            first = &all[i];
        }
    }
    if (first != NULL) {
        first->waits_for = NULL;
        first->clock = first->waits_since > me->clock ? first->waits_since : me->clock;
    }
}

void machine_drop(const volatile void *word)
{
    for (unsigned i = me != NULL ? me->held_count : 0; i-- > 0;) {
        struct held *held = &me->held[i];
        if (held->word == word) {
            if (held->place != NULL) {
                held->place->held_tenths += me->clock - held->since;
            }
            *held = me->held[--me->held_count];
            wake_for(word);
            return;
        }
    }
}

static bool take(volatile uint64_t *word)
{
    uint64_t nobody = 0;
    return __atomic_compare_exchange_n(word, &nobody, me->self, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

bool machine_claim(volatile uint64_t *word, uint64_t *expected, void *pc)
{
    struct place *place = me->counted ? place_of((uintptr_t)pc, (uintptr_t)word) : NULL;
    machine_touch_atomic(word, sizeof *word, true, pc);
    if (take(word)) {
        hold((const void *)word, place);
        return true;
    }
    *expected = 1;
    if (place != NULL) {
        place->refused++;
    }
    return false;
}

static bool is_core(uint64_t holder)
{
    for (unsigned i = 0; i < core_count; i++) {
        if (all[i].self == (holder & ~(uint64_t)1)) {
            return true;
        }
    }
    return false;
}

static void wait_in_line(volatile uint64_t *word)
{
    while (!take(word)) {
        if (is_core(*word)) {
            me->waits_for = (const void *)word;
            me->waits_since = me->clock;
            me->clock = GONE;
            let_others();
        } else { // which may wait for one itself
            (void)sched_yield();
            me->clock += COST_TRANSFER;
            give_way(0);
        }
    }
}

void __real_ebbi_lock_take_slow(uint64_t *word);
void __wrap_ebbi_lock_take_slow(uint64_t *word);
void __wrap_ebbi_lock_take_slow(uint64_t *word)
{
    struct core *mine = me;
    if (mine == NULL || !simulated) {
        me = NULL; // what is spun on is no acquisition
        __real_ebbi_lock_take_slow(word);
        me = mine;
    }
    if (mine == NULL) {
        return;
    }
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    struct place *place = mine->counted ? place_of(pc, (uintptr_t)word) : NULL;
    uint64_t since = mine->clock;
    if (simulated) {
        wait_in_line(word);
        touch((uintptr_t)word, sizeof *word, true, true, (void *)pc);
    }
    if (place != NULL) {
        place->waits++;
        place->wait_tenths += mine->clock - since;
    }
    hold(word, place);
}

// ---- the system ----------------------------------------------------------------------------------

void machine_call(unsigned tenths, void *pc)
{
    if (!machine_is_on()) {
        return;
    }
    me->clock += tenths;
    if (me->counted) {
        place_of((uintptr_t)pc, 0)->calls++;
        for (unsigned i = 0; i < me->held_count; i++) {
            if (me->held[i].place != NULL) {
                me->held[i].place->calls++; // under that lock
            }
        }
    }
}

void machine_lets_others(uint64_t tenths)
{
    me->clock += tenths;
    give_way(0);
}

size_t machine_core(size_t else_this) { return me != NULL ? me->number : else_this; }
size_t machine_cores(void) { return core_count; }

// ---- the figures ---------------------------------------------------------------------------------

void machine_print(FILE *out)
{
    const char *comma = "";
    (void)fprintf(out, "[");
    for (unsigned c = 0; c < core_count; c++) {
        for (size_t i = 0; i < (size_t)1 << PLACES_LOG2; i++) {
            const struct place *p = &all[c].places[i];
            if (p->shared_writes + p->fetches + p->taken + p->refused + p->calls > 0) {
                (void)fprintf(out, "%s[%lu,%lu,%lu,%lu,%lu,%lu,%lu,%lu,%lu,%lu]", comma, p->pc,
                              p->object, p->shared_writes, p->fetches, p->taken, p->waits,
                              p->refused, p->wait_tenths, p->held_tenths, p->calls);
                comma = ",\n";
            }
        }
    }
    (void)fprintf(out, "]");
}

struct machine_figures machine_figures(const void *object)
{
    struct machine_figures sum = {0};
    for (unsigned c = 0; c < core_count; c++) {
        for (size_t i = 0; i < (size_t)1 << PLACES_LOG2; i++) {
            const struct place *p = &all[c].places[i];
            if (p->object == (uintptr_t)object) {
                sum.shared_writes += p->shared_writes;
                sum.fetches += p->fetches;
                sum.taken += p->taken;
                sum.waits += p->waits;
                sum.refused += p->refused;
            }
        }
    }
    return sum;
}
