// SPDX-License-Identifier: MIT OR Apache-2.0
#include "support/fake_os.h"

#include <errno.h>
#include <string.h>

#include "ebbtide/detail/atomic.h"
#include "os/os.h"
#include "support/real_os.h"

#define PURGES 256
#define CAPTURE 8192
#define PRETENDED 1u // a thread that is none

static const char *const names[FAKE_CALLS] = {
    "reserve",    "reserve_readable", "map",    "commit", "purge",        "advise_huge",
    "guard",      "release",          "resize", "move",   "start_thread", "membarrier_register",
    "membarrier", "resident",         "pages",  "yield"};

struct rule {
    size_t calls, refused;
    size_t first, last; // numbers of the calls to refuse; first 0: none
};

static struct {
    struct rule rules[FAKE_CALLS];
    bool clock_faked, threaded_faked, threaded, pretend_threads, secure, huge, capturing, filtered;
    bool cpu_faked, on_request;
    size_t cpu;
    uint32_t ended_thread;
    uint64_t clock_ms, step_ms;
    bool waits;
    size_t limit, page, memory;
    void (*watch)(uintptr_t start, size_t bytes);
    void (*watch_close)(void);
} fake = {.limit = SIZE_MAX};

static size_t held_bytes;
static struct fake_purge purges[PURGES];
static size_t purge_count;
static struct fake_advice advices[PURGES];
static size_t advice_count;
static char captured[CAPTURE];
static size_t captured_length;

void fake_os_reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.limit = SIZE_MAX;
    purge_count = advice_count = 0;
    captured_length = 0;
}

size_t fake_os_count(enum fake_call call) { return ebbi_load_relaxed(&fake.rules[call].calls); }
size_t fake_os_refused(enum fake_call call) { return ebbi_load_relaxed(&fake.rules[call].refused); }
const char *fake_os_name(enum fake_call call) { return names[call]; }

void fake_os_refuse(enum fake_call call, size_t n, bool onward)
{
    struct rule *rule = &fake.rules[call];
    rule->first = rule->calls + n;
    rule->last = onward ? SIZE_MAX : rule->first;
}

void fake_os_allow(void)
{
    for (size_t call = 0; call < FAKE_CALLS; call++) {
        fake.rules[call].first = 0;
    }
}

void fake_os_thread_ends(uint32_t number) { fake.ended_thread = number; }

void fake_os_clock(uint64_t now_ms)
{
    fake.clock_faked = true;
    fake.step_ms = 0;
    ebbi_store_relaxed(&fake.clock_ms, now_ms);
}

void fake_os_clock_advance(uint64_t by_ms) { (void)ebbi_fetch_add_relaxed(&fake.clock_ms, by_ms); }
void fake_os_clock_step(uint64_t step_ms) { fake.step_ms = step_ms; }
void fake_os_thread_waits(bool waits) { fake.waits = waits; }
void fake_os_limit(size_t bytes) { fake.limit = bytes; }
size_t fake_os_held_bytes(void) { return ebbi_load_relaxed(&held_bytes); }

void fake_os_threaded(bool threaded)
{
    fake.threaded_faked = true;
    fake.threaded = threaded;
}

void fake_os_pretend_threads(void) { fake.pretend_threads = true; }
void fake_os_page_size(size_t bytes) { fake.page = bytes; }
void fake_os_memory(size_t bytes) { fake.memory = bytes; }
void fake_os_secure(bool secure) { fake.secure = secure; }

void fake_os_cpu(size_t cpu)
{
    fake.cpu_faked = true;
    ebbi_store_relaxed(&fake.cpu, cpu);
}

void fake_os_filtered(bool filtered) { fake.filtered = filtered; }
void fake_os_huge_pages(bool by_default) { fake.huge = by_default; }
void fake_os_huge_on_request(bool on_request) { fake.on_request = on_request; }
void fake_os_watch_purge(void (*watch)(uintptr_t start, size_t bytes)) { fake.watch = watch; }

void fake_os_watch_close(void (*watch)(void)) { fake.watch_close = watch; }

size_t fake_os_purges(struct fake_purge *out, size_t room)
{
    size_t known = ebbi_min(ebbi_min(purge_count, PURGES), room);
    for (size_t i = 0; i < known; i++) {
        out[i] = purges[(purge_count - known + i) % PURGES];
    }
    return known;
}

size_t fake_os_advices(struct fake_advice *out, size_t room)
{
    size_t known = ebbi_min(ebbi_min(advice_count, PURGES), room);
    for (size_t i = 0; i < known; i++) {
        out[i] = advices[(advice_count - known + i) % PURGES];
    }
    return known;
}

void fake_os_capture(void)
{
    fake.capturing = true;
    captured_length = 0;
}

const char *fake_os_captured(void)
{
    captured[captured_length] = '\0';
    return captured;
}

// Counts a call; true when it is to be refused.
static bool refuse(enum fake_call call)
{
    struct rule *rule = &fake.rules[call];
    size_t number = ebbi_fetch_add_relaxed(&rule->calls, (size_t)1) + 1;
    bool refused = rule->first != 0 && number >= rule->first && number <= rule->last;
    if (refused) {
        (void)ebbi_fetch_add_relaxed(&rule->refused, (size_t)1);
    }
    return refused;
}

static bool hold(size_t bytes)
{
    size_t held = ebbi_fetch_add_relaxed(&held_bytes, bytes) + bytes;
    if (held > fake.limit || held < bytes) {
        (void)ebbi_fetch_sub_relaxed(&held_bytes, bytes);
        return false;
    }
    return true;
}

static void let_go(size_t bytes) { (void)ebbi_fetch_sub_relaxed(&held_bytes, bytes); }

static void *held_or_not(void *got, size_t bytes)
{
    if (got == NULL) {
        let_go(bytes);
    }
    return got;
}

void *ebbi_os_reserve(void *at, size_t bytes)
{
    bool refused = refuse(FAKE_RESERVE) || !hold(bytes);
    return refused ? NULL : held_or_not(real_os_reserve(at, bytes), bytes);
}

void *ebbi_os_reserve_charged(size_t bytes)
{
    bool refused = refuse(FAKE_RESERVE) || !hold(bytes);
    return refused ? NULL : held_or_not(real_os_reserve_charged(bytes), bytes);
}

void *ebbi_os_reserve_readable(size_t bytes)
{
    bool refused = refuse(FAKE_RESERVE_READABLE) || !hold(bytes);
    return refused ? NULL : held_or_not(real_os_reserve_readable(bytes), bytes);
}

void *ebbi_os_map(void *at, size_t bytes)
{
    bool refused = refuse(FAKE_MAP) || !hold(bytes);
    return refused ? NULL : held_or_not(real_os_map(at, bytes), bytes);
}

int ebbi_os_commit(void *start, size_t bytes)
{
    return refuse(FAKE_COMMIT) ? -ENOMEM : real_os_commit(start, bytes);
}

int ebbi_os_make_writable(void *start, size_t bytes)
{
    return refuse(FAKE_COMMIT) ? -ENOMEM : real_os_make_writable(start, bytes);
}

bool ebbi_os_purge(void *start, size_t bytes)
{
    if (refuse(FAKE_PURGE)) {
        return false;
    }
    if (fake.watch != NULL) {
        fake.watch((uintptr_t)start, bytes);
    }
    size_t number = ebbi_fetch_add_relaxed(&purge_count, (size_t)1);
    purges[number % PURGES] = (struct fake_purge){(uintptr_t)start, bytes};
    return real_os_purge(start, bytes);
}

static bool may_close(void)
{
    if (fake.watch_close != NULL) {
        fake.watch_close();
    }
    return !refuse(FAKE_GUARD);
}

int ebbi_os_close(void *start, size_t bytes)
{
    return may_close() ? real_os_close(start, bytes) : -ENOMEM;
}

int ebbi_os_guard(void *start, size_t bytes)
{
    return may_close() ? real_os_guard(start, bytes) : -ENOMEM;
}

void ebbi_os_release(void *start, size_t bytes)
{
    (void)refuse(FAKE_RELEASE);
    let_go(bytes);
    real_os_release(start, bytes);
}

bool ebbi_os_resize(void *start, size_t old_bytes, size_t new_bytes)
{
    size_t more = new_bytes > old_bytes ? new_bytes - old_bytes : 0;
    if (refuse(FAKE_RESIZE) || !hold(more)) {
        return false;
    }
    bool done = real_os_resize(start, old_bytes, new_bytes);
    let_go(done ? old_bytes + more - new_bytes : more);
    return done;
}

void *ebbi_os_move(void *start, size_t old_bytes, void *to, size_t new_bytes)
{
    size_t more = to == NULL && new_bytes > old_bytes ? new_bytes - old_bytes : 0;
    if (refuse(FAKE_MOVE) || !hold(more)) {
        return NULL;
    }
    void *got = real_os_move(start, old_bytes, to, new_bytes);
    if (got == NULL || to == NULL) {
        let_go(got == NULL ? more : old_bytes + more - new_bytes);
    } else {
        let_go(old_bytes);
    }
    return got;
}

void ebbi_os_pages_open(struct ebbi_os_pages *pages)
{
    pages->file = -1;
    if (!refuse(FAKE_PAGES)) {
        real_os_pages_open(pages);
    }
}

void ebbi_os_pages_close(struct ebbi_os_pages *pages) { real_os_pages_close(pages); }

bool ebbi_os_resident(struct ebbi_os_pages *pages, const void *start, size_t bytes,
                      unsigned char *vector)
{
    return !refuse(FAKE_RESIDENT) && real_os_resident(pages, start, bytes, vector);
}

void ebbi_os_advise_huge(void *start, size_t bytes, enum ebbi_os_huge advice)
{
    bool says = advice == EBBI_HUGE_ALWAYS || advice == EBBI_HUGE_NEVER;
    if (says && !refuse(FAKE_ADVISE_HUGE)) {
        size_t number = ebbi_fetch_add_relaxed(&advice_count, (size_t)1);
        advices[number % PURGES] =
            (struct fake_advice){(uintptr_t)start, bytes, advice == EBBI_HUGE_ALWAYS};
        real_os_advise_huge(start, bytes, advice);
    }
}

bool ebbi_os_may_look(void) { return !fake.filtered; }
bool ebbi_os_huge_by_default(void) { return fake.huge; }
bool ebbi_os_huge_on_request(void) { return fake.on_request; }
size_t ebbi_os_page_size(void) { return fake.page != 0 ? fake.page : real_os_page_size(); }
size_t ebbi_os_address_limit(void) { return fake.limit; }
size_t ebbi_os_memory_bytes(void)
{
    return fake.memory != 0 ? fake.memory : real_os_memory_bytes();
}

size_t ebbi_os_cpu(void) { return fake.cpu_faked ? ebbi_load_relaxed(&fake.cpu) : real_os_cpu(); }

uint64_t ebbi_os_now_ms(void)
{
    return fake.clock_faked ? ebbi_fetch_add_relaxed(&fake.clock_ms, fake.step_ms)
                            : real_os_now_ms();
}

uint64_t ebbi_os_now_ns(void)
{
    return fake.clock_faked ? ebbi_os_now_ms() * 1000000u : real_os_now_ns();
}

uint64_t ebbi_os_date_ms(void) { return real_os_date_ms(); }
uint64_t ebbi_os_entropy(void) { return real_os_entropy(); }
bool ebbi_os_is_secure(void) { return fake.secure; }
bool ebbi_os_is_threaded(void)
{
    return fake.threaded_faked ? fake.threaded : real_os_is_threaded();
}
size_t ebbi_os_resident_bytes(void) { return real_os_resident_bytes(); }

void ebbi_os_start(void) { real_os_start(); }
uint32_t ebbi_os_process_number(void) { return real_os_process_number(); }
uint64_t ebbi_os_thread_ns(void)
{
    uint64_t now_ns = ebbi_os_now_ns();
    if (!fake.clock_faked) {
        return real_os_thread_ns();
    }
    return fake.waits ? 0 : now_ns;
}
uint32_t ebbi_os_thread_number(void) { return real_os_thread_number(); }
size_t ebbi_os_thread_name(uint32_t number, char *name, size_t size)
{
    return real_os_thread_name(number, name, size);
}

void ebbi_os_yield(void)
{
    (void)refuse(FAKE_YIELD);
    real_os_yield();
}

bool ebbi_os_membarrier_register(void)
{
    return !refuse(FAKE_MEMBARRIER_REGISTER) && real_os_membarrier_register();
}

bool ebbi_os_membarrier(void) { return !refuse(FAKE_MEMBARRIER) && real_os_membarrier(); }

void ebbi_os_wait(uint32_t *word, uint32_t expected, uint32_t timeout_ms)
{
    real_os_wait(word, expected, timeout_ms);
}

void ebbi_os_wake(uint32_t *word, int how_many) { real_os_wake(word, how_many); }

uintptr_t ebbi_os_start_thread(const struct ebbi_os_thread *thread)
{
    if (refuse(FAKE_START_THREAD)) {
        return 0;
    }
    return fake.pretend_threads ? PRETENDED : real_os_start_thread(thread);
}

void ebbi_os_leave_thread(uintptr_t handle)
{
    real_os_leave_thread(handle != PRETENDED ? handle : 0);
}

uintptr_t ebbi_os_own_thread(void) { return real_os_own_thread(); }
bool ebbi_os_thread_lives(uint32_t number)
{
    return number >= FAKE_THREAD ? number != fake.ended_thread : real_os_thread_lives(number);
}

uint32_t ebbi_os_thread_count(void) { return real_os_thread_count(); }
struct ebbi_os_signals ebbi_os_hold_signals(void) { return real_os_hold_signals(); }
void ebbi_os_let_signals(struct ebbi_os_signals signals) { real_os_let_signals(signals); }

void ebbi_os_join_thread(uintptr_t handle)
{
    real_os_join_thread(handle != PRETENDED ? handle : 0);
}

bool ebbi_os_is_own_thread(void *(*run)(void *)) { return real_os_is_own_thread(run); }
bool ebbi_os_first_has_ended(void) { return real_os_first_has_ended(); }
bool ebbi_os_is_first_thread(void) { return real_os_is_first_thread(); }
void ebbi_os_streams_lock(void) { real_os_streams_lock(); }
void ebbi_os_streams_unlock(void) { real_os_streams_unlock(); }
void ebbi_os_streams_reset(void) { real_os_streams_reset(); }

int ebbi_os_file_open(const char *path) { return real_os_file_open(path); }
int ebbi_os_file_close(int fd) { return real_os_file_close(fd); }
int ebbi_os_file_begin(const char *path, const char *to) { return real_os_file_begin(path, to); }
int ebbi_os_file_end(int fd, const char *path, const char *to)
{
    return real_os_file_end(fd, path, to);
}

int ebbi_os_write(int fd, const char *text, size_t length)
{
    if (!fake.capturing) {
        return real_os_write(fd, text, length);
    }
    size_t part = ebbi_min(length, CAPTURE - 1 - captured_length);
    memcpy(captured + captured_length, text, part);
    captured_length += part;
    return 0;
}

int ebbi_os_append(const char *path, const char *text, size_t length)
{
    return real_os_append(path, text, length);
}
