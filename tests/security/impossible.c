// SPDX-License-Identifier: MIT OR Apache-2.0
// Sizes that cannot be and alignments that are none. The misuse is prevented when the call says no
// (or ends the program); a clean run asks for what is possible.
#include "security.h"
#include <dlfcn.h>

static void ask(struct run *run, void *p)
{
    mark('A');
    run->prevented = p == NULL;
    if (!run->fault && p == NULL)
        broken("a possible size was refused");
    if (p != NULL && !run->fault)
        keep(run, p);
}

// A block smaller than what was asked for is harm, as the attacker may write all of it.
static void ask_harm(struct run *run, void *p)
{
    ask(run, p);
    if (run->fault && p != NULL)
        harm(run);
}

static size_t pick(struct run *run, size_t wrong)
{
    mark('F');
    return hide_size(run->fault ? wrong : run->size);
}

static void malloc_max(struct run *run)
{
    only_small(run);
    ask_harm(run, hide(malloc(pick(run, SIZE_MAX))));
}
static void malloc_half(struct run *run)
{
    only_small(run);
    ask_harm(run, hide(malloc(pick(run, (size_t)PTRDIFF_MAX + 1))));
}
static void malloc_negative(struct run *run) // a length that went below zero
{
    ask_harm(run, hide(malloc(pick(run, (size_t)0 - run->size))));
}
static void malloc_wrap_header(struct run *run) // size plus any header wraps to little
{
    only_small(run);
    ask_harm(run, hide(malloc(pick(run, SIZE_MAX - 15))));
}
static void malloc_wrap_page(struct run *run)
{
    only_small(run);
    ask_harm(run, hide(malloc(pick(run, SIZE_MAX - PAGE + 2))));
}
static void calloc_wrap(struct run *run) // the product is the run's size
{
    ask_harm(run, hide(calloc(pick(run, ((size_t)1 << 61) + run->size / 8), 8)));
}
static void calloc_max(struct run *run) { ask_harm(run, hide(calloc(pick(run, SIZE_MAX / 2), 3))); }
static void calloc_wrap_to_size(struct run *run)
{
    size_t count = SIZE_MAX / 16 + 2; // times 16 is 16
    ask_harm(run, hide(calloc(pick(run, count), 16)));
}
static void reallocarray_wrap(struct run *run)
{
    byte *p = hold_block(run);
    mark('F');
    void *q = run->fault ? hide(reallocarray(hide(p), SIZE_MAX / 16 + 2, hide_size(16))) : p;
    mark('A');
    run->prevented = q == NULL; // and p still lives: it is checked and freed at the end
    if (run->fault && q != NULL)
        _exit(EXIT_MISSED);
}
static void realloc_with(struct run *run, size_t wrong)
{
    byte *p = hold_block(run);
    mark('F');
    void *q = run->fault ? hide(realloc(hide(p), hide_size(wrong))) : p;
    mark('A');
    run->prevented = q == NULL;
    if (run->fault && q != NULL)
        _exit(EXIT_MISSED);
}
static void realloc_max(struct run *run) { realloc_with(run, SIZE_MAX); }
static void realloc_half(struct run *run) { realloc_with(run, (size_t)PTRDIFF_MAX + 1); }
static void realloc_negative(struct run *run) { realloc_with(run, (size_t)0 - run->size); }

static void *aligned(size_t alignment, size_t size)
{
    void *p = NULL;
    return posix_memalign(&p, alignment, size) == 0 ? hide(p) : NULL;
}
static void memalign_wrap(struct run *run)
{
    ask_harm(run, aligned(PAGE, pick(run, SIZE_MAX - PAGE / 2)));
}
static void memalign_size_max(struct run *run)
{
    only_small(run);
    ask_harm(run, aligned(64, pick(run, SIZE_MAX)));
}
static void memalign_huge_alignment(struct run *run)
{
    mark('F');
    ask_harm(run, aligned(hide_size(run->fault ? SIZE_MAX / 2 + 1 : 64), run->size));
}
static void aligned_alloc_wrap(struct run *run)
{
    mark('F');
    size_t size = run->fault ? SIZE_MAX - 4095 : (run->size + 4095) & ~(size_t)4095;
    ask_harm(run, hide(aligned_alloc(4096, hide_size(size))));
}
static void bad_alignment(struct run *run, size_t wrong)
{
    mark('F');
    ask(run, aligned(hide_size(run->fault ? wrong : 64), run->size));
}
static void alignment_0(struct run *run) { bad_alignment(run, 0); }
static void alignment_3(struct run *run) { bad_alignment(run, 3); }
static void alignment_4(struct run *run) { bad_alignment(run, 4); }
static void alignment_24(struct run *run) { bad_alignment(run, 24); }
static void alignment_max(struct run *run) { bad_alignment(run, SIZE_MAX); }
static void aligned_alloc_3(struct run *run)
{
    mark('F');
    ask(run, hide(aligned_alloc(hide_size(run->fault ? 3 : 8), run->size & ~(size_t)7)));
}
static void pvalloc_max(struct run *run)
{
    only_small(run);
    void *(*get)(size_t) = (void *(*)(size_t))symbol("pvalloc");
    Dl_info mine, its;
    if (dladdr(symbol("malloc"), &mine) == 0 || dladdr(hide((void *)get), &its) == 0 ||
        mine.dli_fbase != its.dli_fbase)
        skip_run(); // libc's, beside another allocator
    ask_harm(run, hide(get(pick(run, SIZE_MAX - 100))));
}
// What new gave is not free's: a clean run gives it back itself.
static void ask_new(struct run *run, void *p, const char *put)
{
    if (run->fault) {
        ask_harm(run, p);
    } else {
        ((void (*)(void *, size_t))symbol(put))(p, 64); // the size of a plain delete is not read
        mark('A');
    }
}

static void new_max(struct run *run)
{
    only_small(run);
    void *(*get)(size_t, const char *) =
        (void *(*)(size_t, const char *))symbol("_ZnwmRKSt9nothrow_t");
    ask_new(run, hide(get(pick(run, SIZE_MAX), "")), "_ZdlPv");
}
static void new_throwing_max(struct run *run) // an exception that nothing catches
{
    only_small(run);
    void *(*get)(size_t) = (void *(*)(size_t))symbol("_Znwm");
    ask_new(run, hide(get(pick(run, SIZE_MAX - 8))), "_ZdlPv");
}
static void new_aligned_wrap(struct run *run)
{
    only_small(run);
    void *(*get)(size_t, size_t, const char *) =
        (void *(*)(size_t, size_t, const char *))symbol("_ZnwmSt11align_val_tRKSt9nothrow_t");
    ask_new(run, hide(get(pick(run, SIZE_MAX - 8), 64, "")), "_ZdlPvSt11align_val_t");
}

#define IMPOSSIBLE(name, text) CASE("impossible size", name, text)
const struct test_case impossible_cases[] = {
    IMPOSSIBLE(malloc_max, "malloc(SIZE_MAX)"),
    IMPOSSIBLE(malloc_half, "malloc(PTRDIFF_MAX + 1)"),
    IMPOSSIBLE(malloc_negative, "malloc(-SIZE)"),
    IMPOSSIBLE(malloc_wrap_header, "malloc(SIZE_MAX - 15)"),
    IMPOSSIBLE(malloc_wrap_page, "malloc(SIZE_MAX - 4094)"),
    IMPOSSIBLE(calloc_wrap, "calloc whose product wraps to SIZE"),
    IMPOSSIBLE(calloc_wrap_to_size, "calloc whose product wraps to 16"),
    IMPOSSIBLE(calloc_max, "calloc(SIZE_MAX / 2, 3)"),
    IMPOSSIBLE(reallocarray_wrap, "reallocarray whose product wraps to 16"),
    IMPOSSIBLE(realloc_max, "realloc(p, SIZE_MAX)"),
    IMPOSSIBLE(realloc_half, "realloc(p, PTRDIFF_MAX + 1)"),
    IMPOSSIBLE(realloc_negative, "realloc(p, -SIZE)"),
    IMPOSSIBLE(memalign_wrap, "posix_memalign whose size wraps with its alignment"),
    IMPOSSIBLE(memalign_size_max, "posix_memalign of SIZE_MAX"),
    IMPOSSIBLE(memalign_huge_alignment, "posix_memalign aligned to 2^63"),
    IMPOSSIBLE(aligned_alloc_wrap, "aligned_alloc of SIZE_MAX - 4,095"),
    IMPOSSIBLE(aligned_alloc_3, "aligned_alloc aligned to 3"),
    IMPOSSIBLE(alignment_0, "posix_memalign aligned to 0"),
    IMPOSSIBLE(alignment_3, "posix_memalign aligned to 3"),
    IMPOSSIBLE(alignment_4, "posix_memalign aligned to 4"),
    IMPOSSIBLE(alignment_24, "posix_memalign aligned to 24"),
    IMPOSSIBLE(alignment_max, "posix_memalign aligned to SIZE_MAX"),
    IMPOSSIBLE(pvalloc_max, "pvalloc(SIZE_MAX - 100)"),
    IMPOSSIBLE(new_max, "new without exceptions, SIZE_MAX"),
    IMPOSSIBLE(new_throwing_max, "new with exceptions, SIZE_MAX - 8"),
    IMPOSSIBLE(new_aligned_wrap, "aligned new, SIZE_MAX - 8"),
    CASES_END,
};
