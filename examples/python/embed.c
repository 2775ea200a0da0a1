// SPDX-License-Identifier: MIT OR Apache-2.0
// A Python that takes all its memory from Ebbtide, without a preload: the hook is set before the interpreter begins, where
// it may replace the allocators. Runs as python3 does, with a module `ebbtide` beside the others:
//
//     example_python_embed -c 'import ebbtide; print(ebbtide.live_bytes(), ebbtide.trim())'
//
// malloc itself, and so libraries that are no part of Python, stay with libc.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <ebbtide.h>

static void *take(void *context, size_t size)
{
    (void)context;
    return ebb_malloc(size);
}

static void *take_cleared(void *context, size_t count, size_t size)
{
    (void)context;
    return ebb_calloc(count, size);
}

static void *resize(void *context, void *p, size_t size)
{
    (void)context;
    return ebb_realloc(p, size > 0 ? size : 1); // Python's 0 frees nothing
}

static void give_back(void *context, void *p)
{
    (void)context;
    ebb_free(p);
}

static PyObject *live_bytes(PyObject *module, PyObject *unused)
{
    struct ebb_stats stats;
    (void)module;
    (void)unused;
    ebb_stats_get(&stats);
    return PyLong_FromSize_t(stats.live_bytes);
}

static PyObject *trim(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromSize_t(ebb_trim());
}

static PyMethodDef methods[] = {
    {"live_bytes", live_bytes, METH_NOARGS, "What Python has in use, by full block size."},
    {"trim", trim, METH_NOARGS, "Returns what is free to the system; bytes returned."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ebbtide",
                                        .m_doc = "The allocator of this Python.", .m_size = -1,
                                        .m_methods = methods};

static PyObject *make_module(void) { return PyModule_Create(&definition); }

int main(int count, char **arguments)
{
    PyMemAllocatorEx ours = {NULL, take, take_cleared, resize, give_back};
    PyPreConfig before;
    PyPreConfig_InitPythonConfig(&before);
    PyStatus status = Py_PreInitializeFromBytesArgs(&before, count, arguments);
    if (PyStatus_Exception(status)) {
        Py_ExitStatusException(status);
    }
    PyMem_SetAllocator(PYMEM_DOMAIN_RAW, &ours);
    PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &ours);
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &ours);
    if (PyImport_AppendInittab("ebbtide", make_module) != 0) {
        return 1;
    }
    return Py_BytesMain(count, arguments);
}
