// SPDX-License-Identifier: MIT OR Apache-2.0
#include "region/label.h"

#include <string.h>

#include "arena/arena.h"
#include "os/lock.h"

// What follows the rows is written under the lock.
EBBI_SPARSE struct ebbi_labels ebbi_labels;
static struct ebbi_lock labels_lock = EBBI_LOCK(LABEL);

static struct ebbi_label *label_at(size_t index)
{
    if (index < EBBI_BOARD_LABELS) {
        return &ebbi_labels.row[index];
    }
    index -= EBBI_BOARD_LABELS;
    // acquire[label-read <- label-add]: the granule
    struct ebbi_more_labels *part = ebbi_load_acquire(&ebbi_labels.more);
    for (; index >= EBBI_LABELS_A_PART; index -= EBBI_LABELS_A_PART) {
        part = part->next;
    }
    return &part->label[index];
}

static bool has_name(const struct ebbi_label *label, const char *name, bool is_domain)
{
    return label->is_domain == is_domain && strncmp(label->name, name, EBBI_LABEL_BYTES - 1) == 0;
}

// Room for one more, in *part if need be: then it is NULL afterwards. Under the lock.
static bool room_for_label(struct ebbi_more_labels **part)
{
    size_t count = ebbi_labels.labels;
    ebbi_assert_held(&labels_lock);
    if (count < EBBI_BOARD_LABELS || (count - EBBI_BOARD_LABELS) % EBBI_LABELS_A_PART != 0) {
        return true;
    }
    if (*part == NULL) {
        return false;
    }
    struct ebbi_more_labels **end = &ebbi_labels.more;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    // release[label-add -> label-read]: the cleared granule
    ebbi_store_release(end, *part);
    *part = NULL;
    return true;
}

static struct ebbi_label *add_label(const char *name, bool is_domain,
                                    struct ebbi_more_labels **part)
{
    ebbi_assert_held(&labels_lock);
    EBBI_ASSERT(name[0] != 0);
    if (!room_for_label(part)) {
        return NULL;
    }
    uint64_t count = ebbi_labels.labels;
    struct ebbi_label *label = label_at(count);
    EBBI_ASSERT(label->name[0] == 0);
    strncpy(label->name, name, EBBI_LABEL_BYTES - 1);
    label->is_domain = is_domain;
    // release[label-add -> label-read]: the name
    ebbi_store_release(&ebbi_labels.labels, count + 1);
    if (count < EBBI_BOARD_LABELS) {
        // release[label-add -> label-read]: the row, for another process
        ebbi_store_release(&ebbi_labels.rows, count + 1);
    }
    return label;
}

static struct ebbi_label *find_or_add(const char *name, bool is_domain,
                                      struct ebbi_more_labels **part)
{
    struct ebbi_label *found = NULL;
    ebbi_lock_take(&labels_lock);
    for (size_t i = 0; i < ebbi_labels.labels && found == NULL; i++) {
        struct ebbi_label *label = label_at(i);
        found = has_name(label, name, is_domain) ? label : NULL;
    }
    if (found == NULL) {
        found = add_label(name, is_domain, part);
    }
    ebbi_lock_drop(&labels_lock);
    return found;
}

struct ebbi_label *ebbi_label_find(const char *name, bool is_domain)
{
    struct ebbi_more_labels *part = NULL;
    struct ebbi_label *found = find_or_add(name, is_domain, &part);
    if (found == NULL && (part = ebbi_own_take()) != NULL) {
        found = find_or_add(name, is_domain, &part);
        if (part != NULL) { // another thread was faster
            ebbi_own_give(part);
        }
    }
    return found;
}

size_t ebbi_label_count(void)
{
    // acquire[label-read <- label-add]: so many labels
    return (size_t)ebbi_load_acquire(&ebbi_labels.labels);
}

size_t ebbi_label_number(const struct ebbi_label *label)
{
    size_t number = ((uintptr_t)label - (uintptr_t)ebbi_labels.row) / sizeof *label;
    if (number < EBBI_BOARD_LABELS) {
        return number;
    }
    // acquire[label-read <- label-add]: the granule
    const struct ebbi_more_labels *part = ebbi_load_acquire(&ebbi_labels.more);
    number = EBBI_BOARD_LABELS;
    while (part != NULL && (uintptr_t)label - (uintptr_t)part >= EBBI_GRANULE) {
        part = part->next;
        number += EBBI_LABELS_A_PART;
    }
    return part != NULL ? number + (size_t)(label - part->label) : SIZE_MAX;
}

struct ebbi_label *ebbi_label_next(const struct ebbi_label *label)
{
    size_t next = label != NULL ? ebbi_label_number(label) + 1 : 0;
    return next < ebbi_label_count() ? label_at(next) : NULL;
}

void ebbi_labels_lock(void) { ebbi_lock_take(&labels_lock); }
void ebbi_labels_unlock(void) { ebbi_lock_drop(&labels_lock); }
