// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer profile: the profile as pprof reads it. Field numbers are those of its profile.proto; a message inside of
// another, and a text, has its length in front, so each is put together in a small buffer of its own first.
//
// A stack is several samples, whose values add up to its own: what is in use by thread, label and age, then what was
// freed by how long it was in use. These are pprof's labels of samples.
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/mix.h"
#include "os/os.h"
#include "os/text.h"
#include "profile/profile.h"
#include "region/label.h"

#define MAPPINGS 1024
#define VARINT_ROOM 10
#define ALMOST_NONE 1e-6 // objects: what is left of a difference of sums
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
    size_t texts; // that the table has so far
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

// Of so many bytes, which come next.
static void proto_begin(struct output *out, unsigned field, size_t length)
{
    struct bytes head = {0};
    proto_number(&head, field << 3 | BYTES);
    proto_number(&head, length);
    output_put(out, head.at, head.used);
}

static void proto_message(struct output *out, unsigned field, const struct bytes *message)
{
    proto_begin(out, field, message->used);
    output_put(out, message->at, message->used);
}

static void proto_nested(struct bytes *message, unsigned field, const struct bytes *part)
{
    proto_number(message, field << 3 | BYTES);
    proto_number(message, part->used);
    EBBI_ASSERT(message->used + part->used <= sizeof message->at);
    memcpy(message->at + message->used, part->at, part->used);
    message->used += part->used;
}

// Bytes of the character of UTF-8 that begins there; 0: none does.
static size_t character(const unsigned char *at, size_t left)
{
    size_t length = at[0] < 0x80   ? 1
                    : at[0] < 0xC2 ? 0
                    : at[0] < 0xE0 ? 2
                    : at[0] < 0xF0 ? 3
                    : at[0] < 0xF5 ? 4
                                   : 0;
    if (length > left) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool is_long = (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xF0 && at[1] < 0x90);
    bool is_none = (at[0] == 0xED && at[1] > 0x9F) || (at[0] == 0xF4 && at[1] > 0x8F);
    return is_long || is_none ? 0 : length;
}

// Its number. A name may be any bytes, also a cut one's; what is no UTF-8 is no text of a message.
static size_t proto_text(struct output *out, const char *text, size_t length)
{
    proto_begin(out, STRING_TABLE, length);
    for (size_t i = 0, part; i < length; i += ebbi_max(part, 1)) {
        part = character((const unsigned char *)text + i, length - i);
        output_put(out, part > 0 ? text + i : "?", ebbi_max(part, 1));
    }
    return out->texts++;
}

static void proto_plain(struct output *out, unsigned field, uint64_t value)
{
    struct bytes message = {0};
    proto_field(&message, field, value);
    output_put(out, message.at, message.used);
}

// ---- what is the same in each ------------------------------------------------------------------------

// The first texts of the table; those of samples and mappings follow.
static const char *const texts[] = {
    "",         "alloc_objects", "count",       "alloc_space",
    "bytes",    "inuse_objects", "inuse_space", "pinned_space",
    "space",    "thread",        "label",       "age",
    "lifetime", "<1ms",          "<10ms",       "<100ms",
    "<1s",      "<10s",          "<1min",       "<1h",
    ">=1h",
};
enum {
    T_EMPTY,
    T_ALLOC_OBJECTS,
    T_COUNT,
    T_ALLOC_SPACE,
    T_BYTES,
    T_INUSE_OBJECTS,
    T_INUSE_SPACE,
    T_PINNED_SPACE,
    T_SPACE,
    T_THREAD,
    T_LABEL,
    T_AGE,
    T_LIFETIME,
    T_TERMS,
    TEXTS = T_TERMS + EBBI_TERMS
};
_Static_assert(sizeof texts / sizeof texts[0] == TEXTS, "a name for each");

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
    for (size_t i = 0; i < TEXTS; i++) {
        (void)proto_text(out, texts[i], strlen(texts[i]));
    }
    proto_type(out, SAMPLE_TYPE, T_ALLOC_OBJECTS, T_COUNT);
    proto_type(out, SAMPLE_TYPE, T_ALLOC_SPACE, T_BYTES);
    proto_type(out, SAMPLE_TYPE, T_INUSE_OBJECTS, T_COUNT);
    proto_type(out, SAMPLE_TYPE, T_INUSE_SPACE, T_BYTES);
    proto_type(out, SAMPLE_TYPE, T_PINNED_SPACE, T_BYTES);
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
    size_t name = proto_text(out, mapping->name, strlen(mapping->name));
    size_t build = proto_text(out, id, 2 * mapping->id_bytes);
    struct bytes message = {0};
    proto_field(&message, 1, number + 1);
    proto_field(&message, 2, mapping->start);
    proto_field(&message, 3, mapping->start + mapping->bytes);
    proto_field(&message, 4, mapping->offset);
    proto_field(&message, 5, name);
    proto_field(&message, 6, build);
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

// A text of the table by what it names.
struct named {
    uint64_t key; // of a label its address, which is even, of a thread an odd number; 0: free
    size_t text;
};
struct names {
    struct named *at; // [places], a hash table; as many as of groups, of which half are free
    size_t places;
};

static size_t name_of_thread(struct output *out, uint32_t thread)
{
    char name[16], told[48];
    struct ebbi_text text = {told, told + sizeof told};
    size_t length = ebbi_os_thread_name(thread, name, sizeof name);
    ebbi_text_put(&text, length > 0 ? name : "");
    ebbi_text_put(&text, length > 0 ? " (" : "");
    ebbi_text_number(&text, thread, 10);
    ebbi_text_put(&text, length > 0 ? ")" : "");
    return proto_text(out, told, (size_t)(text.at - told));
}

static struct named *find_name(const struct names *names, uint64_t key)
{
    size_t place = ebbi_mix(0, key) % names->places;
    while (names->at[place].key != 0 && names->at[place].key != key) {
        place = (place + 1) % names->places;
    }
    return &names->at[place];
}

static size_t text_of_thread(struct output *out, const struct names *names, uint32_t thread)
{
    uint64_t key = 2 * (uint64_t)thread + 1;
    struct named *name = find_name(names, key);
    if (name->key == 0) {
        *name = (struct named){key, name_of_thread(out, thread)};
    }
    return name->text;
}

static size_t text_of_label(struct output *out, const struct names *names,
                            const struct ebbi_label *label)
{
    struct named *name = find_name(names, (uintptr_t)label);
    if (name->key == 0) {
        *name = (struct named){(uintptr_t)label, proto_text(out, label->name, strlen(label->name))};
    }
    return name->text;
}

static void proto_label(struct bytes *message, uint64_t key, uint64_t text)
{
    struct bytes label = {0};
    proto_field(&label, 1, key);
    proto_field(&label, 2, text);
    proto_nested(message, 3, &label);
}

// A stack, and what its samples have told of it so far: each tells what the rounded sum has grown by, so that the
// values add up to the sum rounded once.
struct proto_stack {
    const uintptr_t *calls;
    size_t depth;
    struct ebbi_profile_sum made, live;
    double keeps;
};

// Of a stack, what one sample tells; `live`: it is in use.
struct proto_part {
    struct ebbi_profile_sum sum;
    bool live;
    double keeps;
};

static struct bytes proto_values(struct proto_stack *stack, struct proto_part more)
{
    struct bytes message = {0};
    struct proto_stack before = *stack;
    stack->made.objects += more.sum.objects;
    stack->made.bytes += more.sum.bytes;
    stack->live.objects += more.live ? more.sum.objects : 0;
    stack->live.bytes += more.live ? more.sum.bytes : 0;
    stack->keeps += more.keeps;
    for (size_t i = 0; i < stack->depth; i++) {
        proto_field(&message, 1, stack->calls[i]);
    }
    proto_field(&message, 2, rounded(stack->made.objects) - rounded(before.made.objects));
    proto_field(&message, 2, rounded(stack->made.bytes) - rounded(before.made.bytes));
    proto_field(&message, 2, rounded(stack->live.objects) - rounded(before.live.objects));
    proto_field(&message, 2, rounded(stack->live.bytes) - rounded(before.live.bytes));
    proto_field(&message, 2, rounded(stack->keeps) - rounded(before.keeps));
    return message;
}

static struct ebbi_profile_sum in_use(const struct ebbi_profile_sums *sums)
{
    struct ebbi_profile_sum left = sums->made;
    for (unsigned i = 0; i < EBBI_TERMS; i++) {
        left.objects -= sums->freed.in[i].objects;
        left.bytes -= sums->freed.in[i].bytes;
    }
    return left;
}

// No more than there is.
static struct ebbi_profile_sum take_part(struct ebbi_profile_sum *left,
                                         const struct ebbi_profile_sum *wanted)
{
    struct ebbi_profile_sum part = *left;
    part.objects = wanted->objects < part.objects ? wanted->objects : part.objects;
    part.bytes = wanted->bytes < part.bytes ? wanted->bytes : part.bytes;
    left->objects -= part.objects;
    left->bytes -= part.bytes;
    return part;
}

// What is in use is what the sums say. Groups, which were met before, tell of whom that is, as far as it goes; the
// rest is nobody's.
static void proto_live(struct output *out, const struct ebbi_live_groups *groups,
                       const struct names *names, size_t entry, struct proto_stack *stack,
                       struct ebbi_profile_sum left)
{
    const struct ebbi_live_group *group;
    uint32_t place = entry < groups->entries ? groups->first[entry] : 0;
    for (; place != 0 && left.objects > 0; place = group->next) {
        group = &groups->at[place - 1];
        struct ebbi_profile_sum part = take_part(&left, &group->sum);
        size_t thread = text_of_thread(out, names, group->thread);
        size_t label = group->label != NULL ? text_of_label(out, names, group->label) : 0;
        struct bytes message = proto_values(stack, (struct proto_part){part, true, group->keeps});
        proto_label(&message, T_THREAD, thread);
        if (label != 0) {
            proto_label(&message, T_LABEL, label);
        }
        proto_label(&message, T_AGE, T_TERMS + group->age);
        proto_message(out, SAMPLE, &message);
    }
    if (left.objects > ALMOST_NONE) {
        struct bytes message = proto_values(stack, (struct proto_part){left, true, 0});
        proto_message(out, SAMPLE, &message);
    }
}

static void proto_freed(struct output *out, const struct ebbi_profile_sums *sums,
                        struct proto_stack *stack)
{
    for (unsigned i = 0; i < EBBI_TERMS; i++) {
        if (sums->freed.in[i].objects > 0) {
            struct bytes message =
                proto_values(stack, (struct proto_part){sums->freed.in[i], false, 0});
            proto_label(&message, T_LIFETIME, T_TERMS + i);
            proto_message(out, SAMPLE, &message);
        }
    }
}

// Samples first: what they lead to is there afterwards, whatever other threads add meanwhile.
static int proto_samples(struct output *out)
{
    struct ebbi_live_groups groups;
    struct ebbi_profile_sums sums;
    struct proto_stack stack = {0};
    if (!ebbi_live_groups_take(&groups)) {
        return -ENOMEM;
    }
    size_t bytes = ebbi_align_up(groups.places * sizeof(struct named), ebbi_os_page_size());
    struct names names = {.at = ebbi_os_map(NULL, bytes), .places = groups.places};
    for (size_t i = 0; names.at != NULL && ebbi_profile_entry(i, &sums, &stack.calls, &stack.depth);
         i++) {
        stack.made = stack.live = (struct ebbi_profile_sum){0};
        stack.keeps = 0;
        proto_live(out, &groups, &names, i, &stack, in_use(&sums));
        proto_freed(out, &sums, &stack);
    }
    ebbi_live_groups_end(&groups);
    if (names.at != NULL) {
        ebbi_os_release(names.at, bytes);
    }
    return names.at != NULL ? 0 : -ENOMEM;
}

int ebbi_profile_write(int fd)
{
    size_t count, places = 64;
    struct output out = {.fd = fd};
    proto_head(&out);
    int error = proto_samples(&out);
    const uintptr_t *calls = ebbi_profile_calls(&count);
    while (places < 2 * count) {
        places *= 2;
    }
    size_t code_bytes = ebbi_align_up(sizeof(struct code), ebbi_os_page_size());
    size_t bytes = ebbi_align_up(code_bytes + places * sizeof *calls, ebbi_os_page_size());
    struct code *code = error == 0 ? ebbi_os_map(NULL, bytes) : NULL;
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
