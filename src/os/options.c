// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "os/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ebbtide/detail/atomic.h"
#include "os/os.h"
#include "os/text.h"

#define OPTION(id, name, kind, fallback, least, most, meaning) {name, EBBI_##kind, least, most},
static const struct ebbi_option options[EBBI_OPTION_COUNT] = {
#include "os/options.def"
};
#undef OPTION

#define OPTION(id, name, kind, fallback, least, most, meaning) fallback,
static size_t values[EBBI_OPTION_COUNT] = {
#include "os/options.def"
};
#undef OPTION

static uint8_t sources[EBBI_OPTION_COUNT]; // enum ebbi_option_source
static EBBI_SPARSE char profile_path[EBBI_PATH_ROOM], metrics_path[EBBI_PATH_ROOM],
    report_path[EBBI_PATH_ROOM];
static char *const paths[EBBI_OPTION_COUNT] = {
    [EBBI_OPTION_PROFILE] = profile_path,
    [EBBI_OPTION_METRICS_FILE] = metrics_path,
    [EBBI_OPTION_CHECK_REPORT] = report_path,
};
static const char *files[EBBI_OPTION_COUNT] = {
    // what was named lies in `paths`
    [EBBI_OPTION_PROFILE] = "heap.%p.pb",
    [EBBI_OPTION_METRICS_FILE] = metrics_path,
    [EBBI_OPTION_CHECK_REPORT] = report_path,
};

// Asked for again whenever it is needed, or by whoever changes it told to those that have taken it in (process/asked.c).
static const bool changes[EBBI_OPTION_COUNT] = {
    [EBBI_OPTION_PURGE_DELAY] = true,
    [EBBI_OPTION_GUARD] = true,
};

static const char *const words[EBBI_OPTION_COUNT][EBBI_MOST_WORDS] = {
    [EBBI_OPTION_THP] = {"system", "never", "always", "auto"},
    [EBBI_OPTION_STATS] = {"off", "exit", "signal"},
    [EBBI_OPTION_CHECK] = {"off|0", "on|1", "log", "sample"},
};

// What is one of the words between bars.
static bool is_word(const char *text, const char *const among)
{
    size_t length = strlen(text);
    for (const char *word = among; word != NULL; word = strchr(word, '|')) {
        word += *word == '|';
        if (length > 0 && strncmp(word, text, length) == 0 &&
            (word[length] == '\0' || word[length] == '|')) {
            return strchr(text, '|') == NULL;
        }
    }
    return false;
}

static bool parse_word(size_t id, const char *text, size_t *value)
{
    for (size_t i = 0; words[id][i] != NULL; i++) {
        EBBI_ASSERT(i < sizeof words[id] / sizeof words[id][0] - 1); // the last one ends the list
        if (is_word(text, words[id][i])) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool is_file_name(const char *text)
{
    return text[0] != '\0' && strlen(text) < EBBI_PATH_ROOM;
}

// Decimal, with a suffix where the kind has one; false for anything else, overflow included.
static bool parse_number(enum ebbi_option_kind kind, const char *text, size_t *value)
{
    size_t number = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (__builtin_mul_overflow(number, (size_t)10, &number) ||
            __builtin_add_overflow(number, (size_t)(*c - '0'), &number)) {
            return false;
        }
    }
    if (c == text) {
        return false;
    }
    bool sized = kind == EBBI_SIZE || kind == EBBI_SIZE_FILE;
    if (sized && *c != '\0' && *c != ',') {
        unsigned shift = (*c | 0x20) == 'k'   ? 10
                         : (*c | 0x20) == 'm' ? 20
                         : (*c | 0x20) == 'g' ? 30
                                              : 0;
        if (shift == 0 || number > SIZE_MAX >> shift) {
            return false;
        }
        number <<= shift;
        c++;
    }
    *value = number;
    return *c == '\0' || (kind == EBBI_SIZE_FILE && *c == ',' && is_file_name(c + 1));
}

static bool parse(size_t id, const char *text, size_t *value)
{
    const struct ebbi_option *option = &options[id];
    EBBI_ASSERT(id < EBBI_OPTION_COUNT);
    if (option->kind == EBBI_PATH) {
        *value = 1;
        return is_file_name(text);
    }
    bool known = option->kind == EBBI_CHOICE
                     ? parse_word(id, text, value)
                     : parse_number((enum ebbi_option_kind)option->kind, text, value);
    return known && *value >= option->least && *value <= option->most;
}

// The option that an entry "NAME=value" of the environment names, or EBBI_OPTION_COUNT.
static size_t find_option(const char *entry, const char **text)
{
    const char *equals = strchr(entry, '=');
    for (size_t id = 0; equals != NULL && id < EBBI_OPTION_COUNT; id++) {
        size_t length = strlen(options[id].name);
        if ((size_t)(equals - entry) == length && memcmp(entry, options[id].name, length) == 0) {
            *text = equals + 1;
            return id;
        }
    }
    return EBBI_OPTION_COUNT;
}

// Of several entries of one name the first counts, as for getenv.
static bool is_first(bool *seen, size_t id)
{
    bool first = !seen[id];
    seen[id] = true;
    return first;
}

// Of glibc's loader: the number of arguments as the kernel left it on the stack, they and the environment behind it.
extern char **__libc_stack_end __attribute__((weak));

// Before libc's own constructors have run (.preinit_array, an auditor of the loader) environ is not there yet.
static char **environment(void)
{
    if (ebbi_os_is_secure()) {
        return NULL;
    }
    if (environ != NULL || &__libc_stack_end == NULL) {
        return environ;
    }
    char **arguments = __libc_stack_end + 1;
    char **end = arguments + (uintptr_t)__libc_stack_end[0];
    return *end == NULL ? end + 1 : NULL;
}

static void keep_file(size_t id, const char *text)
{
    const char *comma = options[id].kind == EBBI_SIZE_FILE ? strchr(text, ',') : NULL;
    const char *name = comma != NULL ? comma + 1 : text;
    if (comma != NULL || options[id].kind == EBBI_PATH) {
        (void)snprintf(paths[id], EBBI_PATH_ROOM, "%s", name);
        files[id] = paths[id];
    }
}

void ebbi_options_read(void)
{
    bool seen[EBBI_OPTION_COUNT] = {false};
    for (char **entry = environment(); entry && *entry; entry++) {
        const char *text;
        size_t id =
            strncmp(*entry, "EBB_", 4) == 0 ? find_option(*entry, &text) : EBBI_OPTION_COUNT;
        size_t value;
        if (id < EBBI_OPTION_COUNT && is_first(seen, id) && parse(id, text, &value)) {
            values[id] = value;
            sources[id] = EBBI_BY_ENVIRONMENT;
            keep_file(id, text);
        }
    }
}

// How much of the text fits a message of one line: up to a control character, or one of `stops`.
static int printable(const char *text, const char *stops)
{
    int length = 0;
    while (length < 64 && (unsigned char)text[length] >= ' ' &&
           strchr(stops, text[length]) == NULL) {
        length++;
    }
    return length;
}

static void list_words(size_t id, char *out, size_t room)
{
    size_t length = 0;
    for (size_t i = 0; words[id][i] != NULL; i++) {
        length +=
            (size_t)snprintf(out + length, room - length, "%s%s", i > 0 ? ", " : "", words[id][i]);
        EBBI_ASSERT(length < room);
    }
}

static void report_value(size_t id, const char *text)
{
    const struct ebbi_option *o = &options[id];
    int length = printable(text, "");
    if (o->kind == EBBI_CHOICE) {
        char list[64];
        list_words(id, list, sizeof list);
        ebbi_message("%s=%.*s is not one of %s: ignored", o->name, length, text, list);
    } else if (o->kind == EBBI_PATH) {
        ebbi_message("%s=%.*s is not a file's name: ignored", o->name, length, text);
    } else {
        ebbi_message("%s=%.*s is not a number from %zu to %zu%s: ignored", o->name, length, text,
                     o->least, o->most,
                     o->kind == EBBI_SIZE_FILE ? ", perhaps with a comma and a file's name" : "");
    }
}

void ebbi_options_report(void)
{
    bool seen[EBBI_OPTION_COUNT] = {false};
    for (char **entry = environment(); entry && *entry; entry++) {
        if (strncmp(*entry, "EBB_", 4) != 0) {
            continue;
        }
        const char *text;
        size_t value;
        size_t id = find_option(*entry, &text);
        if (id == EBBI_OPTION_COUNT) {
            ebbi_message("unknown option %.*s: ignored", printable(*entry, "="), *entry);
        } else if (is_first(seen, id) && !parse(id, text, &value)) {
            report_value(id, text);
        }
    }
}

size_t ebbi_option(enum ebbi_option_id id)
{
    EBBI_ASSERT(id < EBBI_OPTION_COUNT);
    size_t value = ebbi_load_relaxed(&values[id]); // relaxed: a number
    EBBI_ASSERT(value >= options[id].least && value <= options[id].most);
    return value;
}

bool ebbi_keeps_freed(void)
{
    return ebbi_option(EBBI_OPTION_PURGE_DELAY) == options[EBBI_OPTION_PURGE_DELAY].most;
}

bool ebbi_option_file(enum ebbi_option_id id, char *out, size_t room)
{
    const char *c = files[id];
    struct ebbi_text text = {out, out + room};
    while (*c != '\0') {
        if (c[0] == '%' && c[1] == 'p') {
            ebbi_text_number(&text, ebbi_os_process_number(), 10);
            c += 2;
        } else {
            ebbi_text_char(&text, *c++);
        }
    }
    bool fits = text.at < text.end;
    ebbi_text_char(&text, '\0');
    out[room - 1] = '\0';
    return fits;
}

const char *ebbi_option_name(enum ebbi_option_id id)
{
    EBBI_ASSERT(id < EBBI_OPTION_COUNT);
    return options[id].name;
}

enum ebbi_option_source ebbi_option_source(enum ebbi_option_id id)
{
    EBBI_ASSERT(id < EBBI_OPTION_COUNT);
    return (enum ebbi_option_source)ebbi_load_relaxed(&sources[id]); // relaxed: for the user to see
}

int ebbi_option_change(uint64_t id, uint64_t value)
{
    if (id >= EBBI_OPTION_COUNT || !changes[id] || value < options[id].least ||
        value > options[id].most) {
        return -EINVAL;
    }
    ebbi_store_relaxed(&values[id], (size_t)value);             // relaxed: a number
    ebbi_store_relaxed(&sources[id], (uint8_t)EBBI_BY_REQUEST); // relaxed: for the user to see
    return 0;
}

const struct ebbi_option_table ebbi_option_table = {
    .count = EBBI_OPTION_COUNT,
    .options = options,
    .words = words,
    .files = files,
    .changes = changes,
    .values = values,
    .sources = sources,
};
