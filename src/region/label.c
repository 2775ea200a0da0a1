// SPDX-License-Identifier: MIT OR Apache-2.0
#include "region/label.h"

#include <string.h>

#include "arena/arena.h"
#include "os/lock.h"

// Labels beyond the board lie in granules of their own.
#define LABELS_A_GRANULE ((EBBI_GRANULE - sizeof(void *)) / sizeof(struct ebbi_label))

struct more {
    struct more *next;
    struct ebbi_label labels[LABELS_A_GRANULE];
};
_Static_assert(sizeof(struct more) <= EBBI_GRANULE, "a granule each");

struct ebbi_board ebb_lifetime_board = {.version = 1};
static struct ebbi_lock labels_lock = EBBI_LOCK(LABEL);
static struct more *more_labels; // written under the lock; the first of the chain
static size_t label_count;       // of labels; written under the lock

static struct ebbi_label *label_at(size_t index)
{
    if (index < EBBI_BOARD_LABELS) {
        return &ebb_lifetime_board.row[index];
    }
    index -= EBBI_BOARD_LABELS;
    // acquire[label-read <- label-add]: the granule
    struct more *part = ebbi_load_acquire(&more_labels);
    for (; index >= LABELS_A_GRANULE; index -= LABELS_A_GRANULE) {
        part = part->next;
    }
    return &part->labels[index];
}

static bool has_name(const struct ebbi_label *label, const char *name, bool is_domain)
{
    return label->is_domain == is_domain && strncmp(label->name, name, EBBI_LABEL_BYTES - 1) == 0;
}

// Room for one more. Under the lock.
static bool room_for_label(void)
{
    ebbi_assert_held(&labels_lock);
    if (label_count < EBBI_BOARD_LABELS ||
        (label_count - EBBI_BOARD_LABELS) % LABELS_A_GRANULE != 0) {
        return true;
    }
    struct more *part = ebbi_own_take();
    if (part == NULL) {
        return false;
    }
    struct more **end = &more_labels;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    // release[label-add -> label-read]: the cleared granule
    ebbi_store_release(end, part);
    return true;
}

static struct ebbi_label *add_label(const char *name, bool is_domain)
{
    ebbi_assert_held(&labels_lock);
    EBBI_ASSERT(name[0] != 0);
    if (!room_for_label()) {
        return NULL;
    }
    struct ebbi_label *label = label_at(label_count);
    EBBI_ASSERT(label->name[0] == 0);
    strncpy(label->name, name, EBBI_LABEL_BYTES - 1);
    label->is_domain = is_domain;
    // release[label-add -> label-read]: the name
    ebbi_store_release(&label_count, label_count + 1);
    if (label_count <= EBBI_BOARD_LABELS) {
        // release[label-add -> label-read]: the row, for another process
        ebbi_store_release(&ebb_lifetime_board.rows, (uint32_t)label_count);
    }
    return label;
}

struct ebbi_label *ebbi_label_find(const char *name, bool is_domain)
{
    struct ebbi_label *found = NULL;
    ebbi_lock_take(&labels_lock);
    for (size_t i = 0; i < label_count && found == NULL; i++) {
        struct ebbi_label *label = label_at(i);
        found = has_name(label, name, is_domain) ? label : NULL;
    }
    if (found == NULL) {
        found = add_label(name, is_domain);
    }
    ebbi_lock_drop(&labels_lock);
    return found;
}

struct ebbi_label *ebbi_label_next(const struct ebbi_label *label)
{
    // acquire[label-read <- label-add]: the first of the labels
    size_t known = ebbi_load_acquire(&label_count);
    size_t next = 0;
    while (label != NULL && label_at(next++) != label) {
    }
    return next < known ? label_at(next) : NULL;
}

void ebbi_labels_lock(void) { ebbi_lock_take(&labels_lock); }
void ebbi_labels_unlock(void) { ebbi_lock_drop(&labels_lock); }
