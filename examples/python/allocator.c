// SPDX-License-Identifier: MIT OR Apache-2.0
// Python's allocator hook: what the interpreter allocates is counted under three names, one for each of its own domains
// (python.raw, python.mem, python.obj), in `ebb status` and in stats(). Run Python so that its blocks are Ebbtide's:
//
//     PYTHONMALLOC=malloc LD_PRELOAD=libebbtide.so python3 program.py
//
//     import ebbtide_allocator
//     ebbtide_allocator.install()         # first thing, before other threads
//     ebbtide_allocator.stats()           # {'python.obj': {'live_bytes': ..., 'live_blocks': ..., ...}, ...}
//
// An allocator that is installed in a running interpreter must wrap the one before: blocks of both meet in free. So the
// hook only says in which domain of Ebbtide's the call before it allocates, and can be removed at any time.
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <ebbtide/region.h>

// Of the preloaded library; this module is not linked to one.
#pragma weak ebb_domain_open
#pragma weak ebb_domain_enter
#pragma weak ebb_domain_stats_get
#pragma weak ebb_leave

struct hook {
    const char *label;
    PyMemAllocatorDomain which;
    struct ebb_domain *domain; // NULL: not installed yet
    PyMemAllocatorEx before;
};

static struct hook hooks[] = {
    {"python.raw", PYMEM_DOMAIN_RAW, NULL, {0}},
    {"python.mem", PYMEM_DOMAIN_MEM, NULL, {0}},
    {"python.obj", PYMEM_DOMAIN_OBJ, NULL, {0}},
};
#define HOOKS (sizeof hooks / sizeof hooks[0])

static int is_installed;

static void *hook_malloc(void *context, size_t size)
{
    struct hook *hook = context;
    struct ebb_scope before = ebb_domain_enter(hook->domain);
    void *p = hook->before.malloc(hook->before.ctx, size);
    ebb_leave(before);
    return p;
}

static void *hook_calloc(void *context, size_t count, size_t size)
{
    struct hook *hook = context;
    struct ebb_scope before = ebb_domain_enter(hook->domain);
    void *p = hook->before.calloc(hook->before.ctx, count, size);
    ebb_leave(before);
    return p;
}

static void *hook_realloc(void *context, void *p, size_t size)
{
    struct hook *hook = context;
    struct ebb_scope before = ebb_domain_enter(hook->domain);
    p = hook->before.realloc(hook->before.ctx, p, size);
    ebb_leave(before);
    return p;
}

static void hook_free(void *context, void *p)
{
    struct hook *hook = context;
    hook->before.free(hook->before.ctx, p);
}

// Whether the process's malloc is in the library whose domains these are.
static int is_preloaded(void)
{
    Dl_info of_malloc;
    Dl_info of_domains;
    return ebb_domain_open != NULL && dladdr(dlsym(RTLD_DEFAULT, "malloc"), &of_malloc) != 0 &&
           dladdr(dlsym(RTLD_DEFAULT, "ebb_domain_open"), &of_domains) != 0 &&
           of_malloc.dli_fbase == of_domains.dli_fbase;
}

static PyObject *install(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (is_installed) {
        Py_RETURN_NONE;
    }
    if (!is_preloaded()) {
        PyErr_SetString(PyExc_RuntimeError, "malloc is not Ebbtide's: preload libebbtide.so");
        return NULL;
    }
    for (size_t i = 0; i < HOOKS; i++) {
        hooks[i].domain = ebb_domain_open(hooks[i].label);
        if (hooks[i].domain == NULL) {
            return PyErr_NoMemory();
        }
        PyMem_GetAllocator(hooks[i].which, &hooks[i].before);
    }
    for (size_t i = 0; i < HOOKS; i++) {
        PyMemAllocatorEx ours = {&hooks[i], hook_malloc, hook_calloc, hook_realloc, hook_free};
        PyMem_SetAllocator(hooks[i].which, &ours);
    }
    is_installed = 1;
    Py_RETURN_NONE;
}

// The blocks are those of the allocator before, so it can take them back.
static PyObject *remove_hooks(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    for (size_t i = 0; is_installed && i < HOOKS; i++) {
        PyMem_SetAllocator(hooks[i].which, &hooks[i].before);
    }
    is_installed = 0;
    Py_RETURN_NONE;
}

static int add_stats(PyObject *all, const struct hook *hook)
{
    struct ebb_lifetime_stats s;
    ebb_domain_stats_get(hook->domain, &s);
    PyObject *one =
        Py_BuildValue("{s:n,s:n,s:n,s:n}", "live_bytes", (Py_ssize_t)s.live_bytes, "live_blocks",
                      (Py_ssize_t)s.live_blocks, "resident_bytes", (Py_ssize_t)s.resident_bytes,
                      "pinned_bytes", (Py_ssize_t)s.pinned_bytes);
    int error = one == NULL ? -1 : PyDict_SetItemString(all, hook->label, one);
    Py_XDECREF(one);
    return error;
}

static PyObject *stats(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *all = PyDict_New();
    for (size_t i = 0; all != NULL && i < HOOKS; i++) {
        if (hooks[i].domain != NULL && add_stats(all, &hooks[i]) != 0) {
            Py_CLEAR(all);
        }
    }
    return all;
}

static PyMethodDef methods[] = {
    {"install", install, METH_NOARGS, "Counts what Python allocates from now on."},
    {"remove", remove_hooks, METH_NOARGS, "Ends the counting; blocks in use stay counted."},
    {"stats", stats, METH_NOARGS, "What each domain of Python's holds, by its name."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ebbtide_allocator",
                                        .m_doc = "Python's memory, counted by Ebbtide.",
                                        .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_ebbtide_allocator(void) { return PyModule_Create(&definition); }
