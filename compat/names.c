// SPDX-License-Identifier: MIT OR Apache-2.0
// What each name of mallctl answers. Statistics are as of the last write to `epoch`, as jemalloc's are: a reader gets
// several that belong together, and pays for one snapshot.
#include "names.h"

#include <ebbtide.h>
#include <ebbtide/region.h>
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <string.h>

#include "ebbtide/detail/atomic.h"
#include "figures.h"

#define ARENAS 1
#define QUANTUM 16 // of ebbtide.h

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define VERSION                                                                                    \
    "ebbtide " TEXT(EBB_VERSION_MAJOR) "." TEXT(EBB_VERSION_MINOR) "." TEXT(EBB_VERSION_PATCH)

bool ebbi_compat_is_arena(size_t number)
{
    return number <= ARENAS || number == MALLCTL_ARENAS_ALL;
}

size_t ebbi_compat_type_bytes(enum ebbi_compat_type type)
{
    static const size_t bytes[] = {
        [EBBI_BOOL] = sizeof(bool),       [EBBI_UNSIGNED] = sizeof(unsigned),
        [EBBI_SIZE] = sizeof(size_t),     [EBBI_SSIZE] = sizeof(int64_t),
        [EBBI_UINT64] = sizeof(uint64_t), [EBBI_STRING] = sizeof(char *),
    };
    return bytes[type];
}

// ---- the snapshot --------------------------------------------------------------------------------
// Without a lock, so that a fork cannot leave one held. Two threads that take snapshots at once may leave figures of
// both; a reader could not tell which of them came last anyway.

static size_t kept[EBBI_FIGURES]; // atomic
static uint64_t epoch;            // atomic; 0: no snapshot yet

static void take_snapshot(void)
{
    struct ebbi_compat_figures now = ebbi_compat_figures_now();
    for (size_t i = 0; i < EBBI_FIGURES; i++) {
        ebbi_store_relaxed(&kept[i], now.of[i]); // relaxed: figures, each for itself
    }
    // release[compat-taken -> compat-read]: the figures
    // acquire[compat-read <- compat-taken]: those of who took one before
    (void)ebbi_fetch_add_acq_rel(&epoch, 1);
}

static size_t figure(enum ebbi_compat_figure which)
{
    // acquire[compat-read <- compat-taken]: the figures
    if (ebbi_load_acquire(&epoch) == 0) {
        take_snapshot();
    }
    return ebbi_load_relaxed(&kept[which]); // relaxed: as above
}

static int read_epoch(size_t arena, union ebbi_compat_value *value)
{
    (void)figure(EBBI_ALLOCATED);
    (void)arena;
    value->epoch = ebbi_load_relaxed(&epoch); // relaxed: a count
    return 0;
}

static int write_epoch(size_t arena, const union ebbi_compat_value *value)
{
    (void)arena;
    (void)value; // jemalloc does not read it, either
    take_snapshot();
    return 0;
}

#define FIGURE(name, which)                                                                        \
    static int read_##name(size_t arena, union ebbi_compat_value *value)                           \
    {                                                                                              \
        (void)arena;                                                                               \
        value->size = figure(which);                                                               \
        return 0;                                                                                  \
    }
FIGURE(allocated, EBBI_ALLOCATED)
FIGURE(active, EBBI_ACTIVE)
FIGURE(metadata, EBBI_METADATA)
FIGURE(resident, EBBI_RESIDENT)
FIGURE(mapped, EBBI_MAPPED)
FIGURE(retained, EBBI_RETAINED)

static int read_active_pages(size_t arena, union ebbi_compat_value *value)
{
    (void)arena;
    value->size = figure(EBBI_ACTIVE) / ebbi_compat_page();
    return 0;
}

static int read_dirty_pages(size_t arena, union ebbi_compat_value *value)
{
    (void)arena;
    value->size = figure(EBBI_FREE) / ebbi_compat_page();
    return 0;
}

// ---- options and what never changes ----------------------------------------------------------------

static size_t option(const char *wanted)
{
    size_t value;
    int is_set;
    const char *name;
    for (unsigned i = 0; (name = ebb_option_value(i, &value, &is_set)) != NULL; i++) {
        if (strcmp(name, wanted) == 0) {
            return value;
        }
    }
    return 0;
}

#define CONSTANT(name, field, what)                                                                \
    static int read_##name(size_t arena, union ebbi_compat_value *value)                           \
    {                                                                                              \
        (void)arena;                                                                               \
        value->field = (what);                                                                     \
        return 0;                                                                                  \
    }
CONSTANT(version, string, VERSION)
CONSTANT(nothing_said, string, "")
CONSTANT(word_false, string, "false")
CONSTANT(yes, flag, true)
CONSTANT(no, flag, false)
CONSTANT(zero, number, 0)
CONSTANT(arenas, number, ARENAS)
CONSTANT(page, size, ebbi_compat_page())
CONSTANT(quantum, size, QUANTUM)
CONSTANT(no_pages, size, 0)
CONSTANT(at_once, ssize, 0)
CONSTANT(has_cache, flag, option("EBB_CACHE") != 0)
CONSTANT(has_helper, flag, option("EBB_PURGE_THREAD") != 0)
CONSTANT(helpers, size, option("EBB_PURGE_THREAD"))
CONSTANT(delay, ssize, (int64_t)option("EBB_PURGE_DELAY_MS"))
CONSTANT(prints_at_exit, flag, option("EBB_STATS") == 1)

// The decay of all arenas is no one's.
static int read_arena_delay(size_t arena, union ebbi_compat_value *value)
{
    return arena < ARENAS ? read_delay(arena, value) : EFAULT;
}

static int read_arena_at_once(size_t arena, union ebbi_compat_value *value)
{
    return arena < ARENAS ? read_at_once(arena, value) : EFAULT;
}

// ---- writes ----------------------------------------------------------------------------------------
// A value that is in force may be written. Another is refused: options are read once.

static int keep_flag(bool in_force, bool wanted) { return wanted == in_force ? 0 : EPERM; }

static int keep_cache(size_t arena, const union ebbi_compat_value *value)
{
    union ebbi_compat_value now;
    (void)read_has_cache(arena, &now);
    return keep_flag(now.flag, value->flag);
}

static int start_helper(size_t arena, const union ebbi_compat_value *value)
{
    union ebbi_compat_value now;
    (void)read_has_helper(arena, &now);
    int error = keep_flag(now.flag, value->flag);
    return error == 0 && value->flag && ebb_helper_start() != 0 ? EAGAIN : error;
}

static int keep_helpers(size_t arena, const union ebbi_compat_value *value)
{
    union ebbi_compat_value now;
    (void)read_helpers(arena, &now);
    return value->size > now.size ? EINVAL : value->size == now.size ? 0 : EPERM;
}

static int keep_delay(size_t arena, const union ebbi_compat_value *value)
{
    union ebbi_compat_value now;
    (void)read_delay(arena, &now);
    return value->ssize == now.ssize ? 0 : EPERM;
}

static int keep_at_once(size_t arena, const union ebbi_compat_value *value)
{
    (void)arena;
    return value->ssize == 0 ? 0 : EPERM;
}

static int keep_arena(size_t arena, const union ebbi_compat_value *value)
{
    (void)arena;
    return value->number < ARENAS ? 0 : EFAULT;
}

// ---- actions ---------------------------------------------------------------------------------------

static int purge(size_t arena, const union ebbi_compat_value *value)
{
    (void)arena;
    (void)value;
    (void)ebb_trim();
    return 0;
}

static int flush_thread(size_t arena, const union ebbi_compat_value *value)
{
    (void)arena;
    (void)value;
    ebb_thread_idle();
    return 0;
}

// ---- the table -------------------------------------------------------------------------------------

const struct ebbi_compat_name ebbi_compat_names[] = {
    {"arena.#.decay", EBBI_ACTION, NULL, purge},
    {"arena.#.dirty_decay_ms", EBBI_SSIZE, read_arena_delay, keep_delay},
    {"arena.#.initialized", EBBI_BOOL, read_yes, NULL},
    {"arena.#.muzzy_decay_ms", EBBI_SSIZE, read_arena_at_once, keep_at_once},
    {"arena.#.purge", EBBI_ACTION, NULL, purge},
    {"arenas.dirty_decay_ms", EBBI_SSIZE, read_delay, keep_delay},
    {"arenas.muzzy_decay_ms", EBBI_SSIZE, read_at_once, keep_at_once},
    {"arenas.narenas", EBBI_UNSIGNED, read_arenas, NULL},
    {"arenas.nbins", EBBI_UNSIGNED, read_zero, NULL},
    {"arenas.nhbins", EBBI_UNSIGNED, read_zero, NULL},
    {"arenas.nlextents", EBBI_UNSIGNED, read_zero, NULL},
    {"arenas.page", EBBI_SIZE, read_page, NULL},
    {"arenas.quantum", EBBI_SIZE, read_quantum, NULL},
    {"background_thread", EBBI_BOOL, read_has_helper, start_helper},
    {"config.debug", EBBI_BOOL, read_no, NULL},
    {"config.fill", EBBI_BOOL, read_no, NULL},
    {"config.malloc_conf", EBBI_STRING, read_nothing_said, NULL},
    {"config.prof", EBBI_BOOL, read_no, NULL},
    {"config.stats", EBBI_BOOL, read_yes, NULL},
    {"config.utrace", EBBI_BOOL, read_no, NULL},
    {"config.xmalloc", EBBI_BOOL, read_no, NULL},
    {"epoch", EBBI_UINT64, read_epoch, write_epoch},
    {"max_background_threads", EBBI_SIZE, read_helpers, keep_helpers},
    {"opt.background_thread", EBBI_BOOL, read_has_helper, NULL},
    {"opt.dirty_decay_ms", EBBI_SSIZE, read_delay, NULL},
    {"opt.junk", EBBI_STRING, read_word_false, NULL},
    {"opt.muzzy_decay_ms", EBBI_SSIZE, read_at_once, NULL},
    {"opt.narenas", EBBI_UNSIGNED, read_arenas, NULL},
    {"opt.prof", EBBI_BOOL, read_no, NULL},
    {"opt.retain", EBBI_BOOL, read_yes, NULL},
    {"opt.stats_print", EBBI_BOOL, read_prints_at_exit, NULL},
    {"opt.tcache", EBBI_BOOL, read_has_cache, NULL},
    {"opt.xmalloc", EBBI_BOOL, read_no, NULL},
    {"opt.zero", EBBI_BOOL, read_no, NULL},
    {"stats.active", EBBI_SIZE, read_active, NULL},
    {"stats.allocated", EBBI_SIZE, read_allocated, NULL},
    {"stats.arenas.#.mapped", EBBI_SIZE, read_mapped, NULL},
    {"stats.arenas.#.pactive", EBBI_SIZE, read_active_pages, NULL},
    {"stats.arenas.#.pdirty", EBBI_SIZE, read_dirty_pages, NULL},
    {"stats.arenas.#.pmuzzy", EBBI_SIZE, read_no_pages, NULL},
    {"stats.arenas.#.resident", EBBI_SIZE, read_resident, NULL},
    {"stats.arenas.#.retained", EBBI_SIZE, read_retained, NULL},
    {"stats.mapped", EBBI_SIZE, read_mapped, NULL},
    {"stats.metadata", EBBI_SIZE, read_metadata, NULL},
    {"stats.resident", EBBI_SIZE, read_resident, NULL},
    {"stats.retained", EBBI_SIZE, read_retained, NULL},
    {"thread.arena", EBBI_UNSIGNED, read_zero, keep_arena},
    {"thread.idle", EBBI_ACTION, NULL, flush_thread},
    {"thread.tcache.enabled", EBBI_BOOL, read_has_cache, keep_cache},
    {"thread.tcache.flush", EBBI_ACTION, NULL, flush_thread},
    {"version", EBBI_STRING, read_version, NULL},
};
const size_t ebbi_compat_names_count = sizeof ebbi_compat_names / sizeof ebbi_compat_names[0];
