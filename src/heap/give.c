// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: blocks go home as bits, into the local bitmaps of the slabs whose lock is held and, grouped by
// word, into the remote bitmaps of all others.
#include "heap/slabs.h"

#define GROUPS 16 // remembered at a time; a power of two

struct group {
    struct ebbi_slab *slab;
    uint64_t mask;
    unsigned word;
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
static void collect_group(struct group *groups, struct ebbi_slab *slab, struct ebbi_word_run run)
{
    struct group *group = &groups[(ebbi_span_index(&slab->head) + run.word) % GROUPS];
    EBBI_ASSERT(run.word < slab->words && run.mask != 0);
    if (group->mask != 0 && (group->slab != slab || group->word != run.word)) {
        send(group);
        group->mask = 0;
    }
    if ((group->mask & run.mask) != 0) {
        ebbi_slab_report_free_bits(slab, run.word, group->mask & run.mask);
    }
    group->slab = slab;
    group->word = run.word;
    group->mask |= run.mask;
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

void ebbi_give_blocks(struct ebbi_owner *owner, void **blocks, size_t count)
{
    struct group groups[GROUPS];
    for (size_t i = 0; i < GROUPS; i++) {
        groups[i].mask = 0;
    }
    size_t foreign = 0;
    size_t home_bytes = 0;
    for (size_t i = 0; i < count;) {
        struct ebbi_slab *slab = ebbi_slab_of(blocks[i]);
        size_t size = ebbi_slab_class(slab)->size;
        struct ebbi_word_run run = ebbi_slab_word_run(slab, blocks + i, count - i);
        i += run.count;
        if (slab->owner != owner) {
            collect_group(groups, slab, run);
            foreign++;
        } else {
            give_home(owner, slab, run, run.count * size);
            home_bytes += run.count * size;
        }
    }
    if (home_bytes > 0) {
        ebbi_owner_count_out(owner, -(int64_t)home_bytes);
    }
    for (size_t i = 0; foreign > 0 && i < GROUPS; i++) {
        if (groups[i].mask != 0) {
            send(&groups[i]);
        }
    }
}

void ebbi_give_one(void *p)
{
    EBBI_ASSERT(p != NULL);
    struct ebbi_slab *slab = ebbi_slab_of(p);
    unsigned block = ebbi_slab_block(slab, p);
    ebbi_give_word(slab, block / 64, (uint64_t)1 << (block % 64));
}
