// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: the 8 forms of operator new and the 12 of operator delete, by their mangled names
// so that the library needs no C++ runtime. The shared library looks up the runtime's parts that a
// failing new calls then: a weak reference to each would cost every program a search of all its
// libraries. In the archive (EBB_STATIC) this file is an object of its own, which only programs that
// refer to operators take: those have a runtime, and the linker must be asked for the part that
// throws, because nothing else may bring it in.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "api/family.h"

#define EXPORT __attribute__((visibility("default")))

typedef void (*function)(void);
typedef function (*handler_getter)(void);

#ifdef EBB_STATIC
void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");
// Weak: whoever sets a handler brings it in.
__attribute__((weak)) function get_new_handler(void) __asm__("_ZSt15get_new_handlerv");
static function find_thrower(void) { return throw_bad_alloc; }
static handler_getter find_handlers(void) { return get_new_handler; }
#else
// A function of the C++ runtime, NULL when there is none. dlsym's pointer is one to data by type.
EBBI_COLD static function find_runtime(void *where, const char *name)
{
    function found;
    void *symbol = dlsym(where, name);
    __builtin_memcpy(&found, &symbol, sizeof found);
    return found;
}

static function find_thrower(void)
{
    return find_runtime(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
}

static handler_getter find_handlers(void)
{
    return (handler_getter)find_runtime(RTLD_DEFAULT, "_ZSt15get_new_handlerv");
}
#endif

// True when the handler has run and the allocation is to be tried again.
EBBI_COLD static bool handled(void)
{
    handler_getter getter = find_handlers();
    function handler = getter != NULL ? getter() : NULL;
    if (handler != NULL) {
        handler();
    }
    return handler != NULL;
}

static void *try_once(size_t align, size_t bytes)
{
    return align == 0 ? ebbi_malloc(bytes) : ebbi_family_aligned(align, bytes);
}

EBBI_COLD static void *new_slow(size_t align, size_t bytes)
{
    void *p = NULL;
    bool possible = (align & (align - 1)) == 0; // else no handler helps
    while (possible && p == NULL && handled()) {
        p = try_once(align, bytes);
    }
    if (p == NULL) {
        function thrower = find_thrower();
        if (thrower != NULL) {
            thrower();
        }
        ebbi_fatal("operator new: out of memory for %zu bytes, and no C++ runtime to throw", bytes);
    }
    return p;
}

static inline void *new_or_throw(size_t align, size_t bytes)
{
    void *p = try_once(align, bytes);
    return EBBI_LIKELY(p != NULL) ? p : new_slow(align, bytes);
}

// The program may replace some forms: those that it leaves alone end in its basic ones, as the standard
// says ([new.delete]). So ours are weak: in the archive for the linker, and for the compiler, which then
// calls and does not inline them; the shared library names them in packaging/preempted.list, so that
// these calls find the program's.
#define FORM EXPORT __attribute__((weak))

#define NEW(name, call)                                                                            \
    FORM void *name(size_t bytes);                                                                 \
    FORM void *name(size_t bytes) { return call; }
#define NEW_ALIGNED(name, call)                                                                    \
    FORM void *name(size_t bytes, size_t align);                                                   \
    FORM void *name(size_t bytes, size_t align) { return call; }
#define DELETE(name, call)                                                                         \
    FORM void name(void *p);                                                                       \
    FORM void name(void *p) { call; }
#define DELETE_ALIGNED(name, call)                                                                 \
    FORM void name(void *p, size_t align);                                                         \
    FORM void name(void *p, size_t align)                                                          \
    {                                                                                              \
        (void)align;                                                                               \
        call;                                                                                      \
    }
// Sizes and nothrow say nothing new.
#define DELETE_1(name, to)                                                                         \
    FORM void name(void *p, size_t ignored);                                                       \
    FORM void name(void *p, size_t ignored)                                                        \
    {                                                                                              \
        (void)ignored;                                                                             \
        to(p);                                                                                     \
    }
#define DELETE_SIZED_ALIGNED(name, to)                                                             \
    FORM void name(void *p, size_t ignored, size_t align);                                         \
    FORM void name(void *p, size_t ignored, size_t align)                                          \
    {                                                                                              \
        (void)ignored;                                                                             \
        to(p, align);                                                                              \
    }
#define DELETE_ALIGNED_NOTHROW(name, to)                                                           \
    FORM void name(void *p, size_t align, size_t ignored);                                         \
    FORM void name(void *p, size_t align, size_t ignored)                                          \
    {                                                                                              \
        (void)ignored;                                                                             \
        to(p, align);                                                                              \
    }

NEW(_Znwm, new_or_throw(0, bytes))                                     // new(size)
NEW(_Znam, _Znwm(bytes))                                               // new[](size)
NEW_ALIGNED(_ZnwmSt11align_val_t, new_or_throw(align, bytes))          // new(size, align)
NEW_ALIGNED(_ZnamSt11align_val_t, _ZnwmSt11align_val_t(bytes, align))  // new[](size, align)
DELETE(_ZdlPv, ebbi_free(p))                                           // delete(p)
DELETE(_ZdaPv, _ZdlPv(p))                                              // delete[](p)
DELETE_1(_ZdlPvRKSt9nothrow_t, _ZdlPv)                                 // delete(p, nothrow)
DELETE_1(_ZdaPvRKSt9nothrow_t, _ZdaPv)                                 // delete[](p, nothrow)
DELETE_1(_ZdlPvm, _ZdlPv)                                              // delete(p, size)
DELETE_1(_ZdaPvm, _ZdaPv)                                              // delete[](p, size)
DELETE_ALIGNED(_ZdlPvSt11align_val_t, ebbi_free(p))                    // delete(p, align)
DELETE_ALIGNED(_ZdaPvSt11align_val_t, _ZdlPvSt11align_val_t(p, align)) // delete[](p, align)
DELETE_SIZED_ALIGNED(_ZdlPvmSt11align_val_t, _ZdlPvSt11align_val_t)    // delete(p, size, align)
DELETE_SIZED_ALIGNED(_ZdaPvmSt11align_val_t, _ZdaPvSt11align_val_t)    // delete[](p, size, align)
// delete(p, align, nothrow), delete[](p, align, nothrow)
DELETE_ALIGNED_NOTHROW(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdlPvSt11align_val_t)
DELETE_ALIGNED_NOTHROW(_ZdaPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_t)

// A new_handler may throw, and a nothrow form must then return NULL. Catching takes a C++ frame: the
// runtime's own nothrow form has one around its call of the throwing form, which is ours. In a static
// program it stays in its place.
#ifndef EBB_STATIC
extern __typeof__(_Znwm) own__Znwm __attribute__((alias("_Znwm"), visibility("hidden")));
extern __typeof__(_ZnwmSt11align_val_t) own__ZnwmSt11align_val_t
    __attribute__((alias("_ZnwmSt11align_val_t"), visibility("hidden")));

typedef void *(*nothrow_form)(size_t bytes, const void *nothrow);
typedef void *(*aligned_nothrow_form)(size_t bytes, size_t align, const void *nothrow);

#define NEW_NOTHROW(name, to)                                                                      \
    EXPORT void *name(size_t bytes, const void *nothrow);                                          \
    EXPORT void *name(size_t bytes, const void *nothrow)                                           \
    {                                                                                              \
        void *p = (to) == own_##to ? ebbi_malloc(bytes) : NULL;                                    \
        if (EBBI_UNLIKELY(p == NULL)) {                                                            \
            nothrow_form runtime = (nothrow_form)find_runtime(RTLD_NEXT, #name);                   \
            p = runtime != NULL ? runtime(bytes, nothrow) : NULL;                                  \
        }                                                                                          \
        return p;                                                                                  \
    }
#define NEW_ALIGNED_NOTHROW(name, to)                                                              \
    EXPORT void *name(size_t bytes, size_t align, const void *nothrow);                            \
    EXPORT void *name(size_t bytes, size_t align, const void *nothrow)                             \
    {                                                                                              \
        void *p = (to) == own_##to ? ebbi_family_aligned(align, bytes) : NULL;                     \
        if (EBBI_UNLIKELY(p == NULL)) {                                                            \
            aligned_nothrow_form runtime = (aligned_nothrow_form)find_runtime(RTLD_NEXT, #name);   \
            p = runtime != NULL ? runtime(bytes, align, nothrow) : NULL;                           \
        }                                                                                          \
        return p;                                                                                  \
    }

NEW_NOTHROW(_ZnwmRKSt9nothrow_t, _Znwm) // new(size, nothrow)
NEW_NOTHROW(_ZnamRKSt9nothrow_t, _Znwm) // new[](size, nothrow)
// new(size, align, nothrow), new[](size, align, nothrow)
NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t, _ZnwmSt11align_val_t)
NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t, _ZnwmSt11align_val_t)
#endif
