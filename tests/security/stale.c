// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads and writes through pointers to freed blocks: at once, later, after the memory has a new
// owner, and through what is left of a pointer after realloc.
#include "security.h"

static void fill(byte *from, size_t count)
{
    volatile byte *p = hide(from);
    for (size_t i = 0; i < count; i++)
        p[i] = 0x41;
}

static unsigned read_all(const byte *from, size_t count)
{
    const volatile byte *p = hide(from);
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += p[i];
    return sum;
}

// The freed block among live ones.
static byte *freed(struct run *run)
{
    for (int i = 0; i < 8; i++)
        hold_block(run);
    byte *p = block(run);
    for (int i = 0; i < 8; i++)
        hold_block(run);
    free(p);
    return hide(p);
}

static void write_at_once_1(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, fill(p, 1));
}
static void write_at_once_8(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, fill(p, 8));
}
static void write_second_word(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, fill(p + 8, 8));
}
static void write_whole(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, fill(p, run->size));
}
static void write_last(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, fill(p + run->size - 1, 1));
}
static void write_middle(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, fill(p + run->size / 2, 8));
}
static void write_delayed(struct run *run)
{
    byte *p = freed(run);
    nap_ms(300);
    FAULT(run, fill(p, run->size));
}
static void write_after_100(struct run *run)
{
    static byte *other[100];
    for (int i = 0; i < 100; i++)
        other[i] = block_of(run->size);
    byte *p = freed(run);
    for (int i = 0; i < 100; i++)
        free(other[i]);
    FAULT(run, fill(p, run->size));
}
static void *write_it(void *p)
{
    fill(p, 16);
    return NULL;
}
static void write_in_thread(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, in_thread(write_it, p));
}
static void *free_it(void *p)
{
    free(hide(p));
    return NULL;
}
static void write_freed_by_thread(struct run *run)
{
    byte *p = block(run);
    in_thread(free_it, p);
    FAULT(run, fill(hide(p), run->size));
}
static void increment(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, ++*(volatile long *)hide(p)); // a reference count
}

static void write_before_calloc(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, fill(p, run->size));
    for (int i = 0; i < 100; i++) {
        byte *q = hide(calloc(1, run->size));
        if (q != NULL && read_all(q, run->size) != 0)
            harm(run); // calloc's promise
        keep(run, q);
    }
}

// The block has a new owner, if the allocator hands it out again.
static byte *reowned(struct run *run)
{
    byte *stale = freed(run);
    byte *owner = reuse(run, stale, run->size);
    if (owner != NULL)
        hold(run, owner, run->size);
    return hide(stale);
}
static void write_reowned(struct run *run)
{
    byte *p = reowned(run);
    FAULT(run, fill(p, run->size));
}
static void see(struct run *run, const byte *p, bool owned)
{
    if (read_all(p, run->size) != 0 && owned)
        harm(run);
}
static void read_reowned(struct run *run)
{
    int before = run->held_count + 16;
    byte *p = reowned(run);
    bool owned = run->held_count > before;
    FAULT(run, see(run, p, owned));
}
static void write_reowned_other_size(struct run *run)
{
    byte *stale = freed(run);
    size_t other = run->size * 4 / 5;
    byte *owner = reuse(run, stale, other);
    if (owner != NULL)
        hold(run, owner, other);
    FAULT(run, fill(hide(stale), run->size));
}

static void read_at_once(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, read_all(p, run->size));
}
static void read_delayed(struct run *run)
{
    byte *p = freed(run);
    nap_ms(300);
    FAULT(run, read_all(p, run->size));
}
static void compare_string(struct run *run)
{
    byte *p = freed(run);
    FAULT(run, read_all(p, strnlen(hide(p), run->size)));
}

// Stale after realloc.
static void write_moved(struct run *run)
{
    byte *p = block(run);
    move_block(run, p);
    FAULT(run, fill(hide(p), run->size));
}
static void read_moved(struct run *run)
{
    byte *p = block(run);
    move_block(run, p);
    FAULT(run, read_all(hide(p), run->size));
}
static void write_moved_delayed(struct run *run)
{
    byte *p = block(run);
    move_block(run, p);
    nap_ms(300);
    FAULT(run, fill(hide(p), run->size));
}
static void write_moved_reowned(struct run *run)
{
    byte *p = block(run);
    move_block(run, p);
    byte *owner = reuse(run, hide(p), run->size);
    if (owner != NULL)
        hold(run, owner, run->size);
    FAULT(run, fill(hide(p), run->size));
}

// A freed object with a function pointer, and the attacker's block in its place.
struct object {
    void (*call)(struct run *run);
    long state;
};
static void honest(struct run *run) { (void)run; }
static void attacker(struct run *run) { harm(run); }
static void call_reowned(struct run *run)
{
    struct object *volatile stale = hide(block(run));
    stale->call = honest;
    free(stale);
    for (int i = 0; i < 64; i++) {
        struct object *fake = hide(block_of(run->size));
        fake->call = attacker;
        fake->state = 1;
        keep(run, fake);
    }
    FAULT(run, stale->call(run));
}

// A block that its last user frees while the list still leads to it.
struct link {
    struct link *volatile next;
    volatile long value;
};
static void walk_list(struct run *run)
{
    struct link *first = NULL;
    for (int i = 0; i < 32; i++) {
        struct link *link = hide(block(run));
        link->next = first;
        link->value = i;
        first = link;
    }
    struct link *second = first->next;
    struct link *third = second->next;
    free(hide(second));
    if (!run->fault)
        first->next = third;
    mark('F');
    long sum = 0;
    int steps = 0;
    for (struct link *link = first; link != NULL && steps < 64; link = link->next, steps++)
        sum += link->value;
    mark('A');
    if (!run->fault && (sum != 31 * 16 - 30 || steps != 31))
        broken("the list is wrong");
}

#define STALE(name, text) CASE("use after free", name, text)
const struct test_case stale_cases[] = {
    STALE(write_at_once_1, "write of the first byte"),
    STALE(write_at_once_8, "write of the first 8 bytes"),
    STALE(write_second_word, "write of the second 8 bytes"),
    STALE(write_middle, "write of 8 bytes in the middle"),
    STALE(write_last, "write of the last byte"),
    STALE(write_whole, "write of the whole block"),
    STALE(write_delayed, "write 300 ms after the free"),
    STALE(write_after_100, "write after 100 more frees of the size"),
    STALE(write_in_thread, "write in another thread"),
    STALE(write_freed_by_thread, "write after another thread's free"),
    STALE(increment, "increment of a reference count"),
    STALE(write_before_calloc, "write, then calloc must still be zero"),
    STALE(write_reowned, "write to the block's new owner"),
    STALE(write_reowned_other_size, "write to a new owner of another size"),
    STALE(write_moved, "write through the pointer before realloc"),
    STALE(write_moved_delayed, "the same 300 ms later"),
    STALE(write_moved_reowned, "the same when the memory has a new owner"),
    STALE(read_at_once, "read of the whole block"),
    STALE(read_delayed, "read 300 ms after the free"),
    STALE(read_reowned, "read of the block's new owner"),
    STALE(read_moved, "read through the pointer before realloc"),
    STALE(compare_string, "strnlen of a freed string"),
    STALE(call_reowned, "call of a function pointer that the attacker replaced"),
    STALE(walk_list, "walk of a list with a freed link"),
    CASES_END,
};
