// SPDX-License-Identifier: MIT OR Apache-2.0
// See scope.h.
#include "scope.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
    RESET_PLACE = 3,         // numbers in the place of arena.<i>.reset, the second is the arena
    ARENA_SHIFT = 20,        // mallocx: the number of the arena, plus one
    PAST_THE_CACHE = 1 << 8, // mallocx: no thread cache
};

uint64_t scope_kind = SCOPE_NONE;
uint64_t scope_every = 1;
uint64_t scope_frees = 1;
uint64_t scope_resets = 0;

struct scope_calls scope_calls;

static struct ebb_domain *domain;
static struct ebb_region_options region_options;
static bool keeps_some;
static size_t reset_place[RESET_PLACE];

// --- finding -----------------------------------------------------------------

struct call {
    enum scope_kind kind;
    const char *name;
    void *slot;            // a function pointer
    const char *otherwise; // what another version calls it; may be NULL
};

static const struct call calls[] = {
    {SCOPE_DOMAIN, "ebb_domain_open", &scope_calls.domain_open, NULL},
    {SCOPE_DOMAIN, "ebb_domain_set_policy", &scope_calls.domain_set_policy, NULL},
    {SCOPE_DOMAIN, "ebb_domain_enter", &scope_calls.domain_enter, NULL},
    {SCOPE_DOMAIN, "ebb_leave", &scope_calls.leave, NULL},
    {SCOPE_DOMAIN, "ebb_region_of", &scope_calls.region_of, NULL},
    {SCOPE_DOMAIN, "ebb_lifetimes_get", &scope_calls.lifetimes_get, NULL},
    {SCOPE_REGION, "ebb_region_open", &scope_calls.region_open, NULL},
    {SCOPE_REGION, "ebb_region_alloc", &scope_calls.region_alloc, NULL},
    {SCOPE_REGION, "ebb_region_enter", &scope_calls.region_enter, NULL},
    {SCOPE_REGION, "ebb_leave", &scope_calls.leave, NULL},
    {SCOPE_REGION, "ebb_region_of", &scope_calls.region_of, NULL},
    {SCOPE_REGION, "ebb_region_reset", &scope_calls.region_reset, NULL},
    {SCOPE_REGION, "ebb_region_release", &scope_calls.region_release, NULL},
    {SCOPE_REGION, "ebb_region_close", &scope_calls.region_close, NULL},
    {SCOPE_REGION, "ebb_lifetimes_get", &scope_calls.lifetimes_get, NULL},
    {SCOPE_HEAP, "mi_heap_new", &scope_calls.heap_new, NULL},
    {SCOPE_HEAP, "mi_heap_malloc", &scope_calls.heap_malloc, NULL},
    {SCOPE_HEAP, "mi_heap_destroy", &scope_calls.heap_destroy, NULL},
    {SCOPE_HEAP, "mi_heap_delete", &scope_calls.heap_delete, NULL},
    {SCOPE_HEAP, "mi_heap_check_owned", &scope_calls.heap_owns, "mi_heap_contains"},
    {SCOPE_ARENA, "mallocx", &scope_calls.arena_malloc, NULL},
    {SCOPE_ARENA, "dallocx", &scope_calls.arena_free, NULL},
    {SCOPE_ARENA, "mallctl", &scope_calls.control, NULL},
    {SCOPE_ARENA, "mallctlnametomib", &scope_calls.control_place, NULL},
    {SCOPE_ARENA, "mallctlbymib", &scope_calls.control_at, NULL},
};

static const char *const kind_names[] = {"none", "domain", "region", "mimalloc heap",
                                         "jemalloc arena"};

// ISO C has no cast from an object pointer to a function pointer; POSIX says that they are
// the same bytes.
static void find_calls(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if ((uint64_t)calls[i].kind != scope_kind)
            continue;
        void *found = dlsym(RTLD_DEFAULT, calls[i].name);
        if (found == NULL && calls[i].otherwise != NULL)
            found = dlsym(RTLD_DEFAULT, calls[i].otherwise);
        if (found == NULL)
            bench_fail("--scope %d (%s): the allocator that is loaded has no %s",
                       (int)calls[i].kind, kind_names[calls[i].kind], calls[i].name);
        memcpy(calls[i].slot, &found, sizeof found);
    }
}

static void check_options(void)
{
    if (scope_resets != 0 && scope_kind != SCOPE_REGION)
        bench_fail("--reset 1 is for --scope 2: nothing else is reset or released by choice");
    if (!scope_frees_objects() && keeps_some)
        bench_fail("--free 0: objects that outlive their epoch have to be freed one by one");
    if (scope_kind == SCOPE_ARENA && keeps_some)
        bench_fail("--scope 4: an arena is not closed, a reset would take survivors along");
}

static void prepare_domain(const char *label)
{
    domain = scope_calls.domain_open(label);
    if (domain == NULL)
        bench_fail("ebb_domain_open(\"%s\") gave NULL", label);
    enum ebb_domain_policy policy = scope_every == 0 ? EBB_DOMAIN_NEVER : EBB_DOMAIN_SCOPES;
    if (scope_calls.domain_set_policy(domain, policy, scope_every) != 0)
        bench_fail("ebb_domain_set_policy: every %d scopes is refused", (int)scope_every);
}

void scope_prepare(const char *label, bool keeps)
{
    keeps_some = keeps;
    check_options();
    find_calls();
    region_options.label = label;
    region_options.closes = keeps;
    if (scope_kind == SCOPE_DOMAIN)
        prepare_domain(label);
    size_t length = RESET_PLACE;
    if (scope_kind == SCOPE_ARENA &&
        scope_calls.control_place("arena.0.reset", reset_place, &length) != 0)
        bench_fail("jemalloc does not know arena.<i>.reset");
}

// --- opening and ending ------------------------------------------------------

static void open_arena(struct scope *scope)
{
    size_t bytes = sizeof scope->arena;
    if (scope->arena_flags != 0)
        return;
    if (scope_calls.control("arenas.create", &scope->arena, &bytes, NULL, 0) != 0)
        bench_fail("jemalloc refuses one more arena");
    scope->arena_flags = (int)((scope->arena + 1) << ARENA_SHIFT) | PAST_THE_CACHE;
}

static void reset_arena(const struct scope *scope)
{
    size_t place[RESET_PLACE];
    memcpy(place, reset_place, sizeof place);
    place[1] = scope->arena;
    if (scope_calls.control_at(place, RESET_PLACE, NULL, NULL, NULL, 0) != 0)
        bench_fail("jemalloc does not reset arena %u", scope->arena);
}

void scope_open(struct scope *scope)
{
    if (scope_kind == SCOPE_ARENA)
        open_arena(scope);
    else if (scope_kind == SCOPE_REGION)
        scope->handle = scope_calls.region_open(&region_options);
    else if (scope_kind == SCOPE_HEAP)
        scope->handle = scope_calls.heap_new();
    if (scope->handle == NULL && (scope_kind == SCOPE_REGION || scope_kind == SCOPE_HEAP))
        bench_fail("a %s could not be opened", kind_names[scope_kind]);
}

static void end_region(struct scope *scope)
{
    if (scope_resets != 0 && !keeps_some) {
        scope_calls.region_reset(scope->handle);
        return;
    }
    if (keeps_some)
        scope_calls.region_close(scope->handle);
    else
        scope_calls.region_release(scope->handle);
    scope->handle = NULL;
}

void scope_end(struct scope *scope)
{
    scope->units = 0;
    scope->ended++;
    if (scope_kind == SCOPE_ARENA) {
        reset_arena(scope);
    } else if (scope_kind == SCOPE_REGION) {
        end_region(scope);
    } else if (scope_kind == SCOPE_HEAP) {
        if (keeps_some)
            scope_calls.heap_delete(scope->handle);
        else
            scope_calls.heap_destroy(scope->handle);
        scope->handle = NULL;
    }
}

// --- units of work -----------------------------------------------------------

void scope_enter(struct scope *scope)
{
    scope->entered++;
    if (scope_kind == SCOPE_DOMAIN)
        scope->before = scope_calls.domain_enter(domain);
    else if (scope_kind > SCOPE_DOMAIN && scope->handle == NULL)
        scope_open(scope);
}

// A domain counts its scopes itself.
bool scope_leave(struct scope *scope)
{
    if (scope_kind == SCOPE_DOMAIN)
        scope_calls.leave(scope->before);
    if (scope_kind <= SCOPE_DOMAIN || ++scope->units != scope_every)
        return false;
    scope_end(scope);
    return true;
}

bool scope_finish(struct scope *scope)
{
    bool is_open = scope_kind > SCOPE_DOMAIN && (scope->units > 0 || scope->handle != NULL);
    if (!is_open)
        return false;
    scope_end(scope);
    if (scope_kind == SCOPE_REGION && scope->handle != NULL) {
        scope_calls.region_release(scope->handle);
        scope->handle = NULL;
    }
    return true;
}

// --- whose block is it? ------------------------------------------------------

static bool arena_owns(const struct scope *scope, const void *block)
{
    unsigned arena = 0;
    size_t bytes = sizeof arena;
    const void *asked = block;
    if (scope_calls.control("arenas.lookup", &arena, &bytes, (void *)&asked, sizeof asked) != 0)
        return false;
    return arena == scope->arena;
}

static bool scope_owns(const struct scope *scope, const void *block)
{
    if (scope_kind == SCOPE_REGION)
        return scope_calls.region_of(block) == scope->handle;
    if (scope_kind == SCOPE_HEAP)
        return scope_calls.heap_owns(scope->handle, block);
    return scope_kind != SCOPE_ARENA || arena_owns(scope, block);
}

void scope_probe(struct scope *scope, size_t bytes)
{
    void *block = scope_alloc(scope, bytes);
    // A region that gives way to class slabs does not know its blocks: only those that are closed do.
    bool may_give_way = scope_kind == SCOPE_REGION && keeps_some;
    scope->astray += block == NULL || !(may_give_way || scope_owns(scope, block));
    if (block != NULL && scope_frees_objects())
        scope_free(scope, block);
}
