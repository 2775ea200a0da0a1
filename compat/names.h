// SPDX-License-Identifier: MIT OR Apache-2.0
// The names of mallctl that have an answer, in the order of their components: those with the same beginning stand
// together. `#` is the number of an arena. Private to compat/.
#ifndef EBBTIDE_COMPAT_NAMES_H
#define EBBTIDE_COMPAT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ebbi_compat_type {
    EBBI_ACTION,
    EBBI_BOOL,
    EBBI_UNSIGNED,
    EBBI_SIZE,
    EBBI_SSIZE,
    EBBI_UINT64,
    EBBI_STRING
};

union ebbi_compat_value {
    bool flag;
    unsigned number;
    size_t size;
    int64_t ssize;
    uint64_t epoch;
    const char *string;
};

struct ebbi_compat_name {
    const char *name;
    enum ebbi_compat_type type;
    // NULL: an action. `arena`: the number in the name, if there is one. 0 or an error of mallctl.
    int (*read)(size_t arena, union ebbi_compat_value *value);
    // NULL: for reading alone. Of an action, what it does; `value` is NULL then.
    int (*write)(size_t arena, const union ebbi_compat_value *value);
};

extern const struct ebbi_compat_name ebbi_compat_names[];
extern const size_t ebbi_compat_names_count;

// All arenas are one. Its numbers: its own, the number of arenas (jemalloc 4's for all) and MALLCTL_ARENAS_ALL.
bool ebbi_compat_is_arena(size_t number);
// Bytes of a value; 0 of an action.
size_t ebbi_compat_type_bytes(enum ebbi_compat_type type);

#endif
