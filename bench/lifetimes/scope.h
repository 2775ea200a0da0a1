// SPDX-License-Identifier: MIT OR Apache-2.0
// Phases of memory as allocators have them, behind one face: a program brackets its unit
// of work with scope_enter and scope_leave, and each `--every` units are an epoch, at
// whose end the memory leaves.
//
//   0 none     malloc and free
//   1 domain   libebbtide: malloc and free inside a domain; the epoch is closed
//   2 region   libebbtide: allocated in a region, which is released, reset or closed
//   3 heap     mimalloc: allocated in a heap, which is destroyed or deleted
//   4 arena    jemalloc: allocated in an arena of the thread's own, which is reset
//
// The calls are found in whatever is preloaded: the programs link to none of them. A
// scope belongs to the thread that enters it.
#ifndef EBB_BENCH_LIFETIMES_SCOPE_H
#define EBB_BENCH_LIFETIMES_SCOPE_H

#include "harness/common.h"

#include <ebbtide/region.h>

enum scope_kind { SCOPE_NONE, SCOPE_DOMAIN, SCOPE_REGION, SCOPE_HEAP, SCOPE_ARENA };

#define SCOPE_EVERY_MAX UINT64_C(1000000000)

// The options that each of these programs takes.
extern uint64_t scope_kind;
extern uint64_t scope_every;
extern uint64_t scope_frees;
extern uint64_t scope_resets;

#define SCOPE_OPTIONS                                                                              \
    {"scope", &scope_kind, SCOPE_NONE, SCOPE_ARENA,                                                \
     "0 none, 1 domain, 2 region, 3 mimalloc heap, 4 jemalloc arena"},                             \
        {"every", &scope_every, 0, SCOPE_EVERY_MAX, "units of work of an epoch; 0: never ends"},   \
        {"free", &scope_frees, 0, 1,                                                               \
         "1 free each object, 0 leave it to the epoch's end (2, 3, 4)"},                           \
    {                                                                                              \
        "reset", &scope_resets, 0, 1, "1 reset the region at an epoch's end, 0 release it (2)"     \
    }

// What the preloaded allocator calls its own; NULL where --scope does not need it.
struct scope_calls {
    __typeof__(ebb_domain_open) *domain_open;
    __typeof__(ebb_domain_set_policy) *domain_set_policy;
    __typeof__(ebb_domain_enter) *domain_enter;
    __typeof__(ebb_leave) *leave;
    __typeof__(ebb_region_open) *region_open;
    __typeof__(ebb_region_alloc) *region_alloc;
    __typeof__(ebb_region_enter) *region_enter;
    __typeof__(ebb_region_of) *region_of;
    __typeof__(ebb_region_reset) *region_reset;
    __typeof__(ebb_region_release) *region_release;
    __typeof__(ebb_region_close) *region_close;
    __typeof__(ebb_lifetimes_get) *lifetimes_get;
    void *(*heap_new)(void);
    void *(*heap_malloc)(void *heap, size_t bytes);
    void (*heap_destroy)(void *heap);
    void (*heap_delete)(void *heap);
    bool (*heap_owns)(void *heap, const void *p);
    void *(*arena_malloc)(size_t bytes, int flags);
    void (*arena_free)(void *p, int flags);
    int (*control)(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
    int (*control_place)(const char *name, size_t *place, size_t *length);
    int (*control_at)(const size_t *place, size_t length, void *old, size_t *old_bytes, void *new,
                      size_t new_bytes);
};

extern struct scope_calls scope_calls;

// Zero is a scope that was never entered.
struct scope {
    void *handle; // region or heap; NULL between two epochs
    unsigned arena;
    int arena_flags;         // 0: no arena yet
    struct ebb_scope before; // of a domain
    uint64_t units;          // of this epoch
    uint64_t entered;        // units in all
    uint64_t ended;          // epochs, by this harness: not those of a domain
    uint64_t astray;         // objects that were allocated elsewhere
};

// After bench_open: finds the calls, refuses options that mean nothing together, and makes
// the domain, or the label of the regions. `keeps`: some objects outlive their epoch, so
// that it is closed, and what is left is freed one by one.
void scope_prepare(const char *label, bool keeps);

// A unit of work. scope_leave says whether it ended an epoch, and with it the objects
// that were not freed.
void scope_enter(struct scope *scope);
bool scope_leave(struct scope *scope);

// The thread's last epoch, which --every has not ended.
bool scope_finish(struct scope *scope);

// Opening and ending by hand, for programs that count or time just that.
void scope_open(struct scope *scope);
void scope_end(struct scope *scope);

// Inside of a scope: one object more, which is counted as astray when it is not where the
// scope's objects are to be. Of a domain nobody can tell.
void scope_probe(struct scope *scope, size_t bytes);

// Whether objects are freed one by one.
static inline bool scope_frees_objects(void)
{
    return scope_frees != 0 || scope_kind <= SCOPE_DOMAIN;
}

// With a constant kind the choice costs nothing, with scope_kind a branch that is foreseen.
static inline void *scope_alloc_as(uint64_t kind, const struct scope *scope, size_t bytes)
{
    if (kind == SCOPE_REGION)
        return scope_calls.region_alloc(scope->handle, bytes);
    if (kind == SCOPE_HEAP)
        return scope_calls.heap_malloc(scope->handle, bytes);
    if (kind == SCOPE_ARENA)
        return scope_calls.arena_malloc(bytes, scope->arena_flags);
    return malloc(bytes);
}

static inline void *scope_alloc(const struct scope *scope, size_t bytes)
{
    return scope_alloc_as(scope_kind, scope, bytes);
}

// What an arena gave goes past the thread's cache: a reset must find all of it.
static inline void scope_free(const struct scope *scope, void *block)
{
    if (scope_kind == SCOPE_ARENA)
        scope_calls.arena_free(block, scope->arena_flags);
    else
        free(block);
}

#endif
