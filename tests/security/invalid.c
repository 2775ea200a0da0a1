// SPDX-License-Identifier: MIT OR Apache-2.0
// Pointers that no allocation returned, given to free, realloc, malloc_usable_size and retire:
// inside, before and behind blocks, and memory that is not the heap's at all.
#include "security.h"
#include <dlfcn.h>

enum { STATIC_SIZE = 1 << 20, STACK_SIZE = 1 << 14, MAP_SIZE = 16 << 20 };

static byte data_area[PAGE * 2] __attribute__((aligned(64))) = {1};
static byte bss_area[STATIC_SIZE] __attribute__((aligned(4096)));
static const byte rodata_area[PAGE] __attribute__((aligned(64))) = {1};
static _Thread_local byte tls_area[1024] __attribute__((aligned(64)));

typedef void use_fn(struct run *run, void *p);

static void use_free(struct run *run, void *p)
{
    (void)run;
    free(hide(p));
}

static void use_realloc(struct run *run, void *p)
{
    void *q = hide(realloc(hide(p), run->size * 2));
    run->prevented = q == NULL;
    if (q != NULL)
        keep(run, q);
}

static void use_usable(struct run *run, void *p)
{
    run->prevented = malloc_usable_size(hide(p)) == 0;
}

static void use_retire(struct run *run, void *p)
{
    (void)run;
    void (*retire)(void *) = (void (*)(void *))symbol("ebb_retire");
    retire(hide(p));
}

static void misuse(struct run *run, use_fn *use, void *p)
{
    if (use == use_retire)
        symbol("ebb_retire"); // skips without
    FAULT(run, use(run, p));
}

// The block itself stays a bystander and is freed at the end.
static void inside(struct run *run, use_fn *use, ptrdiff_t at)
{
    byte *p = around(run);
    misuse(run, use, (void *)((uintptr_t)p + (uintptr_t)at));
}

static ptrdiff_t half(const struct run *run) { return (ptrdiff_t)(run->size / 2 & ~(size_t)15); }

static void free_inside_1(struct run *run) { inside(run, use_free, 1); }
static void free_inside_8(struct run *run) { inside(run, use_free, 8); }
static void free_inside_16(struct run *run) { inside(run, use_free, 16); }
static void free_inside_last(struct run *run) { inside(run, use_free, (ptrdiff_t)run->size - 1); }
static void free_inside_half(struct run *run)
{
    if (run->size < 64)
        skip_run();
    inside(run, use_free, half(run));
}
static void free_inside_page(struct run *run)
{
    if (run->size < 2 * PAGE)
        skip_run();
    byte *p = around(run);
    misuse(run, use_free, (void *)(((uintptr_t)p + PAGE) & ~(uintptr_t)(PAGE - 1)));
}
static void free_inside_64k(struct run *run)
{
    if (run->size < 2 << 16)
        skip_run();
    inside(run, use_free, 1 << 16);
}
static void free_before_1(struct run *run) { inside(run, use_free, -1); }
static void free_before_8(struct run *run) { inside(run, use_free, -8); }
static void free_before_16(struct run *run) { inside(run, use_free, -16); }
static void free_before_page(struct run *run) { inside(run, use_free, -PAGE); }
static void free_past_end(struct run *run) { inside(run, use_free, (ptrdiff_t)run->size); }
static void free_misaligned(struct run *run) { inside(run, use_free, 4); }
static void free_tagged(struct run *run)
{
    inside(run, use_free, (ptrdiff_t)((uintptr_t)1 << 56)); // a tag in the top byte
}
static void free_inside_aligned(struct run *run)
{
    void *p = NULL;
    if (posix_memalign(&p, 1024, run->size + 2048) != 0)
        broken("posix_memalign failed");
    hold(run, p, run->size + 2048);
    misuse(run, use_free, (byte *)p + 1024);
}
static void realloc_inside_16(struct run *run) { inside(run, use_realloc, 16); }
static void realloc_inside_1(struct run *run) { inside(run, use_realloc, 1); }
static void realloc_before_16(struct run *run) { inside(run, use_realloc, -16); }
static void usable_inside_16(struct run *run) { inside(run, use_usable, 16); }
static void usable_inside_1(struct run *run) { inside(run, use_usable, 1); }
static void retire_inside_16(struct run *run) { inside(run, use_retire, 16); }

static void *free_it(void *p)
{
    free(hide(p));
    return NULL;
}
static void free_inside_thread(struct run *run)
{
    byte *p = around(run);
    FAULT(run, in_thread(free_it, p + 16));
}

// Numbers for pointers.
static void number(struct run *run, use_fn *use, uintptr_t value)
{
    misuse(run, use, (void *)value);
}
static void free_number_1(struct run *run) { number(run, use_free, 1); }
static void free_number_8(struct run *run) { number(run, use_free, 8); }
static void free_number_16(struct run *run) { number(run, use_free, 16); }
static void free_number_4096(struct run *run) { number(run, use_free, 4096); }
static void free_minus_1(struct run *run) { number(run, use_free, UINTPTR_MAX); }
static void free_minus_16(struct run *run) { number(run, use_free, (uintptr_t)-16); }
static void free_far(struct run *run) { number(run, use_free, 0x123456789000); }
static void free_non_canonical(struct run *run) { number(run, use_free, 0x4141414141414140); }
static void free_far_beside_heap(struct run *run)
{
    number(run, use_free, address_of(around(run)) + ((uintptr_t)64 << 30));
}
static void realloc_far(struct run *run) { number(run, use_realloc, 0x123456789000); }
static void realloc_number_16(struct run *run) { number(run, use_realloc, 16); }
static void usable_far(struct run *run) { number(run, use_usable, 0x123456789000); }

// Memory of the process that is not the heap's.
static void on_stack(struct run *run, use_fn *use)
{
    byte area[STACK_SIZE] __attribute__((aligned(64)));
    memset(hide(area), 0x41, sizeof area);
    zone(run, hide(area), sizeof area);
    misuse(run, use, hide(area + 256));
    provoke(run); // while the array lives
    run->zone_count--;
}
static void free_stack(struct run *run) { on_stack(run, use_free); }
static void realloc_stack(struct run *run) { on_stack(run, use_realloc); }
static void usable_stack(struct run *run) { on_stack(run, use_usable); }
static void retire_stack(struct run *run) { on_stack(run, use_retire); }

static pthread_barrier_t gate;
static byte *volatile lent;
static void *lend_stack(void *unused)
{
    byte area[STACK_SIZE] __attribute__((aligned(64)));
    memset(hide(area), 0, sizeof area);
    lent = hide(area);
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&gate);
    return unused;
}
static void free_thread_stack(struct run *run)
{
    pthread_t thread;
    pthread_barrier_init(&gate, NULL, 2);
    if (pthread_create(&thread, NULL, lend_stack, NULL) != 0)
        broken("no thread");
    pthread_barrier_wait(&gate);
    zone(run, lent, STACK_SIZE);
    misuse(run, use_free, lent + 256);
    provoke(run);
    run->zone_count--;
    pthread_barrier_wait(&gate);
    pthread_join(thread, NULL);
}

static void on_static(struct run *run, use_fn *use, byte *area, size_t size)
{
    zone(run, hide(area), size);
    misuse(run, use, hide(area + 512));
}
static void free_data(struct run *run) { on_static(run, use_free, data_area, sizeof data_area); }
static void free_bss(struct run *run) { on_static(run, use_free, bss_area, sizeof bss_area); }
static void free_bss_page(struct run *run) { misuse(run, use_free, hide(bss_area + PAGE)); }
static void free_tls(struct run *run) { on_static(run, use_free, tls_area, sizeof tls_area); }
static void free_rodata(struct run *run) { misuse(run, use_free, hide(rodata_area + 512)); }
static void free_code(struct run *run) { misuse(run, use_free, hide((void *)free_rodata)); }
static void free_libc_code(struct run *run) { misuse(run, use_free, symbol("getpid")); }
static void free_environ(struct run *run)
{
    misuse(run, use_free, environ[0] == NULL ? (char *)environ : environ[0]);
}
static void free_loader(struct run *run)
{
    misuse(run, use_free, dlopen(NULL, RTLD_NOW)); // the loader's record of the program
}
static void realloc_data(struct run *run)
{
    on_static(run, use_realloc, data_area, sizeof data_area);
}
static void realloc_code(struct run *run) { misuse(run, use_realloc, hide((void *)free_code)); }
static void usable_data(struct run *run)
{
    on_static(run, use_usable, data_area, sizeof data_area);
}
static void usable_code(struct run *run) { misuse(run, use_usable, hide((void *)free_code)); }
static void retire_data(struct run *run)
{
    on_static(run, use_retire, data_area, sizeof data_area);
}

static byte *map_some(struct run *run)
{
    byte *p = mmap(NULL, MAP_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        broken("mmap failed");
    zone(run, p, MAP_SIZE);
    return p;
}
static void free_map(struct run *run) { misuse(run, use_free, map_some(run)); }
static void free_map_middle(struct run *run) { misuse(run, use_free, map_some(run) + PAGE + 64); }
static void free_map_4m(struct run *run)
{
    uintptr_t edge = ((uintptr_t)map_some(run) + (4 << 20)) & ~(uintptr_t)((4 << 20) - 1);
    misuse(run, use_free, (void *)(edge + 65536));
}
static void realloc_map(struct run *run) { misuse(run, use_realloc, map_some(run) + PAGE); }
static void usable_map(struct run *run) { misuse(run, use_usable, map_some(run) + PAGE); }
static void free_no_access(struct run *run)
{
    byte *p = map_some(run);
    mprotect(p, MAP_SIZE, PROT_NONE);
    misuse(run, use_free, p + (1 << 20));
}

#define INVALID(name, text) CASE("invalid free", name, text)
const struct test_case invalid_cases[] = {
    INVALID(free_inside_1, "one byte into a block"),
    INVALID(free_inside_8, "8 bytes into a block"),
    INVALID(free_inside_16, "16 bytes into a block"),
    INVALID(free_inside_half, "the middle of a block"),
    INVALID(free_inside_last, "the last byte of a block"),
    INVALID(free_inside_page, "the first page inside a large block"),
    INVALID(free_inside_64k, "64 KiB into a large block"),
    INVALID(free_inside_aligned, "1,024 bytes into an aligned block"),
    INVALID(free_inside_thread, "16 bytes into another thread's block"),
    INVALID(free_before_1, "one byte before a block"),
    INVALID(free_before_8, "8 bytes before a block"),
    INVALID(free_before_16, "16 bytes before a block"),
    INVALID(free_before_page, "a page before a block"),
    INVALID(free_past_end, "one past the last byte"),
    INVALID(free_misaligned, "a pointer at 4 modulo 8"),
    INVALID(free_tagged, "a block's pointer with a bit set in its top byte"),
    INVALID(free_number_1, "the number 1"),
    INVALID(free_number_8, "the number 8"),
    INVALID(free_number_16, "the number 16"),
    INVALID(free_number_4096, "the number 4,096"),
    INVALID(free_minus_1, "the number -1"),
    INVALID(free_minus_16, "the number -16"),
    INVALID(free_far, "an address without memory"),
    INVALID(free_far_beside_heap, "64 GiB behind a block"),
    INVALID(free_non_canonical, "an address no processor has"),
    INVALID(free_stack, "an array on the stack"),
    INVALID(free_thread_stack, "an array on another thread's stack"),
    INVALID(free_data, "a variable with an initial value"),
    INVALID(free_bss, "a variable without one"),
    INVALID(free_bss_page, "a page of such a variable"),
    INVALID(free_tls, "a variable of the thread"),
    INVALID(free_rodata, "a constant"),
    INVALID(free_code, "a function of the program"),
    INVALID(free_libc_code, "a function of libc"),
    INVALID(free_environ, "a string of the environment"),
    INVALID(free_loader, "memory of the dynamic loader"),
    INVALID(free_map, "the start of a mapping"),
    INVALID(free_map_middle, "the middle of a mapping"),
    INVALID(free_map_4m, "a round address in a mapping"),
    INVALID(free_no_access, "a mapping without access"),
    INVALID(realloc_inside_1, "realloc, one byte into a block"),
    INVALID(realloc_inside_16, "realloc, 16 bytes into a block"),
    INVALID(realloc_before_16, "realloc, 16 bytes before a block"),
    INVALID(realloc_far, "realloc of an address without memory"),
    INVALID(realloc_number_16, "realloc of the number 16"),
    INVALID(realloc_stack, "realloc of an array on the stack"),
    INVALID(realloc_data, "realloc of a variable"),
    INVALID(realloc_code, "realloc of a function"),
    INVALID(realloc_map, "realloc of a mapping"),
    INVALID(usable_inside_1, "malloc_usable_size, one byte into a block"),
    INVALID(usable_inside_16, "malloc_usable_size, 16 bytes into a block"),
    INVALID(usable_far, "malloc_usable_size of an address without memory"),
    INVALID(usable_stack, "malloc_usable_size of an array on the stack"),
    INVALID(usable_data, "malloc_usable_size of a variable"),
    INVALID(usable_code, "malloc_usable_size of a function"),
    INVALID(usable_map, "malloc_usable_size of a mapping"),
    INVALID(retire_inside_16, "retire, 16 bytes into a block"),
    INVALID(retire_stack, "retire of an array on the stack"),
    INVALID(retire_data, "retire of a variable"),
    CASES_END,
};
