// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer os: options from the environment. The table is options.def; docs/options.md is made of it.
#ifndef EBB_OS_OPTIONS_H
#define EBB_OS_OPTIONS_H

#include "base/base.h"

enum ebbi_option_id {
#define OPTION(id, name, kind, fallback, least, most, meaning) EBBI_OPTION_##id,
#include "os/options.def"
#undef OPTION
    EBBI_OPTION_COUNT
};

enum ebbi_check_choice { EBBI_CHECKS_OFF, EBBI_CHECKS_ON, EBBI_CHECKS_LOG, EBBI_CHECKS_SAMPLE };
enum ebbi_stats_mode { EBBI_STATS_OFF, EBBI_STATS_EXIT, EBBI_STATS_SIGNAL };

// Reads the environment, silently; again when it was not there yet. Ignores it in a secure process.
void ebbi_options_read(void);
// Names unknown EBB_* keys and malformed values on stderr, one line each. Once, at load.
void ebbi_options_report(void);

// The value in force: the default until ebbi_options_read has found another.
size_t ebbi_option(enum ebbi_option_id id);
#define EBBI_PATH_ROOM 4096
// The file that comes with an option, `%p` replaced by the process's number. False: there is no room for it. For signal handlers too.
bool ebbi_option_file(enum ebbi_option_id id, char *out, size_t room);
bool ebbi_keeps_freed(
    void); // EBB_PURGE_DELAY_MS is the longest: who asks for that wants no page faults
const char *ebbi_option_name(enum ebbi_option_id id);
enum ebbi_option_source { EBBI_BY_DEFAULT, EBBI_BY_ENVIRONMENT, EBBI_BY_REQUEST };
enum ebbi_option_source ebbi_option_source(enum ebbi_option_id id);
// By another process (os/control.h). 0, or -EINVAL: it is none that may change, or no value of its.
int ebbi_option_change(uint64_t id, uint64_t value);

// For a look from outside (process/board.h).
enum ebbi_option_kind {
    EBBI_SIZE,
    EBBI_SIZE_FILE,
    EBBI_MS,
    EBBI_FLAG,
    EBBI_NUMBER,
    EBBI_CHOICE,
    EBBI_PATH
};
#define EBBI_MOST_WORDS 5
struct ebbi_option {
    const char *name;
    uint64_t kind;
    size_t least, most;
};
struct ebbi_option_table { // each of them by number
    uint64_t count;
    const struct ebbi_option *options;
    const char *const (*words)[EBBI_MOST_WORDS]; // EBBI_CHOICE: by value, forms of one between bars
    const char *const *files;                    // EBBI_SIZE_FILE, EBBI_PATH: that was named
    const bool *changes;                         // whether ebbi_option_change does
    const size_t *values;                        // atomic, as are the next
    const uint8_t *sources;
};
extern EBBI_HIDDEN const struct ebbi_option_table ebbi_option_table;

#endif
