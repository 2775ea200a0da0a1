// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: blocks go home as bits, into the local bitmaps of the slabs whose lock is held and, grouped by
// word, into the remote bitmaps of all others.
#include "heap/slabs.h"

#define GROUPS 64 // remembered at a time: one for each bit of `used`

struct group {
    struct ebbi_slab *slab;
    uint64_t mask;
    unsigned word;
};

struct groups {
    uint64_t used; // the others are not prepared
    struct group at[GROUPS];
};

static void push_pending(struct ebbi_slab *slab, struct ebbi_owner *owner)
{
    // relaxed: only compared
    struct ebbi_slab *first = ebbi_load_relaxed(&owner->pending);
    EBBI_ASSERT(first != slab);
    do {
        slab->pending_next = first;
        // release[pending-push -> pending-take]: pending_next
    } while (!ebbi_cas_release(&owner->pending, &first, slab));
}

void ebbi_give_word(struct ebbi_slab *slab, unsigned word, uint64_t mask)
{
    EBBI_ASSERT(mask != 0 && word < slab->words);
    struct ebbi_owner *owner = slab->owner; // before the blocks go: the slab may go with them
    if (ebbi_slab_give_remote(slab, word, mask)) {
        push_pending(slab, owner);
    }
}

static void send(const struct group *group)
{
    EBBI_ASSERT(group->slab != NULL && group->mask != 0);
    ebbi_give_word(group->slab, group->word, group->mask);
}

// Adds foreign blocks to their group; another group in the same place is sent first.
static void collect_group(struct groups *groups, struct ebbi_slab *slab, struct ebbi_word_run run)
{
    size_t number = (ebbi_span_index(&slab->head) * EBBI_INLINE_WORDS + run.word) % GROUPS;
    struct group *group = &groups->at[number];
    EBBI_ASSERT(run.word < slab->words && run.mask != 0);
    if ((groups->used >> number & 1) != 0) {
        if (group->slab == slab && group->word == run.word) {
            if ((group->mask & run.mask) != 0) {
                ebbi_slab_report_free_bits(slab, run.word, group->mask & run.mask);
            }
            group->mask |= run.mask;
            return;
        }
        send(group);
    }
    groups->used |= (uint64_t)1 << number;
    *group = (struct group){slab, run.mask, run.word};
}

static void give_home(struct ebbi_owner *owner, struct ebbi_slab *slab, struct ebbi_word_run run,
                      size_t bytes)
{
    ebbi_assert_held(&owner->lock);
    ebbi_slab_give(slab, run);
    owner->dirty_bytes += bytes;
    slab->touched = owner->clock_ms;
    if (!slab->purge_queued) {
        ebbi_purge_note(owner, slab);
    }
    ebbi_shelf_settle(owner, slab);
}

// How many of them went home.
EBBI_INLINE size_t give_run(struct ebbi_owner *owner, struct ebbi_slab *slab,
                            struct ebbi_word_run run, size_t size, struct groups *groups)
{
    if (slab->owner != owner) {
        collect_group(groups, slab, run);
        return 0;
    }
    give_home(owner, slab, run, run.count * size);
    return run.count;
}

static void count_home(struct ebbi_owner *owner, unsigned class_number, size_t home)
{
    if (home > 0) {
        ebbi_owner_count_out(owner, class_number, -(int64_t)home);
        owner->shelves[class_number].dirty_blocks += (uint32_t)home;
    }
}

void ebbi_give_blocks(struct ebbi_owner *owner, void **blocks, size_t count)
{
    struct groups groups;
    groups.used = 0;
    struct ebbi_division by = {.class_number = 0}; // of the class of the last block: mostly of all
    size_t home = 0;
    void **end = blocks + count;
    while (blocks < end) {
        struct ebbi_slab *slab = ebbi_slab_alive_of(blocks[0]);
        if (slab->class_number != by.class_number) {
            count_home(owner, by.class_number, home);
            home = 0;
            by = ebbi_division_of(slab->class_number);
        }
        if (blocks + 1 < end && ebbi_slab_is_near(&by, blocks[0], blocks[1])) {
            struct ebbi_word_run run = ebbi_slab_word_run(slab, blocks, (size_t)(end - blocks));
            home += give_run(owner, slab, run, by.size, &groups);
            blocks += run.count;
        } else {
            struct ebbi_word_run run = ebbi_slab_single_run(slab, &by, blocks[0]);
            home += give_run(owner, slab, run, by.size, &groups);
            blocks++;
        }
    }
    count_home(owner, by.class_number, home);
    for (; groups.used != 0; groups.used &= groups.used - 1) {
        send(&groups.at[ebbi_lowest_bit(groups.used)]);
    }
}

void ebbi_give_one(void *p)
{
    EBBI_ASSERT(p != NULL);
    struct ebbi_slab *slab = ebbi_slab_of(p);
    unsigned block = ebbi_slab_block(slab, p);
    ebbi_give_word(slab, block / 64, (uint64_t)1 << (block % 64));
}
