// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer diag: the snapshot as text, JSON and XML, EBB_STATS, and the start of the library when it is loaded.
// Nothing here allocates.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "diag/stats.h"

#define EBB_RECLAIM_NO_INLINE
#include <ebbtide/reclaim.h>

#include "debug/check.h"
#include "diag/load.h"
#include "diag/profiling.h"
#include "heap/blocks.h"
#include "os/options.h"
#include "os/os.h"
#include "process/process.h"
#include "report/report.h"

struct sink {
    char *out;
    size_t size;
    size_t length; // of the whole text, cut or not
};

EBBI_PRINTF(2, 3) static void put(struct sink *sink, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = sink->length < sink->size ? sink->size - sink->length : 0;
    int length = vsnprintf(room > 0 ? sink->out + sink->length : NULL, room, format, args);
    va_end(args);
    sink->length += length > 0 ? (size_t)length : 0;
}

static void put_line(struct sink *sink, const char *name, size_t bytes, size_t whole)
{
    double share = whole > 0 ? 100.0 * (double)bytes / (double)whole : 0;
    put(sink, "  %-34s %12.2f MiB %6.1f %%\n", name, (double)bytes / 1048576.0, share);
}

// Nothing in a process that never retires.
static void put_retired(struct sink *sink)
{
    struct ebb_reclaim_stats r;
    ebb_reclaim_stats_get(NULL, &r);
    if (r.retired_blocks + r.destructors + r.pinned == 0) {
        return;
    }
    put(sink, "  %zu retired blocks wait, %.2f MiB, and %zu destructors; %zu of %zu threads pinned",
        r.retired_blocks, (double)r.retired_bytes / 1048576.0, r.destructors, r.pinned,
        r.participants);
    if (r.oldest_pin_thread != 0) {
        put(sink, ", the oldest is thread %u for at least %llu ms", r.oldest_pin_thread,
            (unsigned long long)r.oldest_pin_ms);
    }
    put(sink, "\n");
}

size_t ebb_stats_text(char *out, size_t size)
{
    struct sink sink = {out, size, 0};
    struct ebb_stats s;
    ebb_stats_get(&s);
    char head[EBBI_HEAD_ROOM];
    (void)ebbi_message_head(head);
    put(&sink, "%swhere the resident memory is\n", head);
    put_line(&sink, "requested by the program", s.resident_live, s.resident);
    put_line(&sink, "rounding to block sizes (estimate)", s.resident_rounding, s.resident);
    put_line(&sink, "cached in magazines", s.resident_cached, s.resident);
    put_line(&sink, "free, pinned by blocks in use", s.resident_pinned, s.resident);
    put_line(&sink, "free, to be returned", s.resident_free, s.resident);
    put_line(&sink, "metadata", s.resident_metadata, s.resident);
    put_line(&sink, "not from this allocator", s.resident_other, s.resident);
    put_line(&sink, "resident in all (VmRSS)", s.resident, s.resident);
    put(&sink, "  %zu blocks in use, %zu bytes; %zu slabs in %zu heaps; returned so far %.2f MiB\n",
        s.live_blocks, s.live_bytes, s.slabs, s.heaps, (double)s.purged_bytes / 1048576.0);
    if (s.asked_huge_bytes > 0) {
        put(&sink, "  %.2f MiB asked for as huge pages\n", (double)s.asked_huge_bytes / 1048576.0);
    }
    put_retired(&sink);
    return sink.length;
}

#define EACH_FIELD(X)                                                                              \
    X(resident)                                                                                    \
    X(resident_live)                                                                               \
    X(resident_rounding)                                                                           \
    X(resident_cached)                                                                             \
    X(resident_pinned)                                                                             \
    X(resident_free)                                                                               \
    X(resident_metadata)                                                                           \
    X(resident_other)                                                                              \
    X(live_bytes)                                                                                  \
    X(live_blocks)                                                                                 \
    X(cached_bytes)                                                                                \
    X(slab_bytes)                                                                                  \
    X(large_bytes)                                                                                 \
    X(huge_bytes)                                                                                  \
    X(committed_bytes)                                                                             \
    X(reserved_bytes)                                                                              \
    X(purged_bytes)                                                                                \
    X(heaps)                                                                                       \
    X(slabs)                                                                                       \
    X(asked_huge_bytes)

size_t ebb_stats_json(char *out, size_t size)
{
    struct sink sink = {out, size, 0};
    struct ebb_stats s;
    ebb_stats_get(&s);
    put(&sink, "{\"schema\": 1");
#define FIELD(name) put(&sink, ", \"" #name "\": %zu", s.name);
    EACH_FIELD(FIELD)
#undef FIELD
    put(&sink, "}\n");
    return sink.length;
}

size_t ebbi_stats_xml(char *out, size_t size)
{
    struct sink sink = {out, size, 0};
    struct ebb_stats s;
    ebb_stats_get(&s);
    put(&sink, "<malloc version=\"1\" allocator=\"ebbtide\">\n");
#define FIELD(name) put(&sink, "<total type=\"" #name "\" size=\"%zu\"/>\n", s.name);
    EACH_FIELD(FIELD)
#undef FIELD
    put(&sink, "</malloc>\n");
    return sink.length;
}

void ebbi_stats_to_stderr(void)
{
    char text[2048];
    size_t length = ebb_stats_text(text, sizeof text);
    ebbi_os_write(2, text, ebbi_min(length, sizeof text - 1));
}

// The report takes locks that the interrupted thread may hold: it is left to a thread that waits, the
// handler only wakes it. No mask of the program's threads changes.
static uint32_t asked; // atomic: so often

static void on_signal_asked(void)
{
    (void)ebbi_fetch_add_relaxed(&asked, 1u); // relaxed: the futex orders it
    ebbi_os_wake(&asked, 1);
}

static void answer_signals(void)
{
    for (uint32_t answered = 0;;) {
        uint32_t now = ebbi_load_relaxed(&asked); // relaxed: as above
        if (now == answered) {
            ebbi_os_wait(&asked, now, 0);
        } else {
            answered = now;
            ebbi_stats_to_stderr();
        }
    }
}

static void start_signals(void)
{
    static const struct ebbi_os_thread thread = {answer_signals, "ebb-stats"};
    int number = (int)ebbi_option(EBBI_OPTION_STATS_SIGNAL);
    if (ebbi_os_watch_signal(number, on_signal_asked)) {
        ebbi_threads_more(); // it takes locks: a fork must not take the process for one of one thread
        (void)ebbi_thread_make(&thread);
    } else {
        ebbi_message("EBB_STATS=signal: the program handles signal %d itself, or nobody can; "
                     "EBB_STATS_SIGNAL names another",
                     number);
    }
}

static void at_exit(void *unused)
{
    (void)unused;
    ebbi_stats_to_stderr();
}

static void look_at_exit(void *unused)
{
    (void)unused;
    if (ebbi_threads_await()) {
        ebbi_look_alone();
        ebbi_threads_go_on();
    } else {
        ebbi_look();
    }
    ebbi_report_left_out();
}

static void reports_start(void)
{
    if (ebbi_check_is_on()) {
        ebbi_os_at_exit(look_at_exit);
    }
    size_t mode = ebbi_option(EBBI_OPTION_STATS);
    if (mode == EBBI_STATS_EXIT) {
        ebbi_os_at_exit(at_exit);
    } else if (mode == EBBI_STATS_SIGNAL) {
        start_signals();
    }
}

const char ebbi_loads = 1;

// Not left to the first malloc: a program whose first call is a free of something foreign is to be
// told so. Costs the reservation of the tag table.
__attribute__((constructor)) static void start_at_load(void)
{
    bool runs = ebbi_start() == 0;
    ebbi_options_report();
    reports_start();
    ebbi_profile_at_load();
    if (ebbi_option(EBBI_OPTION_METRICS_FILE) != 0 && runs) {
        ebbi_metrics_begin();
    }
}
