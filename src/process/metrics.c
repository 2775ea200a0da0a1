// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: EBB_METRICS_FILE, the accounts of the heap as OpenMetrics text, in a file that is replaced whole again and
// again. Names, types and help are those of `ebb export` (lab/src/ebbtide_lab/show/metrics.py), but for what
// only a look from outside knows.
//
// The helper writes it, where there is one, else a slow call when the time has come, perhaps below locks of the program or
// in a signal handler: so without libc, and whoever finds the lock taken leaves it to its holder.
#include <errno.h>

#include "heap/blocks.h"
#include "os/lock.h"
#include "os/options.h"
#include "os/text.h"
#include "os/wake.h"
#include "process/process.h"
#include "reclaim/reclaim.h"
#include "region/label.h"

#define LINE_MOST 512 // bytes: a name, its labels, escaped, and a number
#define EXIT_YIELDS 1000
#define NUMBER_ROOM 16 // ".", a number

uint64_t ebbi_metrics_due_ms;

static struct {
    struct ebbi_lock lock; // rank: start, as that of what is asked
    uint64_t period_ms;
    uint32_t process; // that writes; its children do not
    bool told;        // that a write has failed
    char labels[96];  // of the process, without the last brace
} metrics = {.lock = EBBI_LOCK(START)};
static EBBI_SPARSE char metrics_file[EBBI_PATH_ROOM],
    metrics_temporary[EBBI_PATH_ROOM + NUMBER_ROOM];

// Under the lock.
static EBBI_SPARSE struct ebb_snapshot snapshot_counted;
static EBBI_SPARSE char text_room[4096];

struct metrics_out {
    struct ebbi_text text;
    int fd, error;
};

static void out_drain(struct metrics_out *out)
{
    size_t bytes = (size_t)(out->text.at - text_room);
    out->error = out->error != 0 ? out->error : ebbi_os_write(out->fd, text_room, bytes);
    out->text.at = text_room;
}

// ---- lines ---------------------------------------------------------------------------------------------

// What ends a label's value or is no ASCII would not be read; and two names stay two.
static void put_escaped(struct ebbi_text *text, const char *value, size_t most)
{
    for (size_t i = 0; i < most && value[i] != '\0'; i++) {
        unsigned char c = (unsigned char)value[i];
        char hex[] = {'%', "0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15], '\0'};
        char plain[] = {(char)c, '\0'};
        ebbi_text_put(text, c == '"' || c == '\\' ? "\\" : "");
        ebbi_text_put(text, c < ' ' || c >= 0x7F || c == '%' ? hex : plain);
    }
}

static void out_room(struct metrics_out *out)
{
    if (out->text.end - out->text.at < LINE_MOST) {
        out_drain(out);
    }
}

// The family of a counter is named without the _total of its samples.
static void put_family(struct metrics_out *out, const char *name, bool is_counter, const char *help)
{
    out_room(out);
    ebbi_text_put(&out->text, "# HELP ebbtide_");
    ebbi_text_put(&out->text, name);
    ebbi_text_put(&out->text, " ");
    ebbi_text_put(&out->text, help);
    ebbi_text_put(&out->text, "\n# TYPE ebbtide_");
    ebbi_text_put(&out->text, name);
    ebbi_text_put(&out->text, is_counter ? " counter\n" : " gauge\n");
}

static void begin_sample(struct metrics_out *out, const char *name, const char *suffix)
{
    out_room(out);
    ebbi_text_put(&out->text, "ebbtide_");
    ebbi_text_put(&out->text, name);
    ebbi_text_put(&out->text, suffix);
    ebbi_text_put(&out->text, metrics.labels);
}

static void end_sample(struct metrics_out *out, uint64_t value)
{
    ebbi_text_put(&out->text, "} ");
    ebbi_text_number(&out->text, value, 10);
    ebbi_text_put(&out->text, "\n");
}

static void put_one(struct metrics_out *out, const char *name, bool is_counter, const char *help,
                    uint64_t value)
{
    put_family(out, name, is_counter, help);
    begin_sample(out, name, is_counter ? "_total" : "");
    end_sample(out, value);
}

// ---- families ------------------------------------------------------------------------------------------

static void put_free(struct metrics_out *out, const char *state, uint64_t bytes)
{
    begin_sample(out, "free_bytes", "");
    ebbi_text_put(&out->text, ",state=\"");
    ebbi_text_put(&out->text, state);
    ebbi_text_put(&out->text, "\"");
    end_sample(out, bytes);
}

// As accounts.py: the spare objects of `cached_bytes` are in `span_bytes` as well.
static void put_accounts(struct metrics_out *out, const struct ebb_snapshot *s)
{
    uint64_t cached = 0;
    for (size_t i = 0; i < s->class_count; i++) {
        cached += s->classes[i].cached_blocks * s->classes[i].block_bytes;
    }
    uint64_t spare = s->cached_bytes - ebbi_min(cached, s->cached_bytes);
    uint64_t dirty = ebbi_min(s->dirty_bytes, s->free_bytes);
    uint64_t pinned = ebbi_min(s->pinned_bytes, s->free_bytes - dirty);
    put_one(out, "live_bytes", false,
            "Blocks of size classes in use, by their full size, in bytes.", s->live_bytes);
    put_one(
        out, "spans_bytes", false,
        "Large objects, regions and the allocator's own data in use, in bytes of address space.",
        s->span_bytes - ebbi_min(spare, s->span_bytes));
    put_one(out, "huge_bytes", false, "Mappings of huge objects in use, in bytes of address space.",
            s->huge_bytes);
    put_one(out, "huge_objects", false, "Huge objects in use, their number.", s->huge_count);
    put_one(out, "cached_bytes", false, "Free blocks in the caches of threads, in bytes.", cached);
    put_one(out, "spare_bytes", false,
            "Freed large objects that threads keep, in bytes. Not in ebbtide_spans_bytes.", spare);
    put_family(
        out, "free_bytes", false,
        "Free blocks in slabs, in bytes. State dirty: not yet returned to the system; pinned: on"
        " pages that blocks in use keep; clean: on pages that were returned or never touched.");
    put_free(out, "dirty", dirty);
    put_free(out, "pinned", pinned);
    put_free(out, "clean", s->free_bytes - dirty - pinned);
}

static void put_totals(struct metrics_out *out, const struct ebb_snapshot *s)
{
    put_one(out, "free_spans_bytes", false,
            "Free spans and kept mappings not yet returned to the system, in bytes.",
            s->dirty_span_bytes);
    put_one(out, "slab_bytes", false,
            "Slabs, in bytes of address space: blocks in use, cached and free ones, and headers.",
            s->slab_bytes);
    put_one(out, "slabs", false, "Slabs, their number.", s->slabs);
    put_one(out, "committed_bytes", false,
            "Address space of the arena made usable so far, in bytes.", s->committed_bytes);
    put_one(out, "reserved_bytes", false, "Address space of the arena, in bytes.",
            s->reserved_bytes);
    put_one(out, "huge_page_bytes", false,
            "Address space asked for as huge pages and not split since, in bytes.",
            s->asked_huge_bytes);
    put_one(out, "returned_bytes", true, "Memory returned to the system, in bytes.",
            s->purged_bytes);
    put_one(out, "return_calls", true, "System calls that returned spans, their number.",
            s->purges);
    put_one(out, "heaps", false, "Heaps of threads, their number, those of ended threads included.",
            s->heaps);
}

static uint64_t class_live(const struct ebb_class_stats *row)
{
    return row->live_blocks * row->block_bytes;
}

static uint64_t class_idle(const struct ebb_class_stats *row)
{
    return (row->cached_blocks + row->free_blocks) * row->block_bytes;
}

static uint64_t class_pinned(const struct ebb_class_stats *row) { return row->pinned_bytes; }

static void put_classes(struct metrics_out *out, const struct ebb_snapshot *s, const char *name,
                        const char *help, uint64_t (*number)(const struct ebb_class_stats *row))
{
    put_family(out, name, false, help);
    for (size_t i = 0; i < s->class_count; i++) {
        const struct ebb_class_stats *row = &s->classes[i];
        if (row->slabs == 0) {
            continue;
        }
        begin_sample(out, name, "");
        ebbi_text_put(&out->text, ",block_bytes=\"");
        ebbi_text_number(&out->text, row->block_bytes, 10);
        ebbi_text_put(&out->text, "\"");
        end_sample(out, number(row));
    }
}

static uint64_t label_held(const struct ebbi_label *row)
{
    return ebbi_load_relaxed(&row->held_bytes); // relaxed: a count
}

static uint64_t label_live(const struct ebbi_label *row)
{
    return ebbi_load_relaxed(&row->live_bytes); // relaxed: a count
}

static uint64_t label_open(const struct ebbi_label *row)
{
    return ebbi_load_relaxed(&row->open); // relaxed: a count
}

static uint64_t label_demoted(const struct ebbi_label *row)
{
    return ebbi_load_relaxed(&row->demoted); // relaxed: a count
}

// As others read them: what regions have in use is known where somebody has measured it.
static void put_labels(struct metrics_out *out, const char *name, const char *help,
                       uint64_t (*number)(const struct ebbi_label *row))
{
    // acquire[label-read <- label-add]: names and kinds
    uint64_t rows = ebbi_load_acquire(&ebbi_labels.rows);
    put_family(out, name, false, help);
    for (uint64_t i = 0; i < rows; i++) {
        const struct ebbi_label *row = &ebbi_labels.row[i];
        uint64_t value = number(row);
        if (number == label_live && !row->is_domain && value == 0 && label_held(row) != 0) {
            continue;
        }
        begin_sample(out, name, "");
        ebbi_text_put(&out->text, ",label=\"");
        put_escaped(&out->text, row->name, sizeof row->name);
        ebbi_text_put(&out->text, row->is_domain ? "\",kind=\"domain\"" : "\",kind=\"region\"");
        end_sample(out, value);
    }
}

static void put_lifetimes(struct metrics_out *out)
{
    put_labels(out, "label_held_bytes",
               "Address space that the regions of one label, or a domain, hold, in bytes.",
               label_held);
    put_labels(
        out, "label_live_bytes",
        "Blocks in use in the regions of one label, or in a domain, in bytes. Left out where the"
        " process has not measured it.",
        label_live);
    put_labels(out, "label_open",
               "Open regions of one label, or open units of work of a domain, their number.",
               label_open);
    put_labels(out, "label_demoted_slabs",
               "Slabs that blocks which outlived their region or unit of work pin, their number.",
               label_demoted);
}

static void put_pins(struct metrics_out *out)
{
    struct ebbi_clock_state state;
    size_t waiting = ebbi_limbo_unsealed();
    ebbi_clock_state(&ebbi_clock, &state);
    for (size_t i = 0; i < EBBI_WAITING_PARTS; i++) {
        waiting += ebbi_load_relaxed(&ebbi_limbo_waiting[i].bytes); // relaxed: a count
    }
    put_family(
        out, "oldest_pin_seconds", false,
        "For how long the oldest pin of reclamation lasts at least, in seconds. 0: no old one.");
    begin_sample(out, "oldest_pin_seconds", "");
    ebbi_text_put(&out->text, "} ");
    ebbi_text_number(&out->text, state.oldest_ms / 1000, 10);
    char fraction[] = {'.',
                       (char)('0' + state.oldest_ms / 100 % 10),
                       (char)('0' + state.oldest_ms / 10 % 10),
                       (char)('0' + state.oldest_ms % 10),
                       '\n',
                       '\0'};
    ebbi_text_put(&out->text, fraction);
    put_one(out, "retired_bytes", false, "Retired memory that waits for reclamation, in bytes.",
            waiting);
}

// ---- the file ------------------------------------------------------------------------------------------

static int write_all(void)
{
    ebbi_assert_held(&metrics.lock);
    struct metrics_out out = {.text = {text_room, text_room + sizeof text_room}};
    ebbi_snapshot_take(&snapshot_counted);
    out.fd = ebbi_os_file_begin(metrics_temporary, metrics_file);
    if (out.fd < 0) {
        return out.fd;
    }
    put_accounts(&out, &snapshot_counted);
    put_totals(&out, &snapshot_counted);
    put_classes(&out, &snapshot_counted, "class_live_bytes",
                "Blocks in use of one size class, in bytes.", class_live);
    put_classes(&out, &snapshot_counted, "class_idle_bytes",
                "Free blocks of one size class, in threads' caches and in slabs, in bytes.",
                class_idle);
    put_classes(&out, &snapshot_counted, "class_pinned_bytes",
                "Free blocks of one size class on pages that blocks in use keep, in bytes.",
                class_pinned);
    put_lifetimes(&out);
    put_pins(&out);
    out_room(&out);
    ebbi_text_put(&out.text, "# EOF\n");
    out_drain(&out);
    int error = ebbi_os_file_end(out.fd, metrics_temporary, out.error == 0 ? metrics_file : NULL);
    return out.error != 0 ? out.error : error;
}

// Once: what goes wrong again is no news.
static void tell_error(int error)
{
    if (error == 0 || metrics.told) {
        return;
    }
    metrics.told = true;
    ebbi_message_file("cannot write the metrics", error, metrics_file);
}

// Under the lock. The child of a fork, vfork included, has its parent's state.
static void write_now(void)
{
    if (ebbi_os_process_number() == metrics.process) {
        tell_error(write_all());
        // relaxed: a time
        ebbi_store_relaxed(&ebbi_metrics_due_ms, ebbi_os_now_ms() + metrics.period_ms);
    }
}

void ebbi_metrics_lapse(bool helper)
{
    uint64_t due = ebbi_load_relaxed(&ebbi_metrics_due_ms); // relaxed: a time
    bool mine = helper || !ebbi_helper_is_there();
    // relaxed: see ebbi_pass_serve
    if (due != 0 && mine && ebbi_os_now_ms() >= due && !ebbi_load_relaxed(&ebbi_dying) &&
        ebbi_lock_try(&metrics.lock)) {
        write_now();
        ebbi_lock_drop(&metrics.lock);
    }
}

// exit() may have been called in a signal handler, amid a write.
static void write_last(void *unused)
{
    (void)unused;
    for (int i = 0; i < EXIT_YIELDS; i++) {
        if (ebbi_lock_try(&metrics.lock)) {
            write_now();
            ebbi_lock_drop(&metrics.lock);
            return;
        }
        ebbi_os_yield();
    }
}

static void write_labels(void)
{
    char name[16] = ""; // of the first thread, as the kernel has it
    struct ebbi_text text = {metrics.labels, metrics.labels + sizeof metrics.labels - 1};
    (void)ebbi_os_prctl(EBBI_OS_GET_NAME, (unsigned long)name, 0, 0, 0);
    ebbi_text_put(&text, "{pid=\"");
    ebbi_text_number(&text, metrics.process, 10);
    ebbi_text_put(&text, "\",comm=\"");
    put_escaped(&text, name, sizeof name);
    ebbi_text_put(&text, "\"");
}

void ebbi_metrics_begin(void)
{
    metrics.period_ms = ebbi_option(EBBI_OPTION_METRICS);
    metrics.process = ebbi_os_process_number();
    if (!ebbi_option_file(EBBI_OPTION_METRICS_FILE, metrics_file, sizeof metrics_file)) {
        ebbi_message("no metrics: the name of the file is too long: %s", metrics_file);
        return;
    }
    struct ebbi_text text = {metrics_temporary, metrics_temporary + sizeof metrics_temporary - 1};
    ebbi_text_put(&text, metrics_file);
    ebbi_text_put(&text, ".");
    ebbi_text_number(&text, metrics.process, 10);
    write_labels();
    ebbi_lock_take(&metrics.lock);
    write_now();
    ebbi_lock_drop(&metrics.lock);
    ebbi_os_at_exit(write_last);
}

void ebbi_metrics_forget(void)
{
    ebbi_lock_reset(&metrics.lock);
    ebbi_store_relaxed(&ebbi_metrics_due_ms, (uint64_t)0); // relaxed: there is no other thread
}
