// SPDX-License-Identifier: MIT OR Apache-2.0
#include "cores/machine.h"

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
static uint64_t real_start_ms;
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

static void touch_atomic(const volatile void *address, size_t bytes, bool writes, void *pc)
{
    if (me != NULL && simulated) {
        if (writes) {
            give_way(0);
        }
        touch((uintptr_t)address, bytes, writes, writes, pc);
    }
}

// ---- locks ---------------------------------------------------------------------------------------

// A lock of the library is taken when its word becomes the thread's own name, and dropped when it becomes 0.
static bool is_claim(uint64_t from, uint64_t to)
{
    return from == 0 && (to & ~(uint64_t)1) == (uintptr_t)&ebb_self;
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

static void drop(const volatile void *word)
{
    for (unsigned i = me->held_count; i-- > 0;) {
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

static bool claim(volatile uint64_t *word, uint64_t *expected, void *pc)
{
    struct place *place = me->counted ? place_of((uintptr_t)pc, (uintptr_t)word) : NULL;
    touch_atomic(word, sizeof *word, true, pc);
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

// ---- the compiler's calls ------------------------------------------------------------------------

#define PC __builtin_return_address(0)

#define PLAIN(name, bytes, writes)                                                                 \
    void name(void *p);                                                                            \
    void name(void *p)                                                                             \
    {                                                                                              \
        if (me != NULL && simulated) {                                                             \
            touch((uintptr_t)p, bytes, writes, false, PC);                                         \
        }                                                                                          \
    }
PLAIN(__tsan_read1, 1, false)
PLAIN(__tsan_read2, 2, false)
PLAIN(__tsan_read4, 4, false)
PLAIN(__tsan_read8, 8, false)
PLAIN(__tsan_read16, 16, false)
PLAIN(__tsan_unaligned_read2, 2, false)
PLAIN(__tsan_unaligned_read4, 4, false)
PLAIN(__tsan_unaligned_read8, 8, false)
PLAIN(__tsan_unaligned_read16, 16, false)
PLAIN(__tsan_write1, 1, true)
PLAIN(__tsan_write2, 2, true)
PLAIN(__tsan_write4, 4, true)
PLAIN(__tsan_write8, 8, true)
PLAIN(__tsan_write16, 16, true)
PLAIN(__tsan_unaligned_write2, 2, true)
PLAIN(__tsan_unaligned_write4, 4, true)
PLAIN(__tsan_unaligned_write8, 8, true)
PLAIN(__tsan_unaligned_write16, 16, true)

#define RANGE(name, writes)                                                                        \
    void name(void *p, unsigned long bytes);                                                       \
    void name(void *p, unsigned long bytes)                                                        \
    {                                                                                              \
        if (me != NULL && simulated && bytes > 0) {                                                \
            touch((uintptr_t)p, bytes, writes, false, PC);                                         \
        }                                                                                          \
    }
RANGE(__tsan_read_range, false)
RANGE(__tsan_write_range, true)

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define ATOMIC(bits)                                                                               \
    typedef uint##bits##_t word##bits;                                                             \
    word##bits __tsan_atomic##bits##_load(const volatile word##bits *p, int order);                \
    word##bits __tsan_atomic##bits##_load(const volatile word##bits *p, int order)                 \
    {                                                                                              \
        (void)order;                                                                               \
        touch_atomic(p, sizeof *p, false, PC);                                                     \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile word##bits *p, word##bits v, int order);             \
    void __tsan_atomic##bits##_store(volatile word##bits *p, word##bits v, int order)              \
    {                                                                                              \
        (void)order;                                                                               \
        if (me != NULL && simulated) {                                                             \
            touch((uintptr_t)p, sizeof *p, true, false, PC);                                       \
        }                                                                                          \
        __atomic_store_n(p, v, __ATOMIC_RELEASE);                                                  \
    }                                                                                              \
    word##bits __tsan_atomic##bits##_exchange(volatile word##bits *p, word##bits v, int order);    \
    word##bits __tsan_atomic##bits##_exchange(volatile word##bits *p, word##bits v, int order)     \
    {                                                                                              \
        (void)order;                                                                               \
        touch_atomic(p, sizeof *p, true, PC);                                                      \
        word##bits was = __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                              \
        if (me != NULL && v == 0) {                                                                \
            drop(p);                                                                               \
        }                                                                                          \
        return was;                                                                                \
    }                                                                                              \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile word##bits *p, word##bits *c,      \
                                                       word##bits v, int order, int failed);       \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile word##bits *p, word##bits *c,      \
                                                       word##bits v, int order, int failed)        \
    {                                                                                              \
        (void)order;                                                                               \
        (void)failed;                                                                              \
        if (sizeof *p == sizeof(uint64_t) && me != NULL && is_claim(*c, v)) {                      \
            return claim((volatile uint64_t *)(uintptr_t)p, (uint64_t *)(uintptr_t)c, PC);         \
        }                                                                                          \
        touch_atomic(p, sizeof *p, true, PC);                                                      \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    }
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

#define FETCH(bits, operation)                                                                     \
    word##bits __tsan_atomic##bits##_fetch_##operation(volatile word##bits *p, word##bits v,       \
                                                       int order);                                 \
    word##bits __tsan_atomic##bits##_fetch_##operation(volatile word##bits *p, word##bits v,       \
                                                       int order)                                  \
    {                                                                                              \
        (void)order;                                                                               \
        touch_atomic(p, sizeof *p, true, PC);                                                      \
        return __atomic_fetch_##operation(p, v, __ATOMIC_SEQ_CST);                                 \
    }
FETCH(8, or)
FETCH(8, and)
FETCH(32, add)
FETCH(32, sub)
FETCH(32, or)
FETCH(32, and)
FETCH(64, add)
FETCH(64, sub)
FETCH(64, or)
FETCH(64, and)

// ---- what the library asks of the system -----------------------------------------------------------

static void system_call(unsigned tenths, void *pc)
{
    if (me == NULL || !simulated) {
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

size_t __real_ebbi_os_cpu(void);
size_t __wrap_ebbi_os_cpu(void);
size_t __wrap_ebbi_os_cpu(void) { return me != NULL ? me->number : __real_ebbi_os_cpu(); }

size_t __wrap_ebbi_os_cpus(void);
size_t __wrap_ebbi_os_cpus(void) { return core_count; }

uint64_t __real_ebbi_os_now_ms(void);
uint64_t __wrap_ebbi_os_now_ms(void);
uint64_t __wrap_ebbi_os_now_ms(void)
{
    if (me == NULL || !simulated) {
        return __real_ebbi_os_now_ms();
    }
    if (real_start_ms == 0) {
        real_start_ms = __real_ebbi_os_now_ms();
    }
    return real_start_ms + me->clock / 10000000;
}

bool __real_ebbi_os_membarrier(void);
bool __wrap_ebbi_os_membarrier(void);
bool __wrap_ebbi_os_membarrier(void)
{
    system_call(COST_CALL, PC);
    return __real_ebbi_os_membarrier();
}

bool __real_ebbi_os_purge(void *start, size_t bytes);
bool __wrap_ebbi_os_purge(void *start, size_t bytes);
bool __wrap_ebbi_os_purge(void *start, size_t bytes)
{
    system_call(COST_CALL, PC);
    return __real_ebbi_os_purge(start, bytes);
}

int __real_ebbi_os_commit(void *start, size_t bytes);
int __wrap_ebbi_os_commit(void *start, size_t bytes);
int __wrap_ebbi_os_commit(void *start, size_t bytes)
{
    system_call(COST_CALL, PC);
    return __real_ebbi_os_commit(start, bytes);
}

void __real_ebbi_os_yield(void);
void __wrap_ebbi_os_yield(void);
void __wrap_ebbi_os_yield(void)
{
    if (me == NULL || !simulated) {
        __real_ebbi_os_yield();
    } else {
        me->clock += COST_CALL;
        give_way(0);
    }
}

void __real_ebbi_nap(uint32_t ms);
void __wrap_ebbi_nap(uint32_t ms);
void __wrap_ebbi_nap(uint32_t ms)
{
    if (me == NULL || !simulated) {
        __real_ebbi_nap(ms);
    } else {
        me->clock += (uint64_t)ms * COST_NAP;
        give_way(0);
    }
}

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
