// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: the 8 forms of operator new and the 12 of operator delete, by their mangled names
// so that the library needs no C++ runtime. The shared library looks up the runtime's parts that a
// failing new calls then: a weak reference to each would cost every program a search of all its
// libraries. A plugin brings a runtime that only its own module leads to. In the archive (EBB_STATIC)
// this file is an object of its own, which only programs that refer to operators take: those have a
// runtime, and the linker must be asked for the part that throws, because nothing else may bring it in.
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
static function find_thrower(const void *caller)
{
    (void)caller;
    return throw_bad_alloc;
}
static handler_getter find_handlers(const void *caller)
{
    (void)caller;
    return get_new_handler;
}
static void throw_as_module(const void *caller) { (void)caller; }
#else
typedef void *(*new_form)(size_t bytes);

// dlsym's pointer is one to data by type.
EBBI_COLD static function symbol_in(void *where, const char *name)
{
    function found;
    void *symbol = dlsym(where, name);
    __builtin_memcpy(&found, &symbol, sizeof found);
    return found;
}

// In the module of the caller, or in those that it needs. NULL: not there.
EBBI_COLD static function find_by_module(const void *caller, const char *name)
{
    Dl_info info;
    void *module = dladdr(caller, &info) != 0 && info.dli_fname != NULL
                       ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                       : NULL;
    function found = NULL;
    if (module != NULL) {
        found = symbol_in(module, name);
        (void)dlclose(module);
    }
    return found;
}

// The form that ours stands before, NULL when there is none.
EBBI_COLD static function find_next(const void *caller, const char *name, function ours)
{
    function found = symbol_in(RTLD_NEXT, name);
    found = found != NULL ? found : find_by_module(caller, name);
    return found != ours ? found : NULL;
}

// A function of the C++ runtime, NULL when there is none.
EBBI_COLD static function find_runtime(const void *caller, const char *name)
{
    function found = symbol_in(RTLD_DEFAULT, name);
    return found != NULL ? found : find_by_module(caller, name);
}

static function find_thrower(const void *caller)
{
    return find_runtime(caller, "_ZSt17__throw_bad_allocv");
}

static handler_getter find_handlers(const void *caller)
{
    return (handler_getter)find_runtime(caller, "_ZSt15get_new_handlerv");
}

void *_Znwm(size_t bytes);

// A module with a runtime of its own may have no more of it than a new that throws.
EBBI_COLD static void throw_as_module(const void *caller)
{
    new_form form = (new_form)find_by_module(caller, "_Znwm");
    if (form != NULL && form != _Znwm) {
        (void)form(PTRDIFF_MAX);
    }
}
#endif

// True when the handler has run and the allocation is to be tried again.
EBBI_COLD static bool handled(const void *caller)
{
    handler_getter getter = find_handlers(caller);
    function handler = getter != NULL ? getter() : NULL;
    if (handler != NULL) {
        handler();
    }
    return handler != NULL;
}

// align 0: of a form without.
EBBI_INLINE void *try_once(size_t align, size_t bytes, bool array)
{
    return align == 0 ? ebbi_malloc(bytes, array ? EBBI_BY_NEW_ARRAY : EBBI_BY_NEW)
                      : ebbi_family_aligned(
                            align, bytes, array ? EBBI_BY_ALIGNED_NEW_ARRAY : EBBI_BY_ALIGNED_NEW);
}

EBBI_COLD static void *new_slow(size_t align, size_t bytes, bool array, const void *caller)
{
    void *p = NULL;
    bool possible = (align & (align - 1)) == 0; // else no handler helps
    while (possible && p == NULL && handled(caller)) {
        p = try_once(align, bytes, array);
    }
    if (p == NULL) {
        function thrower = find_thrower(caller);
        if (thrower != NULL) {
            thrower();
        }
        throw_as_module(caller);
        ebbi_fatal("operator new: out of memory for %zu bytes, and no C++ runtime to throw", bytes);
    }
    return p;
}

EBBI_INLINE void *new_or_throw(size_t align, size_t bytes, bool array)
{
    void *p = try_once(align, bytes, array);
    return EBBI_LIKELY(p != NULL) ? p : new_slow(align, bytes, array, __builtin_return_address(0));
}

// The program may replace some forms: those that it leaves alone end in its basic ones, as the standard
// says ([new.delete]). So ours are weak: in the archive for the linker, and for the compiler, which then
// calls and does not inline them; the shared library names them in packaging/preempted.list, so that
// these calls find the program's. Where the basic form is ours, the others need no call of it, and with EBB_CHECK
// say what they know; in the archive that cannot be seen.
#define FORM EXPORT __attribute__((weak))
#ifdef EBB_STATIC
#define OWN(name)
#define IS_OURS(name) false
#else
#define OWN(name)                                                                                  \
    extern __typeof__(name) own_##name __attribute__((alias(#name), visibility("hidden")));
#define IS_OURS(name) ((name) == own_##name)
#endif

#define BASIC(result, name, parameters)                                                            \
    FORM result name parameters;                                                                   \
    OWN(name)
BASIC(void *, _Znwm, (size_t bytes))
BASIC(void *, _Znam, (size_t bytes))
BASIC(void *, _ZnwmSt11align_val_t, (size_t bytes, size_t align))
BASIC(void *, _ZnamSt11align_val_t, (size_t bytes, size_t align))
BASIC(void *, _ZnwmRKSt9nothrow_t, (size_t bytes, const void *nothrow))
BASIC(void *, _ZnamRKSt9nothrow_t, (size_t bytes, const void *nothrow))
BASIC(void, _ZdlPv, (void *p))
BASIC(void, _ZdaPv, (void *p))
BASIC(void, _ZdlPvSt11align_val_t, (void *p, size_t align))
BASIC(void, _ZdaPvSt11align_val_t, (void *p, size_t align))

#define NEW(name, parameters, ours, by_us, by_them)                                                \
    FORM void *name parameters;                                                                    \
    FORM void *name parameters { return (ours) ? (by_us) : (by_them); }
#define DELETE(name, parameters, ours, by_us, by_them)                                             \
    FORM void name parameters;                                                                     \
    FORM void name parameters                                                                      \
    {                                                                                              \
        if (ours) {                                                                                \
            by_us;                                                                                 \
        } else {                                                                                   \
            by_them;                                                                               \
        }                                                                                          \
    }
#define DELETE_NOTHROW(name, to)                                                                   \
    FORM void name(void *p, const void *nothrow);                                                  \
    FORM void name(void *p, const void *nothrow)                                                   \
    {                                                                                              \
        (void)nothrow;                                                                             \
        to(p);                                                                                     \
    }
#define DELETE_ALIGNED_NOTHROW(name, to)                                                           \
    FORM void name(void *p, size_t align, const void *nothrow);                                    \
    FORM void name(void *p, size_t align, const void *nothrow)                                     \
    {                                                                                              \
        (void)nothrow;                                                                             \
        to(p, align);                                                                              \
    }

// new(size), new[](size), new(size, align), new[](size, align)
NEW(_Znwm, (size_t bytes), true, new_or_throw(0, bytes, false), NULL)
NEW(_Znam, (size_t bytes), IS_OURS(_Znwm), new_or_throw(0, bytes, true), _Znwm(bytes))
NEW(_ZnwmSt11align_val_t, (size_t bytes, size_t align), true, new_or_throw(align, bytes, false),
    NULL)
NEW(_ZnamSt11align_val_t, (size_t bytes, size_t align), IS_OURS(_ZnwmSt11align_val_t),
    new_or_throw(align, bytes, true), _ZnwmSt11align_val_t(bytes, align))
// delete(p), delete[](p), and with nothrow
DELETE(_ZdlPv, (void *p), true, ebbi_free(p, EBBI_BY_NEW), )
DELETE(_ZdaPv, (void *p), IS_OURS(_ZdlPv), ebbi_free(p, EBBI_BY_NEW_ARRAY), _ZdlPv(p))
DELETE_NOTHROW(_ZdlPvRKSt9nothrow_t, _ZdlPv)
DELETE_NOTHROW(_ZdaPvRKSt9nothrow_t, _ZdaPv)
// delete(p, size), delete[](p, size)
// Its size is that of the allocation if each operator new that may have made it is ours, too; the program's may have asked for
// more.
#define NEW_IS_OURS (IS_OURS(_Znwm) && IS_OURS(_ZnwmRKSt9nothrow_t))
#define NEW_ARRAY_IS_OURS (NEW_IS_OURS && IS_OURS(_Znam) && IS_OURS(_ZnamRKSt9nothrow_t))
DELETE(_ZdlPvm, (void *p, size_t bytes), IS_OURS(_ZdlPv),
       ebbi_free_sized(p, bytes, NEW_IS_OURS, EBBI_BY_NEW), _ZdlPv(p))
DELETE(_ZdaPvm, (void *p, size_t bytes), IS_OURS(_ZdaPv) && IS_OURS(_ZdlPv),
       ebbi_free_sized(p, bytes, NEW_ARRAY_IS_OURS, EBBI_BY_NEW_ARRAY), _ZdaPv(p))
// delete(p, align), delete[](p, align), and with nothrow
DELETE(_ZdlPvSt11align_val_t, (void *p, size_t align), true,
       ebbi_free_aligned(p, EBBI_UNSAID, align, EBBI_BY_ALIGNED_NEW), )
DELETE(_ZdaPvSt11align_val_t, (void *p, size_t align), IS_OURS(_ZdlPvSt11align_val_t),
       ebbi_free_aligned(p, EBBI_UNSAID, align, EBBI_BY_ALIGNED_NEW_ARRAY),
       _ZdlPvSt11align_val_t(p, align))
DELETE_ALIGNED_NOTHROW(_ZdlPvSt11align_val_tRKSt9nothrow_t, _ZdlPvSt11align_val_t)
DELETE_ALIGNED_NOTHROW(_ZdaPvSt11align_val_tRKSt9nothrow_t, _ZdaPvSt11align_val_t)
// delete(p, size, align), delete[](p, size, align)
DELETE(_ZdlPvmSt11align_val_t, (void *p, size_t bytes, size_t align),
       IS_OURS(_ZdlPvSt11align_val_t),
       ebbi_free_aligned(p, ebbi_min(bytes, EBBI_UNSAID - 1), align, EBBI_BY_ALIGNED_NEW),
       _ZdlPvSt11align_val_t(p, align))
DELETE(_ZdaPvmSt11align_val_t, (void *p, size_t bytes, size_t align),
       IS_OURS(_ZdaPvSt11align_val_t) && IS_OURS(_ZdlPvSt11align_val_t),
       ebbi_free_aligned(p, ebbi_min(bytes, EBBI_UNSAID - 1), align, EBBI_BY_ALIGNED_NEW_ARRAY),
       _ZdaPvSt11align_val_t(p, align))

// A new_handler may throw, and a nothrow form must then return NULL. Catching takes a C++ frame: the
// runtime's own nothrow form has one around its call of the throwing form, which is ours. In a static
// program it stays in its place.
#ifndef EBB_STATIC
typedef void *(*nothrow_form)(size_t bytes, const void *nothrow);
typedef void *(*aligned_nothrow_form)(size_t bytes, size_t align, const void *nothrow);

#define NEXT(name) find_next(__builtin_return_address(0), #name, (function)(name))

#define NEW_NOTHROW(name, ours, array)                                                             \
    EXPORT void *name(size_t bytes, const void *nothrow);                                          \
    EXPORT void *name(size_t bytes, const void *nothrow)                                           \
    {                                                                                              \
        void *p = (ours) ? try_once(0, bytes, array) : NULL;                                       \
        if (EBBI_UNLIKELY(p == NULL)) {                                                            \
            nothrow_form runtime = (nothrow_form)NEXT(name);                                       \
            p = runtime != NULL ? runtime(bytes, nothrow) : NULL;                                  \
        }                                                                                          \
        return p;                                                                                  \
    }
#define NEW_ALIGNED_NOTHROW(name, ours, array)                                                     \
    EXPORT void *name(size_t bytes, size_t align, const void *nothrow);                            \
    EXPORT void *name(size_t bytes, size_t align, const void *nothrow)                             \
    {                                                                                              \
        void *p = (ours) ? try_once(align, bytes, array) : NULL;                                   \
        if (EBBI_UNLIKELY(p == NULL)) {                                                            \
            aligned_nothrow_form runtime = (aligned_nothrow_form)NEXT(name);                       \
            p = runtime != NULL ? runtime(bytes, align, nothrow) : NULL;                           \
        }                                                                                          \
        return p;                                                                                  \
    }

NEW_NOTHROW(_ZnwmRKSt9nothrow_t, IS_OURS(_Znwm), false)                  // new(size, nothrow)
NEW_NOTHROW(_ZnamRKSt9nothrow_t, IS_OURS(_Znam) && IS_OURS(_Znwm), true) // new[](size, nothrow)
// new(size, align, nothrow), new[](size, align, nothrow)
NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t, IS_OURS(_ZnwmSt11align_val_t), false)
NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t,
                    IS_OURS(_ZnamSt11align_val_t) && IS_OURS(_ZnwmSt11align_val_t), true)
#endif
