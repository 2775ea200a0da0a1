// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer override: where a program creates a thread. Each is counted from here to its last destructor,
// and the helper is started beside the first: malloc and free, which libc calls with its locks held,
// never create one. Before a process of one thread leaves its namespaces, which the kernel grants to such
// alone, or anyone gives up capabilities, the helper ends; one that is about to filter its system calls is not
// made to make those that a filter might kill it for. Only in the shared library: it finds libc's functions by the loader.
//
// (Threads that libc creates for itself, for timers, are counted at their first allocation.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <threads.h>

#include "front/fast.h"
#include "lifetime/domain.h"
#include "os/options.h"
#include "override/threads.h"
#include "report/report.h"

#define EXPORT __attribute__((visibility("default")))

typedef void (*function)(void);

// A thread to be: what the program wants it to run.
struct birth {
    union {
        void *(*posix)(void *);
        int (*c11)(void *);
    } run;
    void *argument;
};

enum { CREATE, THRD_CREATE, UNSHARE, SETNS, CAPSET, NAMES };
static const char libc_names[NAMES][16] = {"pthread_create", "thrd_create", "unshare", "setns",
                                           "capset"};
static function libc_found[NAMES];

static function libc_function(size_t name)
{
    function it = ebbi_load_relaxed(&libc_found[name]); // relaxed: one possible value
    if (it == NULL) {
        void *symbol = dlsym(RTLD_NEXT, libc_names[name]);
        __builtin_memcpy(&it, &symbol, sizeof it);
        ebbi_store_relaxed(&libc_found[name], it); // relaxed: as above
    }
    return it;
}

// A profile's first stack may be taken in a malloc that the loader itself has called, and another thread be in the loader.
static void find_unwind(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "_dl_find_object");
    if (symbol == NULL) {
        (void)dlerror(); // musl keeps it, through calls that succeed, for the program's own
    }
    ebbi_os_unwind_by(symbol);
}

void ebbi_threads_prepare(void)
{
    (void)libc_function(CREATE);
    (void)libc_function(THRD_CREATE);
    ebbi_os_join_by(dlsym(RTLD_NEXT, "pthread_join"), dlsym(RTLD_NEXT, "pthread_tryjoin_np"),
                    dlsym(RTLD_NEXT, "pthread_detach"));
    find_unwind();
}

static void before_threads(void)
{
    if (ebbi_load_relaxed(&libc_found[CREATE]) == NULL) { // relaxed: one possible value
        ebbi_threads_prepare();
    }
}

__attribute__((constructor)) static void see_threads(void)
{
    ebbi_threads_see();
    ebbi_os_filters_see();
    if (ebbi_start() == 0 && (ebbi_option(EBBI_OPTION_CHECK_REPORT) != 0 || ebbi_report_goes_on)) {
        find_unwind(); // a report has a stack where the loader's lock is not needed for it
    }
}

static struct birth birth_begin(void *p)
{
    struct birth birth = *(struct birth *)p;
    ebbi_thread_begins();
    ebbi_own_send(p); // which is no reason to give the thread a heap
    return birth;
}

static void *run_posix(void *p)
{
    struct birth birth = birth_begin(p);
    return birth.run.posix(birth.argument);
}

static int run_c11(void *p)
{
    struct birth birth = birth_begin(p);
    return birth.run.c11(birth.argument);
}

static struct birth *birth_expect(struct birth wanted)
{
    int saved = errno;
    (void)ebbi_heap_get();
    struct birth *birth = ebbi_own_alloc(sizeof *birth);
    errno = saved;
    if (birth != NULL) {
        *birth = wanted;
        ebbi_threads_more();
    }
    return birth;
}

static void birth_done(struct birth *birth, bool done)
{
    if (done) {
        ebbi_helper_start();
    } else {
        ebbi_threads_less();
        ebbi_own_free(birth);
    }
}

typedef int pthread_create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    before_threads();
    pthread_create_function *real = (pthread_create_function *)libc_function(CREATE);
    if (ebbi_os_is_own_thread(run)) {
        return real(thread, attributes, run, argument);
    }
    struct birth *birth = birth_expect((struct birth){{.posix = run}, argument});
    if (birth == NULL) {
        return EAGAIN;
    }
    uintptr_t before = ebbi_scope_suspend();
    int result = real(thread, attributes, run_posix, birth);
    ebbi_scope_resume(before);
    birth_done(birth, result == 0);
    return result;
}

typedef int thrd_create_function(thrd_t *, thrd_start_t, void *);

EXPORT int thrd_create(thrd_t *thread, thrd_start_t run, void *argument)
{
    before_threads();
    struct birth *birth = birth_expect((struct birth){{.c11 = run}, argument});
    if (birth == NULL) {
        return thrd_nomem;
    }
    uintptr_t before = ebbi_scope_suspend();
    int result = ((thrd_create_function *)libc_function(THRD_CREATE))(thread, run_c11, birth);
    ebbi_scope_resume(before);
    birth_done(birth, result == thrd_success);
    return result;
}

EXPORT int unshare(int flags)
{
    ebbi_helper_make_way();
    int result = ((int (*)(int))libc_function(UNSHARE))(flags);
    ebbi_helper_resume();
    return result;
}

EXPORT int setns(int fd, int kind)
{
    ebbi_helper_make_way();
    int result = ((int (*)(int, int))libc_function(SETNS))(fd, kind);
    ebbi_helper_resume();
    return result;
}

int capset(void *header, const void *data); // no libc declares it

EXPORT int capset(void *header, const void *data)
{
    ebbi_helper_stop();
    int result = ((int (*)(void *, const void *))libc_function(CAPSET))(header, data);
    ebbi_helper_resume();
    return result;
}

int prctl(int option, ...); // its header belongs to os

// As libc's, which reads four whatever it was given. Nothing is looked up: programs call this between fork
// and exec, where the loader's lock may be lost.
EXPORT int prctl(int option, ...)
{
    va_list list;
    va_start(list, option);
    unsigned long a = va_arg(list, unsigned long);
    unsigned long b = va_arg(list, unsigned long);
    unsigned long c = va_arg(list, unsigned long);
    unsigned long d = va_arg(list, unsigned long);
    va_end(list);
    return ebbi_os_prctl(option, a, b, c, d);
}
