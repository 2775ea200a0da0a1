// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer profile: the profile as pprof reads it. Field numbers are those of its profile.proto; a message inside of
// another, and a text, has its length in front, so each is put together in a small buffer of its own first.
#include <errno.h>
#include <string.h>
#include <time.h>

#include "os/os.h"
#include "profile/profile.h"

#define MAPPINGS 1024
#define VARINT_ROOM 10
#define MESSAGE_ROOM ((EBBI_PROFILE_DEPTH + 16) * (VARINT_ROOM + 1))

enum { // fields of Profile
    SAMPLE_TYPE = 1,
    SAMPLE,
    MAPPING,
    LOCATION,
    STRING_TABLE = 6,
    TIME_NANOS = 9,
    PERIOD_TYPE = 11,
    PERIOD,
    DEFAULT_SAMPLE_TYPE = 14,
};
enum { VARINT = 0, BYTES = 2 }; // kinds of fields

struct output {
    int fd;
    int error;
    size_t used;
    unsigned char buffer[4096];
};

struct bytes {
    size_t used;
    unsigned char at[MESSAGE_ROOM];
};

static void output_flush(struct output *out)
{
    if (out->error == 0 && out->used > 0) {
        out->error = ebbi_os_write(out->fd, (const char *)out->buffer, out->used);
    }
    out->used = 0;
}

static void output_put(struct output *out, const void *data, size_t length)
{
    const unsigned char *from = data;
    while (length > 0) {
        size_t part = ebbi_min(length, sizeof out->buffer - out->used);
        memcpy(out->buffer + out->used, from, part);
        out->used += part;
        from += part;
        length -= part;
        if (out->used == sizeof out->buffer) {
            output_flush(out);
        }
    }
}

static void proto_number(struct bytes *message, uint64_t value)
{
    EBBI_ASSERT(message->used + VARINT_ROOM <= sizeof message->at);
    for (; value >= 0x80; value >>= 7) {
        message->at[message->used++] = (unsigned char)(value | 0x80);
    }
    message->at[message->used++] = (unsigned char)value;
}

static void proto_field(struct bytes *message, unsigned field, uint64_t value)
{
    proto_number(message, field << 3 | VARINT);
    proto_number(message, value);
}

static void proto_bytes(struct output *out, unsigned field, const void *data, size_t length)
{
    struct bytes head = {0};
    proto_number(&head, field << 3 | BYTES);
    proto_number(&head, length);
    output_put(out, head.at, head.used);
    output_put(out, data, length);
}

static void proto_message(struct output *out, unsigned field, const struct bytes *message)
{
    proto_bytes(out, field, message->at, message->used);
}

static void proto_plain(struct output *out, unsigned field, uint64_t value)
{
    struct bytes message = {0};
    proto_field(&message, field, value);
    output_put(out, message.at, message.used);
}

// ---- what is the same in each ------------------------------------------------------------------------

// The first texts of the table; those of mappings follow.
static const char *const texts[] = {
    "", "alloc_objects", "count", "alloc_space", "bytes", "inuse_objects", "inuse_space", "space",
};
enum {
    T_EMPTY,
    T_ALLOC_OBJECTS,
    T_COUNT,
    T_ALLOC_SPACE,
    T_BYTES,
    T_INUSE_OBJECTS,
    T_INUSE_SPACE,
    T_SPACE,
    T_MAPPINGS
};
_Static_assert(sizeof texts / sizeof texts[0] == T_MAPPINGS, "a name for each");

static void proto_type(struct output *out, unsigned field, uint64_t type, uint64_t unit)
{
    struct bytes message = {0};
    proto_field(&message, 1, type);
    proto_field(&message, 2, unit);
    proto_message(out, field, &message);
}

static void proto_head(struct output *out)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < T_MAPPINGS; i++) {
        proto_bytes(out, STRING_TABLE, texts[i], strlen(texts[i]));
    }
    proto_type(out, SAMPLE_TYPE, T_ALLOC_OBJECTS, T_COUNT);
    proto_type(out, SAMPLE_TYPE, T_ALLOC_SPACE, T_BYTES);
    proto_type(out, SAMPLE_TYPE, T_INUSE_OBJECTS, T_COUNT);
    proto_type(out, SAMPLE_TYPE, T_INUSE_SPACE, T_BYTES);
    proto_plain(out, DEFAULT_SAMPLE_TYPE, T_INUSE_SPACE);
    proto_type(out, PERIOD_TYPE, T_SPACE, T_BYTES);
    proto_plain(out, PERIOD, ebbi_load_relaxed(&ebbi_profile.mean)); // relaxed: any of them
    proto_plain(out, TIME_NANOS, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
}

// ---- mappings and locations ------------------------------------------------------------------------------

struct code {
    struct ebbi_os_mapping mappings[MAPPINGS];
    size_t count;
};

static void proto_mapping(struct output *out, const struct ebbi_os_mapping *mapping, size_t number)
{
    char id[2 * sizeof mapping->id];
    for (size_t i = 0; i < mapping->id_bytes; i++) {
        id[2 * i] = "0123456789abcdef"[mapping->id[i] >> 4];
        id[2 * i + 1] = "0123456789abcdef"[mapping->id[i] & 15];
    }
    proto_bytes(out, STRING_TABLE, mapping->name, strlen(mapping->name));
    proto_bytes(out, STRING_TABLE, id, 2 * mapping->id_bytes);
    struct bytes message = {0};
    proto_field(&message, 1, number + 1);
    proto_field(&message, 2, mapping->start);
    proto_field(&message, 3, mapping->start + mapping->bytes);
    proto_field(&message, 4, mapping->offset);
    proto_field(&message, 5, T_MAPPINGS + 2 * number);
    proto_field(&message, 6, T_MAPPINGS + 2 * number + 1);
    proto_message(out, MAPPING, &message);
}

// A location is its address: that is also its number.
static void proto_location(struct output *out, const struct code *code, uintptr_t address)
{
    struct bytes message = {0};
    proto_field(&message, 1, address);
    for (size_t i = 0; i < code->count; i++) {
        if (address - code->mappings[i].start < code->mappings[i].bytes) {
            proto_field(&message, 2, i + 1);
            break;
        }
    }
    proto_field(&message, 3, address);
    proto_message(out, LOCATION, &message);
}

// Each once. `seen`: an empty set, of `places`, a power of two and twice as many as there are calls.
static void proto_locations(struct output *out, const struct code *code, const uintptr_t *calls,
                            size_t count, uintptr_t *seen, size_t places)
{
    for (size_t i = 0; i < count; i++) {
        size_t place = (calls[i] * 0x9E3779B97F4A7C15u >> 20) % places;
        while (seen[place] != 0 && seen[place] != calls[i]) {
            place = (place + 1) % places;
        }
        if (seen[place] == 0 && calls[i] != 0) {
            seen[place] = calls[i];
            proto_location(out, code, calls[i]);
        }
    }
}

// ---- samples -----------------------------------------------------------------------------------------

static uint64_t rounded(double sum) { return sum > 0 ? (uint64_t)(sum + 0.5) : 0; }

static void proto_sample(struct output *out, const struct ebbi_profile_sums *sums,
                         const uintptr_t *calls, size_t depth)
{
    struct bytes message = {0};
    for (size_t i = 0; i < depth; i++) {
        proto_field(&message, 1, calls[i]);
    }
    proto_field(&message, 2, rounded(sums->objects));
    proto_field(&message, 2, rounded(sums->bytes));
    proto_field(&message, 2, rounded(sums->objects - sums->freed_objects));
    proto_field(&message, 2, rounded(sums->bytes - sums->freed_bytes));
    proto_message(out, SAMPLE, &message);
}

int ebbi_profile_write(int fd)
{
    size_t count, places = 64;
    struct output out = {.fd = fd};
    // Samples first: what they lead to is there afterwards, whatever other threads add meanwhile.
    struct ebbi_profile_sums sums;
    const uintptr_t *calls;
    size_t depth;
    proto_head(&out);
    for (size_t i = 0; ebbi_profile_entry(i, &sums, &calls, &depth); i++) {
        if (sums.objects > 0) {
            proto_sample(&out, &sums, calls, depth);
        }
    }
    calls = ebbi_profile_calls(&count);
    while (places < 2 * count) {
        places *= 2;
    }
    size_t code_bytes = ebbi_align_up(sizeof(struct code), ebbi_os_page_size());
    size_t bytes = ebbi_align_up(code_bytes + places * sizeof *calls, ebbi_os_page_size());
    struct code *code = ebbi_os_map(NULL, bytes);
    if (code == NULL) {
        return -ENOMEM;
    }
    code->count = ebbi_os_mappings(code->mappings, MAPPINGS);
    for (size_t i = 0; i < code->count; i++) {
        proto_mapping(&out, &code->mappings[i], i);
    }
    proto_locations(&out, code, calls, count, (uintptr_t *)(void *)((char *)code + code_bytes),
                    places);
    output_flush(&out);
    ebbi_os_release(code, bytes);
    return out.error;
}
