// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: libc's questions about its heap, answered with real values. haproxy, OpenJDK,
// mariadbd, gcc and LLVM import some of them.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>

#include "diag/stats.h"
#include "ebbtide/detail/atomic.h"
#include "front/front.h"
#include "os/options.h"

#define EXPORT __attribute__((visibility("default")))

#ifndef __GLIBC__ // whose headers alone have them
int malloc_trim(size_t pad);
#define M_TRIM_THRESHOLD (-1)
int mallopt(int parameter, int value);
void malloc_stats(void);
int malloc_info(int flags, FILE *stream);
#endif

// `pad` bytes are glibc's for the top of its heap, which has no counterpart here. 1 when something
// was returned.
EXPORT int malloc_trim(size_t pad)
{
    (void)pad;
    return ebbi_trim(ebbi_heap_get(), ebbi_threads_any()) > 0;
}

#ifdef __GLIBC__
static size_t free_bytes(const struct ebb_stats *s)
{
    return s->cached_bytes + s->resident_pinned + s->resident_free;
}

EXPORT struct mallinfo2 mallinfo2(void)
{
    struct ebb_stats s;
    ebb_stats_get(&s);
    return (struct mallinfo2){
        .arena = s.live_bytes - s.huge_bytes + free_bytes(&s),
        .ordblks = s.slabs,
        .hblks = s.huge_bytes > 0,
        .hblkhd = s.huge_bytes,
        .uordblks = s.live_bytes - s.huge_bytes,
        .fordblks = free_bytes(&s),
        .keepcost = s.resident_free,
    };
}

static int clamp(size_t value) { return value > INT_MAX ? INT_MAX : (int)value; }

EXPORT struct mallinfo mallinfo(void)
{
    struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){
        .arena = clamp(wide.arena),
        .ordblks = clamp(wide.ordblks),
        .hblks = clamp(wide.hblks),
        .hblkhd = clamp(wide.hblkhd),
        .uordblks = clamp(wide.uordblks),
        .fordblks = clamp(wide.fordblks),
        .keepcost = clamp(wide.keepcost),
    };
}
#endif

// What is freed stays with the process for as long as EBB_PURGE_DELAY_MS can say, or as long as before.
static void keep_freed(bool keeps)
{
    static size_t usual_ms = SIZE_MAX; // atomic; SIZE_MAX: it is that now
    size_t longest_ms = ebbi_option_table.options[EBBI_OPTION_PURGE_DELAY].most;
    size_t now_ms = ebbi_option(EBBI_OPTION_PURGE_DELAY);
    size_t before_ms = ebbi_load_relaxed(&usual_ms); // relaxed: a number
    if (keeps && now_ms != longest_ms) {
        ebbi_store_relaxed(&usual_ms, now_ms); // relaxed: as above
        (void)ebbi_option_change(EBBI_OPTION_PURGE_DELAY, longest_ms);
    } else if (!keeps && now_ms == longest_ms && before_ms != SIZE_MAX) {
        (void)ebbi_option_change(EBBI_OPTION_PURGE_DELAY, before_ms);
    }
}

// 1: accepted. Of glibc's parameters one has a counterpart here: where nothing may be trimmed, as real-time programs ask
// for, nothing goes home.
EXPORT int mallopt(int parameter, int value)
{
    if (parameter == M_TRIM_THRESHOLD && ebbi_start() == 0) {
        keep_freed(value < 0);
    }
    return 1;
}

EXPORT void malloc_stats(void) { ebbi_stats_to_stderr(); }

EXPORT int malloc_info(int flags, FILE *stream)
{
    char text[4096];
    if (flags != 0) {
        return EINVAL;
    }
    (void)ebbi_stats_xml(text, sizeof text);
    return fputs(text, stream) < 0 ? -1 : 0;
}
