// SPDX-License-Identifier: MIT OR Apache-2.0
// What a recording holds, as JSON.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/tool/tool.h"

enum { POWERS = 48, POINTS = 256 };

struct tally {
    uint64_t made[3]; // by trace_kind
    uint64_t ended, resized, handed_over, inherited, marks;
    uint64_t made_bytes, peak_bytes, peak_objects;
    uint64_t sizes[POWERS];     // objects made, by the power of two that they fit into
    uint64_t lifetimes[POWERS]; // objects that ended, by how many events they lived
    uint64_t first_us, last_us;
    uint64_t live[POINTS], times[POINTS], points, next_point;
};

static unsigned power_of(uint64_t value)
{
    unsigned power = value <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(value - 1);
    return power < POWERS ? power : POWERS - 1;
}

static void count_made(struct tally *tally, const struct step *step)
{
    tally->made_bytes += step->event.size;
    tally->sizes[power_of(step->event.size)]++;
}

static void count_end(struct tally *tally, const struct step *step, uint64_t events,
                      uint32_t first_thread)
{
    tally->lifetimes[power_of(events - step->object.born)]++;
    tally->handed_over += step->event.thread != step->owner;
    tally->inherited += step->event.thread < first_thread;
}

static void count(struct tally *tally, const struct step *step, uint64_t events,
                  uint32_t first_thread)
{
    switch (step->event.kind) {
    case MADE:
        tally->made[step->event.how == TRACE_ALIGNED ? 2 : step->event.how]++;
        count_made(tally, step);
        break;
    case ENDED:
        tally->ended++;
        count_end(tally, step, events, first_thread);
        break;
    case RESIZED:
        tally->resized++;
        count_made(tally, step);
        count_end(tally, step, events, first_thread);
        break;
    case MARKED:
        tally->first_us = tally->marks++ == 0 ? step->event.time_us : tally->first_us;
        tally->last_us =
            step->event.time_us > tally->last_us ? step->event.time_us : tally->last_us;
        break;
    case TOUCHED:
    case LOST:
        break;
    }
}

static void sample(struct tally *tally, const struct walk *walk)
{
    uint64_t step = walk->total_events / POINTS + 1;
    if (walk->events >= tally->next_point && tally->points < POINTS) {
        tally->times[tally->points] = tally->last_us - tally->first_us;
        tally->live[tally->points++] = walk->live_bytes;
        tally->next_point = walk->events + step;
    }
}

static void print_list(const char *name, const uint64_t *values, size_t count)
{
    printf("\"%s\": [", name);
    for (size_t i = 0; i < count; i++) {
        printf("%s%llu", i == 0 ? "" : ", ", (unsigned long long)values[i]);
    }
    printf("], ");
}

static void print_number(const char *name, uint64_t value)
{
    printf("\"%s\": %llu, ", name, (unsigned long long)value);
}

static void print_string(const char *text, int length)
{
    putchar('"');
    for (int i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c < 0x20 || c >= 0x7f) {
            printf("\\u%04x", c);
        } else {
            putchar(c);
        }
    }
    putchar('"');
}

static void print_text(const struct recording *recording)
{
    static const char *const NAMES[] = {"program", "command", "pid", "parent", "libc"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        int length;
        const char *value = recording_value(recording, NAMES[i], &length);
        printf("\"%s\": ", NAMES[i]);
        print_string(value, length);
        printf(", ");
    }
}

static void print_tally(const struct tally *tally)
{
    print_number("mallocs", tally->made[TRACE_MALLOC]);
    print_number("callocs", tally->made[TRACE_CALLOC]);
    print_number("aligned", tally->made[2]);
    print_number("frees", tally->ended);
    print_number("reallocs", tally->resized);
    print_number("handed_over", tally->handed_over);
    print_number("inherited", tally->inherited); // of those that were handed over
    print_number("turns", tally->marks);
    print_number("bytes_made", tally->made_bytes);
    print_number("peak_bytes", tally->peak_bytes);
    print_number("peak_objects", tally->peak_objects);
    print_number("microseconds", tally->last_us - tally->first_us);
    print_list("sizes", tally->sizes, POWERS);
    print_list("lifetimes", tally->lifetimes, POWERS);
    print_list("live_bytes", tally->live, tally->points);
    print_list("live_at_us", tally->times, tally->points);
}

static void count_inherited(struct object *object, void *context)
{
    (void)object;
    ++*(uint64_t *)context;
}

static void tally_all(struct tally *tally, struct walk *walk)
{
    struct step step;
    uint64_t objects = 0;
    walk_inherited(walk, count_inherited, &objects);
    tally->peak_objects = objects;
    while (walk_next(walk, &step)) {
        count(tally, &step, walk->events, walk->recording->first_thread);
        sample(tally, walk);
        objects += step.event.kind == MADE;
        objects -= step.event.kind == ENDED;
        tally->peak_objects = objects > tally->peak_objects && objects < UINT64_MAX / 2
                                  ? objects
                                  : tally->peak_objects;
        tally->peak_bytes =
            walk->live_bytes > tally->peak_bytes ? walk->live_bytes : tally->peak_bytes;
    }
}

void info(const char *path)
{
    struct recording recording;
    struct walk walk;
    struct tally tally = {0};
    recording_open(&recording, path);
    walk_open(&walk, &recording);
    tally_all(&tally, &walk);
    printf("{\"schema\": 1, ");
    print_text(&recording);
    print_tally(&tally);
    print_number("file_bytes", recording.bytes);
    print_number("events", walk.events);
    print_number("threads", recording.stream_count);
    print_number("lost", walk.lost);
    print_number("end_bytes", walk.live_bytes);
    printf("\"finished\": %s}\n", recording.is_finished ? "true" : "false");
    walk_close(&walk);
    recording_close(&recording);
}
