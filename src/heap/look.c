// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer heap: looks at all blocks with EBB_CHECK: what is held, what nobody has (vacant.c), and where no other thread can be at
// work, what is in use.
#include "debug/check.h"
#include "debug/guard.h"
#include "heap/blocks.h"
#include "heap/registry.h"

#define MOST_FOUND 16u    // in use
#define REST_OF_LOOKS 50u // from one look to the next, in times of what it took

// Threads of the parent had blocks in hand that are half made, or half filled, here.
static bool forked_amid;

void ebbi_look_forked(void) { forked_amid = true; }

// Every slab with a free block is one of its shelf, or purging. One that has none any more leaves its bucket.
static void look_at_owner(struct ebbi_owner *owner, void *context)
{
    ebbi_assert_held(&owner->lock);
    (void)context;
    for (unsigned c = 1; c < EBBI_CLASS_EMPTY; c++) {
        struct ebbi_shelf *shelf = &owner->shelves[c];
        if (shelf->current != NULL) {
            ebbi_vacant_look_in(owner, shelf->current);
        }
        for (unsigned b = 0; b < EBBI_BUCKETS; b++) {
            for (struct ebbi_slab *next, *s = shelf->bucket[b]; s != NULL; s = next) {
                next = s->next;
                ebbi_vacant_look_in(owner, s);
                ebbi_shelf_drop_full(owner, s);
            }
        }
    }
}

static void look_at_heap(struct ebbi_heap *heap, void *context)
{
    look_at_owner(&heap->own, context);
}

void ebbi_look(void)
{
    ebbi_check_look();
    ebbi_heaps_each(look_at_heap, NULL);
    ebbi_depots_each(look_at_owner, NULL);
    ebbi_vacant_tell();
}

struct found {
    const void *blocks[MOST_FOUND];
    unsigned count;
};

// But for what has been looked at in its slab.
static void look_in_slab(const struct ebbi_slab *slab, struct found *found)
{
    const struct ebbi_class *c = ebbi_slab_class(slab);
    for (size_t number = 0; number < c->blocks; number++) {
        const void *block = (const void *)(slab->first_block + number * c->size);
        if (found->count < MOST_FOUND && !ebbi_bits_test(slab->local, number) &&
            !ebbi_check_is_sound(block)) {
            found->blocks[found->count++] = block;
        }
    }
}

static void look_at_chunk(struct ebbi_chunk *chunk, void *context)
{
    for (size_t g = chunk->first; g < chunk->committed;) {
        struct ebbi_span *span = ebbi_span_at((uintptr_t)chunk, g);
        g += ebbi_max(span->granules, 1);
        const struct ebbi_slab *slab = ebbi_slab_in(span);
        if (ebbi_slab_lives(slab) && slab->class_number != EBBI_CLASS_EMPTY) {
            look_in_slab(slab, context);
        }
    }
}

void ebbi_look_alone(void)
{
    struct found found = {.count = 0};
    ebbi_look();
    if (forked_amid) {
        return;
    }
    ebbi_guards_look();
    ebbi_arena_each_chunk(look_at_chunk, &found);
    for (unsigned i = 0; i < found.count; i++) {
        ebbi_check_report_unsound(found.blocks[i]);
    }
}

bool ebbi_look_again(void)
{
    static uint64_t due_ns; // atomic
    uint64_t begin = ebbi_os_now_ns();
    if (begin < ebbi_load_relaxed(&due_ns)) { // relaxed: a time, here and below
        return false;
    }
    ebbi_look();
    uint64_t end = ebbi_os_now_ns();
    ebbi_store_relaxed(&due_ns, end + REST_OF_LOOKS * (end - begin)); // relaxed: as above
    return true;
}
