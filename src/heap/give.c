// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: blocks go home as bits, into the local bitmaps of the slabs whose lock is held and, grouped by
// word, into the remote bitmaps of all others.
#include "heap/slabs.h"

#define AHEAD 6   // blocks, of which a header is fetched
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

// What has come home of a granule of the owner's, in bits, and is not counted yet.
#define HOMES 16 // at a time
struct home {
    struct ebbi_slab *slab; // NULL: none
    uint32_t granule;
    uint16_t count, first_word;
};

struct homes {
    struct ebbi_owner *owner;
    struct ebbi_division by; // the class of all of them, mostly that of all blocks
    size_t counted;          // blocks, of the class
    unsigned open;           // homes that are of a slab
    struct home at[HOMES];   // by granule
};

// Below 2^48.
static uint32_t granule_number(const void *p)
{
    return (uint32_t)((uintptr_t)p >> EBBI_GRANULE_SHIFT);
}

static void give_home(struct home *home, struct ebbi_word_run run)
{
    ebbi_slab_give_bits(home->slab, run);
    home->count = (uint16_t)(home->count + run.count);
    home->first_word = (uint16_t)ebbi_min(home->first_word, run.word);
}

static void settle_home(struct homes *homes, const struct home *home)
{
    struct ebbi_owner *owner = homes->owner;
    struct ebbi_slab *slab = home->slab;
    ebbi_assert_held(&owner->lock);
    ebbi_slab_count_given(slab, home->count, home->first_word);
    homes->counted += home->count;
    owner->dirty_bytes += home->count * homes->by.size;
    slab->touched = owner->clock_ms;
    if (!slab->purge_queued) {
        ebbi_purge_note(owner, slab);
    }
    ebbi_shelf_settle(owner, slab);
}

static void settle_homes(struct homes *homes)
{
    for (struct home *home = homes->at; homes->open > 0; home++) {
        if (home->slab != NULL) {
            settle_home(homes, home);
            home->slab = NULL;
            homes->open--;
        }
    }
    if (homes->counted > 0) {
        unsigned class_number = homes->by.class_number;
        ebbi_owner_count_out(homes->owner, class_number, -(int64_t)homes->counted);
        homes->owner->shelves[class_number].dirty_blocks += (uint32_t)homes->counted;
        homes->counted = 0;
    }
}

static struct home home_of(struct ebbi_slab *slab, const void *p)
{
    return (struct home){slab, granule_number(p), 0, slab->first_word};
}

static void open_home(struct homes *homes, struct ebbi_slab *slab, const void *p)
{
    struct home *home = &homes->at[granule_number(p) % HOMES];
    if (home->slab != NULL) {
        settle_home(homes, home);
    } else {
        homes->open++;
    }
    *home = home_of(slab, p);
}

// The blocks from the first on that go home together: most often one.
static struct ebbi_word_run run_at(const struct ebbi_division *by, const struct ebbi_slab *slab,
                                   void *const *blocks, void *const *end)
{
    if (blocks + 1 < end && ebbi_slab_is_near(by, blocks[0], blocks[1])) {
        return ebbi_slab_word_run(slab, blocks, (size_t)(end - blocks));
    }
    return ebbi_slab_single_run(slab, by, blocks[0]);
}

// Another one will, most likely, where this one does: in a scattered flush each slab is a miss.
static void fetch_ahead(void *const *blocks, void *const *end)
{
    if (blocks + AHEAD < end) {
        ebbi_slab_fetch(ebbi_slab_in(ebbi_span_around(blocks[AHEAD])));
    }
}

// The first block lies in a granule that is not at hand. How many go; 0: it is at hand now.
static unsigned give_first(struct homes *homes, struct groups *groups, void **blocks, void **end)
{
    fetch_ahead(blocks, end);
    struct ebbi_slab *slab = ebbi_slab_alive_of(blocks[0]);
    if (slab->class_number != homes->by.class_number) {
        settle_homes(homes);
        homes->by = ebbi_division_of(slab->class_number);
    }
    bool is_own = slab->owner == homes->owner;
    if (is_own && slab->head.granules == 1) {
        open_home(homes, slab, blocks[0]);
        return 0;
    }
    struct ebbi_word_run run = run_at(&homes->by, slab, blocks, end);
    if (is_own) { // each of its granules has few blocks
        struct home home = home_of(slab, blocks[0]);
        give_home(&home, run);
        settle_home(homes, &home);
    } else {
        collect_group(groups, slab, run);
    }
    return run.count;
}

void ebbi_give_blocks(struct ebbi_owner *owner, void **blocks, size_t count)
{
    struct groups groups;
    groups.used = 0;
    struct homes homes = {.owner = owner}; // of no class yet
    for (void **end = blocks + count; blocks < end;) {
        struct home *home = &homes.at[granule_number(blocks[0]) % HOMES];
        if (EBBI_LIKELY(home->slab != NULL && home->granule == granule_number(blocks[0]))) {
            struct ebbi_word_run run = run_at(&homes.by, home->slab, blocks, end);
            give_home(home, run);
            blocks += run.count;
        } else {
            blocks += give_first(&homes, &groups, blocks, end);
        }
    }
    settle_homes(&homes);
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
