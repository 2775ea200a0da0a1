// SPDX-License-Identifier: MIT OR Apache-2.0
// malloc_stats_print. Its JSON is the table of names as a tree, and Ebbtide's own object beside it.
#include <inttypes.h>
#include <jemalloc/jemalloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "both.h"
#include "names.h"

typedef void writer(void *context, const char *text);

static void to_stderr(void *context, const char *text)
{
    (void)context;
    for (size_t left = strlen(text); left > 0;) {
        ssize_t written = write(STDERR_FILENO, text, left);
        if (written <= 0) {
            return;
        }
        text += written;
        left -= (size_t)written;
    }
}

// What `fill` writes. Where there is no memory for that, as much as fits, or what stands in for it.
static void print_filled(writer *out, void *context, size_t (*fill)(char *, size_t),
                         const char *without)
{
    char few[2048];
    size_t size = fill(NULL, 0) + 256; // what it says grows a little meanwhile
    char *text = ebb_malloc(size);
    bool is_whole = text != NULL && fill(text, size) < size;
    bool fits = !is_whole && fill(few, sizeof few) < sizeof few;
    out(context, is_whole ? text : fits || without == NULL ? few : without);
    ebb_free(text);
}

static void print_value(writer *out, void *context, const struct ebbi_compat_name *name)
{
    union ebbi_compat_value value;
    char text[64];
    (void)name->read(0, &value);
    switch (name->type) {
    case EBBI_BOOL:
        (void)snprintf(text, sizeof text, "%s", value.flag ? "true" : "false");
        break;
    case EBBI_UNSIGNED:
        (void)snprintf(text, sizeof text, "%u", value.number);
        break;
    case EBBI_SSIZE:
        (void)snprintf(text, sizeof text, "%" PRId64, value.ssize);
        break;
    case EBBI_STRING: // ours, without a character that JSON escapes
        (void)snprintf(text, sizeof text, "\"%s\"", value.string);
        break;
    default:
        (void)snprintf(text, sizeof text, "%zu", value.size);
    }
    out(context, text);
}

// Of the arenas there is one.
static void print_key(writer *out, void *context, const char *key, size_t length)
{
    char text[64];
    key = *key == '#' ? "0" : key;
    (void)snprintf(text, sizeof text, "\"%.*s\":", (int)length, key);
    out(context, text);
}

// The components that two names share, as their length with the dots.
static size_t shared(const char *a, const char *b)
{
    size_t same = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++) {
        same = a[i] == '.' ? i + 1 : same;
    }
    return same;
}

static void close_from(writer *out, void *context, const char *path)
{
    for (; *path != '\0'; path++) {
        if (*path == '.') {
            out(context, "}");
        }
    }
}

static void print_names(writer *out, void *context)
{
    const char *before = "";
    out(context, "{");
    for (size_t i = 0; i < ebbi_compat_names_count; i++) {
        const struct ebbi_compat_name *name = &ebbi_compat_names[i];
        if (name->read == NULL) {
            continue;
        }
        size_t same = shared(before, name->name);
        close_from(out, context, before + same);
        out(context, *before != '\0' ? "," : "");
        const char *at = name->name + same;
        for (size_t length; at[length = strcspn(at, ".")] == '.'; at += length + 1) {
            print_key(out, context, at, length);
            out(context, "{");
        }
        print_key(out, context, at, strlen(at));
        print_value(out, context, name);
        before = name->name;
    }
    close_from(out, context, before);
    out(context, "}");
}

void malloc_stats_print(void (*write_cb)(void *, const char *), void *cbopaque, const char *opts)
{
    writer *out = write_cb != NULL ? write_cb : to_stderr;
    if (opts == NULL || strchr(opts, 'J') == NULL) {
        print_filled(out, cbopaque, ebb_stats_text, NULL);
        return;
    }
    out(cbopaque, "{\"jemalloc\":");
    print_names(out, cbopaque);
    out(cbopaque, ",\"ebbtide\":");
    print_filled(out, cbopaque, ebb_stats_json, "null");
    out(cbopaque, "}\n");
}
ALSO_JE(malloc_stats_print);
