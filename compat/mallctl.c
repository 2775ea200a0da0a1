// SPDX-License-Identifier: MIT OR Apache-2.0
// mallctl's protocol: from a name or its numbers to a line of the table, and values in and out.
//
// In a MIB the number of an arena is itself, and the number of another component the index of the first line of the
// table that begins with the name up to there.
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <string.h>

#include "both.h"
#include "names.h"

struct walk { // lines [first, end) of the table begin with the `depth` components so far
    size_t first;
    size_t end;
    size_t depth;
    size_t arena;
};

struct part {
    const char *text;
    size_t length;
};

static struct walk start(void) { return (struct walk){0, ebbi_compat_names_count, 0, 0}; }

// The component behind the walk's in a line; empty behind the last.
static struct part part_of(size_t line, size_t depth)
{
    const char *text = ebbi_compat_names[line].name;
    for (size_t i = 0; i < depth; i++) {
        text += strcspn(text, ".");
        text += *text == '.';
    }
    return (struct part){text, strcspn(text, ".")};
}

static bool is_same(struct part a, struct part b)
{
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

// Takes the lines that have the same next component as `line`, which is the first of them.
static void narrow(struct walk *walk, size_t line)
{
    struct part part = part_of(line, walk->depth);
    size_t end = line + 1;
    while (end < walk->end && is_same(part, part_of(end, walk->depth))) {
        end++;
    }
    walk->first = line;
    walk->end = end;
    walk->depth++;
}

static bool wants_number(const struct walk *walk)
{
    return part_of(walk->first, walk->depth).text[0] == '#';
}

static bool step_arena(struct walk *walk, size_t number)
{
    if (!ebbi_compat_is_arena(number)) {
        return false;
    }
    narrow(walk, walk->first);
    walk->arena = number;
    return true;
}

static bool parse_number(struct part part, size_t *number)
{
    size_t value = 0;
    for (size_t i = 0; i < part.length; i++) {
        unsigned digit = (unsigned)(unsigned char)part.text[i] - '0';
        if (digit > 9 || value > UINT32_MAX) {
            return false;
        }
        value = value * 10 + digit;
    }
    *number = value;
    return part.length > 0;
}

// One component on, by its text; *number is its place in a MIB.
static bool step_text(struct walk *walk, struct part part, size_t *number)
{
    if (wants_number(walk)) {
        return parse_number(part, number) && step_arena(walk, *number);
    }
    for (size_t line = walk->first; line < walk->end; line++) {
        if (part.length > 0 && is_same(part, part_of(line, walk->depth))) {
            narrow(walk, line);
            *number = line;
            return true;
        }
    }
    return false;
}

static bool step_number(struct walk *walk, size_t number)
{
    if (wants_number(walk)) {
        return step_arena(walk, number);
    }
    if (number < walk->first || number >= walk->end) {
        return false;
    }
    struct part part = part_of(number, walk->depth);
    if (part.length == 0 ||
        (number > walk->first && is_same(part, part_of(number - 1, walk->depth)))) {
        return false;
    }
    narrow(walk, number);
    return true;
}

// The line that the walk has come to the end of, or NULL.
static const struct ebbi_compat_name *found(const struct walk *walk)
{
    bool whole = walk->depth > 0 && part_of(walk->first, walk->depth).length == 0;
    return whole ? &ebbi_compat_names[walk->first] : NULL;
}

// Walks along a name for at most *depth components, which becomes how many there were. mib: NULL, or where their
// numbers go.
static bool walk_name(struct walk *walk, const char *name, size_t *mib, size_t *depth)
{
    *walk = start();
    size_t most = *depth;
    *depth = 0;
    if (strcspn(name, ".") == 0) {
        return false;
    }
    while (*depth < most) {
        struct part part = {name, strcspn(name, ".")};
        size_t number;
        if (!step_text(walk, part, &number)) {
            return false;
        }
        if (mib != NULL) {
            mib[*depth] = number;
        }
        ++*depth;
        name += part.length;
        if (*name++ == '\0') {
            return true;
        }
        if (found(walk) != NULL) { // the name goes on
            return false;
        }
    }
    return true;
}

// oldp: NULL, or where the value goes.
static int read_value(const struct ebbi_compat_name *name, size_t arena, void *oldp,
                      size_t *oldlenp)
{
    size_t bytes = ebbi_compat_type_bytes(name->type);
    union ebbi_compat_value value;
    memset(&value, 0, sizeof value);
    int error = name->read(arena, &value);
    if (error != 0 || oldp == NULL || oldlenp == NULL) {
        return error;
    }
    if (*oldlenp != bytes) {
        *oldlenp = *oldlenp < bytes ? *oldlenp : bytes;
        error = EINVAL;
    }
    memcpy(oldp, &value, *oldlenp);
    return error;
}

static int write_value(const struct ebbi_compat_name *name, size_t arena, const void *newp,
                       size_t newlen)
{
    union ebbi_compat_value value;
    if (newlen != ebbi_compat_type_bytes(name->type)) {
        return EINVAL;
    }
    memcpy(&value, newp, newlen);
    return name->write(arena, &value);
}

static int answer(const struct walk *walk, void *oldp, size_t *oldlenp, const void *newp,
                  size_t newlen)
{
    const struct ebbi_compat_name *name = found(walk);
    if (name == NULL) {
        return ENOENT;
    }
    if (name->type == EBBI_ACTION) {
        bool is_call = oldp == NULL && oldlenp == NULL && newp == NULL && newlen == 0;
        return is_call ? name->write(walk->arena, NULL) : EPERM;
    }
    if (name->write == NULL && (newp != NULL || newlen != 0)) {
        return EPERM;
    }
    // As jemalloc: a new epoch is what the same call reads, and of a decay the old one, whatever is wrong with the new.
    bool reads_first = name->type == EBBI_SSIZE;
    int error = reads_first ? read_value(name, walk->arena, oldp, oldlenp) : 0;
    if (error == 0 && newp != NULL) {
        error = write_value(name, walk->arena, newp, newlen);
    }
    if (error == 0 && !reads_first && oldp != NULL) {
        error = read_value(name, walk->arena, oldp, oldlenp);
    }
    return error;
}

int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen)
{
    struct walk walk;
    size_t depth = SIZE_MAX;
    if (name == NULL || !walk_name(&walk, name, NULL, &depth)) {
        return ENOENT;
    }
    return answer(&walk, oldp, oldlenp, newp, newlen);
}
ALSO_JE(mallctl);

int mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp)
{
    struct walk walk;
    if (name == NULL || mibp == NULL || miblenp == NULL) {
        return EINVAL;
    }
    size_t depth = *miblenp;
    if (!walk_name(&walk, name, mibp, &depth)) {
        return ENOENT;
    }
    *miblenp = depth;
    return 0;
}
ALSO_JE(mallctlnametomib);

int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
                 size_t newlen)
{
    struct walk walk = start();
    for (size_t i = 0; i < miblen; i++) {
        if (!step_number(&walk, mib[i])) {
            return ENOENT;
        }
    }
    return answer(&walk, oldp, oldlenp, newp, newlen);
}
ALSO_JE(mallctlbymib);
