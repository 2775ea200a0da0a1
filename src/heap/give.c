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

// Adds a foreign block to its group; another group in the same place is sent first.
static void collect_group(struct group *groups, struct ebbi_slab *slab, void *p)
{
    unsigned block = ebbi_slab_block(slab, p);
    unsigned word = block / 64;
    struct group *group = &groups[(ebbi_span_index(&slab->head) + word) % GROUPS];
    uint64_t bit = (uint64_t)1 << (block % 64);
    EBBI_ASSERT(word < slab->words);
    if (group->mask != 0 && (group->slab != slab || group->word != word)) {
        send(group);
        group->mask = 0;
    }
    if ((group->mask & bit) != 0) {
        ebbi_slab_report_double_free(p);
    }
    group->slab = slab;
    group->word = word;
    group->mask |= bit;
}

void ebbi_give_blocks(struct ebbi_owner *owner, void **blocks, size_t count)
{
    struct group groups[GROUPS];
    for (size_t i = 0; i < GROUPS; i++) {
        groups[i].mask = 0;
    }
    size_t foreign = 0;
    for (size_t i = 0; i < count; i++) {
        struct ebbi_slab *slab = ebbi_slab_of(blocks[i]);
        if (slab->owner != owner) {
            collect_group(groups, slab, blocks[i]);
            foreign++;
            continue;
        }
        ebbi_assert_held(&owner->lock);
        ebbi_slab_give(slab, blocks[i]);
        owner->dirty_bytes += ebbi_slab_class(slab)->size;
        ebbi_owner_count_out(owner, -(int64_t)(ebbi_slab_class(slab)->size));
        slab->touched = owner->clock_ms;
        ebbi_purge_note(owner, slab);
        ebbi_shelf_settle(owner, slab);
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
