// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer process: the board that another process reads, and what it has asked for (os/control.h). Called with no lock held,
// but perhaps below locks of the program or of libc.
#include <errno.h>

#include "debug/guard.h"
#include "heap/blocks.h"
#include "heap/registry.h"
#include "os/lock.h"
#include "os/wake.h"
#include "process/board.h"

#define TEXT(x) #x
#define VALUE(x) TEXT(x)
#define MOST_MS ((uint64_t)1 << 40)

EBBI_KEPT const struct ebbi_board ebbi_board = {
    .magic = EBBI_BOARD_MAGIC,
    .version = EBBI_BOARD_VERSION,
    .bytes = sizeof(struct ebbi_board),
    .release = VALUE(EBB_VERSION_MAJOR) "." VALUE(EBB_VERSION_MINOR) "." VALUE(EBB_VERSION_PATCH),
    .control = &ebbi_control,
    .snapshot = &ebbi_published,
    .labels = &ebbi_labels,
    .labels_a_part = EBBI_LABELS_A_PART,
    .options = &ebbi_option_table,
    .reclaim = {.now = &ebbi_clock.now,
                .participants = &ebbi_clock.participants,
                .changed_ms = &ebbi_clock.changed_ms,
                .waiting = ebbi_limbo_waiting,
                .waiting_parts = EBBI_WAITING_PARTS},
    .profile = {.entry_bytes = sizeof(struct ebbi_profile_entry),
                .state = &ebbi_profile,
                .book = &ebbi_profile_book,
                .live = &ebbi_live_table},
};

// Read in the program's memory, so of the loaded part; linkers that drop what nobody refers to keep notes.
__asm__(".pushsection .note.ebbtide, \"a\", \"note\"\n"
        ".balign 4\n"
        ".4byte 8, 983f - 982f, 1\n"
        ".asciz \"Ebbtide\"\n"
        "982: .8byte ebbi_board - .\n"
        "983:\n"
        ".popsection\n");

static struct ebbi_lock asked_lock =
    EBBI_LOCK(START); // rank: start; nothing is asked of the loader under it
static bool trims;    // under it: somebody does, without it

static int switch_for(size_t mean, uint64_t until_ms)
{
    ebbi_store_relaxed(&ebbi_profile.until_ms, until_ms); // relaxed: a time
    if (mean == 0) {
        ebbi_profile_end();
    }
    int error = mean != 0 ? ebbi_profile_begin(mean) : 0;
    if (error == 0) {
        ebbi_heaps_look_up();
    }
    return error;
}

// By the program. Under the lock, so that the end of one that was asked for does not end it.
int ebbi_profile_switch(size_t mean)
{
    ebbi_lock_take(&asked_lock);
    int error = switch_for(mean, 0);
    ebbi_lock_drop(&asked_lock);
    return error;
}

static int profile_asked(size_t mean, uint64_t ms)
{
    bool on = ebbi_profile_round() != 0;
    uint64_t until = ebbi_load_relaxed(&ebbi_profile.until_ms); // relaxed: a time
    uint64_t asked = ebbi_os_now_ms() + ms;
    if (mean > EBBI_PROFILE_MOST_MEAN || ms > MOST_MS) {
        return -EINVAL;
    }
    if (on && (until == 0 || mean != 0)) {
        // relaxed: a time; of a profile that the program began, nothing
        ebbi_store_relaxed(&ebbi_profile.until_ms, until != 0 ? ebbi_max(until, asked) : 0);
        return 0;
    }
    return on || mean != 0 ? switch_for(mean, mean != 0 ? asked : 0) : 0;
}

// What is freed may be guarded, and its free asks the loader.
static int trim_asked(bool helper)
{
    trims = true;
    ebbi_lock_drop(&asked_lock);
    (void)ebbi_trim(ebbi_heap_mine(), helper);
    ebbi_lock_take(&asked_lock);
    trims = false;
    return 0;
}

static int option_asked(uint64_t id, uint64_t value)
{
    int error = ebbi_option_change(id, value);
    if (error == 0 && id == EBBI_OPTION_GUARD && !ebbi_guard_begin((size_t)value, false)) {
        return -ENOMEM;
    }
    return error;
}

static int done(const struct ebbi_question *question, bool helper)
{
    switch (question->what) {
    case EBBI_ASK_NOTHING:
        return 0;
    case EBBI_ASK_PROFILE:
        return profile_asked(question->with, question->ms);
    case EBBI_ASK_TRIM:
        return trim_asked(helper);
    case EBBI_ASK_SNAPSHOT:
        ebbi_snapshot_publish();
        return 0;
    case EBBI_ASK_PINS:
        ebbi_samples_look();
        return 0;
    case EBBI_ASK_OPTION:
        return option_asked(question->with, question->ms);
    default:
        return -ENOSYS;
    }
}

void ebbi_profile_lapse(void)
{
    uint64_t until = ebbi_load_relaxed(&ebbi_profile.until_ms); // relaxed: a time
    if (EBBI_UNLIKELY(until != 0) && ebbi_os_now_ms() >= until && ebbi_lock_try(&asked_lock)) {
        (void)profile_asked(0, 0);
        ebbi_lock_drop(&asked_lock);
    }
}

// Under the lock. False: it is left to the helper, or to who trims and looks again.
static bool answer(bool helper)
{
    struct ebbi_question question = ebbi_control_read();
    ebbi_assert_held(&asked_lock);
    bool is_long = question.what >= EBBI_ASK_TRIM && question.what <= EBBI_ASK_PINS;
    bool does = !trims && (helper || !is_long || !ebbi_helper_is_there());
    if (does) {
        ebbi_control_answer(question.number, done(&question, helper));
    }
    return does;
}

// Whoever finds the lock taken leaves it to its holder, who looks again.
void ebbi_asked_serve(bool helper)
{
    bool goes_on = !ebbi_load_relaxed(&ebbi_dying); // relaxed: see ebbi_pass_serve
    while (goes_on && ebbi_control_is_asked() && ebbi_lock_try(&asked_lock)) {
        goes_on = answer(helper);
        ebbi_lock_drop(&asked_lock);
    }
}

void ebbi_asked_forget(void)
{
    ebbi_lock_reset(&asked_lock);
    trims = false;
    ebbi_control_forget();
}
