// SPDX-License-Identifier: MIT OR Apache-2.0
// The second free of a block: at once, after other frees, from other threads and children, through
// realloc and retire, and after the memory has got a new owner.
#include "security.h"

static byte *slots[4096];

// The block is freed in the middle of `others` blocks that are freed after it.
static byte *freed_among(struct run *run, int others)
{
    for (int i = 0; i < others / 2; i++)
        slots[i] = block_of(run->size);
    byte *p = block(run);
    for (int i = others / 2; i < others; i++)
        slots[i] = block_of(run->size);
    free(p);
    for (int i = 0; i < others; i++)
        free(slots[i]);
    return p;
}

static void double_after(struct run *run, int others)
{
    byte *p = freed_among(run, others);
    FAULT(run, free(hide(p)));
}

static void double_at_once(struct run *run) { double_after(run, 0); }
static void double_after_1(struct run *run) { double_after(run, 1); }
static void double_after_3(struct run *run) { double_after(run, 3); }
static void double_after_5(struct run *run) { double_after(run, 5); }
static void double_after_20(struct run *run) { double_after(run, 20); }
static void double_after_100(struct run *run) { double_after(run, 100); }
static void double_after_1000(struct run *run) { double_after(run, 1000); }

static void double_after_other_sizes(struct run *run)
{
    for (int i = 0; i < 60; i++)
        slots[i] = block_of((size_t)20 << i % 12);
    byte *p = block(run);
    free(p);
    for (int i = 0; i < 60; i++)
        free(slots[i]);
    FAULT(run, free(hide(p)));
}

static void double_after_churn(struct run *run)
{
    byte *p = block(run);
    free(p);
    for (int i = 0; i < 500; i++)
        free(block_of(run->size + 4096 + chance(run) % 4096));
    FAULT(run, free(hide(p)));
}

static void double_after_delay(struct run *run)
{
    byte *p = block(run);
    free(p);
    nap_ms(300);
    FAULT(run, free(hide(p)));
}

static void double_after_trim(struct run *run)
{
    byte *p = freed_among(run, 100);
    malloc_trim(0);
    FAULT(run, free(hide(p)));
}

static void double_calloc(struct run *run)
{
    byte *p = hide(calloc(1, run->size));
    free(p);
    FAULT(run, free(hide(p)));
}

static void double_aligned(struct run *run)
{
    void *p = NULL;
    if (posix_memalign(&p, 256, run->size) != 0)
        broken("posix_memalign failed");
    free(p);
    FAULT(run, free(hide(p)));
}

static void *thread_free(void *p)
{
    free(hide(p));
    return NULL;
}
static void *thread_malloc(void *size) { return block_of((size_t)size); }
static void *thread_both(void *size)
{
    void *p = block_of((size_t)size);
    free(p);
    return hide(p);
}

static void double_second_in_thread(struct run *run)
{
    byte *p = block(run);
    free(p);
    FAULT(run, in_thread(thread_free, p));
}

static void double_first_in_thread(struct run *run)
{
    byte *p = block(run);
    in_thread(thread_free, p);
    FAULT(run, free(hide(p)));
}

static void double_both_in_threads(struct run *run)
{
    byte *p = block(run);
    in_thread(thread_free, p);
    FAULT(run, in_thread(thread_free, p));
}

static pthread_barrier_t gate;
static void *thread_race(void *p)
{
    pthread_barrier_wait(&gate);
    free(hide(p));
    return NULL;
}

static void double_race(struct run *run)
{
    byte *p = block(run);
    pthread_t one, two;
    pthread_barrier_init(&gate, NULL, 2);
    mark('F');
    if (pthread_create(&one, NULL, thread_race, p) != 0 ||
        pthread_create(&two, NULL, thread_race, run->fault ? p : NULL) != 0)
        broken("no thread");
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    mark('A');
}

static void double_owner_ended(struct run *run)
{
    byte *p = in_thread(thread_malloc, (void *)run->size);
    free(p);
    FAULT(run, free(hide(p)));
}

static void double_thread_did_both(struct run *run)
{
    byte *p = in_thread(thread_both, (void *)run->size);
    FAULT(run, free(hide(p)));
}

static void double_third_thread(struct run *run)
{
    byte *p = in_thread(thread_malloc, (void *)run->size);
    in_thread(thread_free, p);
    FAULT(run, free(hide(p)));
}

static void child_free(struct run *run, void *p) { FAULT(run, free(hide(p))); }

static void double_in_child(struct run *run)
{
    byte *p = block(run);
    free(p);
    in_child(run, child_free, p);
}

static void child_free_twice(struct run *run, void *p)
{
    free(hide(p));
    FAULT(run, free(hide(p)));
}

static void double_wholly_in_child(struct run *run)
{
    byte *p = block(run);
    in_child(run, child_free_twice, p);
    free(p);
}

static void double_after_move(struct run *run)
{
    byte *p = block(run);
    move_block(run, p);
    FAULT(run, free(hide(p)));
}

static void double_realloc_zero(struct run *run)
{
    byte *p = block(run);
    byte *q = hide(realloc(p, hide_size(0)));
    if (q == hide(p)) {
        free(q);
        skip_run();
    }
    free(q);
    FAULT(run, free(hide(p)));
}

// The stale free of a block that has a new owner; then the next malloc shares it with the owner.
static void double_dangling(struct run *run)
{
    byte *stale = block(run);
    free(stale);
    byte *owner = reuse(run, hide(stale), run->size);
    if (owner != NULL)
        hold(run, owner, run->size);
    FAULT(run, free(hide(stale)));
}

static void double_dangling_in_thread(struct run *run)
{
    byte *stale = block(run);
    free(stale);
    byte *owner = reuse(run, hide(stale), run->size);
    if (owner != NULL)
        hold(run, owner, run->size);
    FAULT(run, in_thread(thread_free, stale));
}

// The memory is given back as a whole and then serves blocks of another size.
static void double_after_recycling(struct run *run)
{
    byte *p = freed_among(run, run->size > 4096 ? 100 : 4000);
    size_t other = run->size > 4096 ? run->size * 3 : run->size * 3 + 40;
    byte *owner = reuse(run, hide(p), other);
    if (owner != NULL)
        hold(run, owner, other);
    FAULT(run, free(hide(p)));
}

static void grow_freed(struct run *run, byte *p, size_t size)
{
    byte *q = hide(realloc(hide(p), size));
    run->prevented = q == NULL;
    if (q != NULL)
        keep(run, q);
}

static void double_realloc_bigger(struct run *run)
{
    byte *p = block(run);
    free(p);
    FAULT(run, grow_freed(run, p, run->size * 4));
}

static void double_realloc_same(struct run *run)
{
    byte *p = freed_among(run, 20);
    FAULT(run, grow_freed(run, p, run->size));
}

static void ask_freed(struct run *run, byte *p)
{
    run->prevented = malloc_usable_size(hide(p)) == 0;
}

static void double_usable_size(struct run *run)
{
    byte *p = block(run);
    free(p);
    FAULT(run, ask_freed(run, p));
}

typedef void retire_fn(void *);
static void double_retire(struct run *run)
{
    retire_fn *retire = (retire_fn *)symbol("ebb_retire");
    byte *p = block(run);
    retire(p);
    FAULT(run, retire(hide(p)));
}

static void double_free_retire(struct run *run)
{
    retire_fn *retire = (retire_fn *)symbol("ebb_retire");
    byte *p = block(run);
    free(p);
    FAULT(run, retire(hide(p)));
}

static void double_retire_free(struct run *run)
{
    retire_fn *retire = (retire_fn *)symbol("ebb_retire");
    byte *p = block(run);
    retire(p);
    FAULT(run, free(hide(p)));
}

static void double_in_mass(struct run *run)
{
    int count = run->size > 4096 ? 200 : 2000;
    for (int i = 0; i < count; i++)
        slots[i] = block_of(run->size);
    int picked = (int)(chance(run) % (unsigned)count) & ~1;
    for (int i = 0; i < count; i += 2)
        free(slots[i]);
    FAULT(run, free(hide(slots[picked])));
    for (int i = 1; i < count; i += 2)
        free(slots[i]);
}

const struct test_case double_cases[] = {
    CASE("double free", double_at_once, "free twice in a row"),
    CASE("double free", double_after_1, "one other free of the size between"),
    CASE("double free", double_after_3, "3 other frees of the size between"),
    CASE("double free", double_after_5, "5 other frees of the size between"),
    CASE("double free", double_after_20, "20 other frees of the size between"),
    CASE("double free", double_after_100, "100 other frees of the size between"),
    CASE("double free", double_after_1000, "1,000 other frees of the size between"),
    CASE("double free", double_after_other_sizes, "60 frees of other sizes between"),
    CASE("double free", double_after_churn, "500 mallocs and frees of bigger sizes between"),
    CASE("double free", double_after_delay, "300 ms between"),
    CASE("double free", double_after_trim, "100 frees and malloc_trim between"),
    CASE("double free", double_calloc, "a block of calloc"),
    CASE("double free", double_aligned, "a block of posix_memalign"),
    CASE("double free", double_second_in_thread, "the second free in another thread"),
    CASE("double free", double_first_in_thread, "the first free in a thread that has ended"),
    CASE("double free", double_both_in_threads, "each free in a thread of its own"),
    CASE("double free", double_race, "two threads at the same time"),
    CASE("double free", double_owner_ended, "the thread that allocated has ended"),
    CASE("double free", double_thread_did_both, "allocated and freed by a thread that has ended"),
    CASE("double free", double_third_thread, "one thread allocates, one frees, a third frees"),
    CASE("double free", double_in_child, "freed before fork, freed again in the child"),
    CASE("double free", double_wholly_in_child, "both frees in a child"),
    CASE("double free", double_after_move, "the old place after realloc moved the block"),
    CASE("double free", double_realloc_zero, "free after realloc(p, 0)"),
    CASE("double free", double_dangling, "the memory is another block by now"),
    CASE("double free", double_dangling_in_thread, "the same from another thread"),
    CASE("double free", double_after_recycling, "the memory serves another size by now"),
    CASE("double free", double_realloc_bigger, "realloc of a freed block to a bigger size"),
    CASE("double free", double_realloc_same, "realloc of a freed block to its own size"),
    CASE("double free", double_usable_size, "malloc_usable_size of a freed block"),
    CASE("double free", double_retire, "retire twice"),
    CASE("double free", double_free_retire, "retire of a freed block"),
    CASE("double free", double_retire_free, "free of a retired block"),
    CASE("double free", double_in_mass, "half of many blocks freed, one of them again"),
    CASES_END,
};
