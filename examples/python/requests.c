// SPDX-License-Identifier: MIT OR Apache-2.0
// An extension whose objects of a request live in a region: a query string is parsed into nodes and decoded strings, all
// of which end with the request by one call. Nothing is freed one by one, and nothing leaks where parsing fails half way.
//
//     from ebbtide_requests import Request
//     with Request(b"name=Ada&tag=a+b&tag=%43") as request:
//         request.get(b"tag"), request.fields(), len(request)     # b"a b", [(b"name", b"Ada"), ...], 3
//
// What leaves a request is a copy, a Python object of its own: no pointer into the region outlives it.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <ebbtide/region.h>
#include <errno.h>
#include <stdint.h>

#define LABEL "python.request"
#define BUCKETS 32 // a power of two

struct text {
    const char *bytes;
    size_t length;
};

struct field {
    struct field *next; // in the order of the query
    struct field *next_in_bucket;
    struct text name;
    struct text value;
};

typedef struct {
    PyObject_HEAD struct ebb_region *region; // NULL: closed. Everything below lies in it.
    struct field *first;
    struct field **end; // where the next one is linked in
    struct field *buckets[BUCKETS];
    Py_ssize_t count;
} Request;

static unsigned bucket_of(struct text name)
{
    unsigned hash = 2166136261U; // FNV-1a
    for (size_t i = 0; i < name.length; i++) {
        hash = (hash ^ (unsigned char)name.bytes[i]) * 16777619U;
    }
    return hash % BUCKETS;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The raw text decoded, in the region. False: no memory.
static int decode(struct ebb_region *region, struct text raw, struct text *out)
{
    char *to = ebb_region_alloc(region, raw.length + 1);
    if (to == NULL) {
        return 0;
    }
    out->bytes = to;
    for (size_t i = 0; i < raw.length; i++) {
        int high = -1;
        int low = -1;
        if (raw.bytes[i] == '%' && i + 2 < raw.length) {
            high = hex_digit(raw.bytes[i + 1]);
            low = hex_digit(raw.bytes[i + 2]);
        }
        if (high >= 0 && low >= 0) {
            *to++ = (char)(high * 16 + low);
            i += 2;
        } else {
            *to++ = raw.bytes[i] == '+' ? ' ' : raw.bytes[i];
        }
    }
    out->length = (size_t)(to - out->bytes);
    return 1;
}

static int add_field(Request *self, struct text part)
{
    struct field *field = ebb_region_calloc(self->region, 1, sizeof *field);
    const char *equals = memchr(part.bytes, '=', part.length);
    struct text name = part;
    struct text value = {part.bytes, 0};
    if (equals != NULL) {
        name.length = (size_t)(equals - part.bytes);
        value = (struct text){equals + 1, part.length - name.length - 1};
    }
    if (field == NULL || !decode(self->region, name, &field->name) ||
        !decode(self->region, value, &field->value)) {
        return 0;
    }
    struct field **bucket = &self->buckets[bucket_of(field->name)];
    field->next_in_bucket = *bucket;
    *bucket = field;
    *self->end = field;
    self->end = &field->next;
    self->count++;
    return 1;
}

static int parse(Request *self, struct text query)
{
    while (query.length > 0) {
        const char *and = memchr(query.bytes, '&', query.length);
        struct text part = {query.bytes, and != NULL ? (size_t)(and-query.bytes) : query.length};
        if (part.length > 0 && !add_field(self, part)) {
            return 0;
        }
        size_t used = part.length + (and != NULL);
        query = (struct text){query.bytes + used, query.length - used};
    }
    return 1;
}

static void end_request(Request *self)
{
    ebb_region_release(self->region); // all of it; NULL is allowed
    self->region = NULL;
    self->first = NULL;
    self->count = 0;
}

static int request_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"query", "limit", NULL};
    Request *self = (Request *)object;
    Py_buffer query;
    Py_ssize_t limit = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "y*|n", names, &query, &limit)) {
        return -1;
    }
    struct ebb_region_options options = {.label = LABEL,
                                         .hard_limit = limit > 0 ? (size_t)limit : 0};
    end_request(self);
    memset(self->buckets, 0, sizeof self->buckets);
    self->end = &self->first;
    self->region = ebb_region_open(&options);
    int is_parsed =
        self->region != NULL && parse(self, (struct text){query.buf, (size_t)query.len});
    PyBuffer_Release(&query);
    if (!is_parsed) {
        end_request(self);
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void request_dealloc(PyObject *object)
{
    end_request((Request *)object);
    Py_TYPE(object)->tp_free(object);
}

static int is_open(const Request *self)
{
    if (self->region == NULL) {
        PyErr_SetString(PyExc_ValueError, "the request is closed");
    }
    return self->region != NULL;
}

static PyObject *copy(struct text text)
{
    return PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.length);
}

static PyObject *request_get(PyObject *object, PyObject *argument)
{
    Request *self = (Request *)object;
    Py_buffer wanted;
    if (!is_open(self) || PyObject_GetBuffer(argument, &wanted, PyBUF_SIMPLE) != 0) {
        return NULL;
    }
    struct text name = {wanted.buf, (size_t)wanted.len};
    const struct field *found = NULL; // of several the last in the bucket, which came first
    for (const struct field *at = self->buckets[bucket_of(name)]; at != NULL;
         at = at->next_in_bucket) {
        if (at->name.length == name.length &&
            memcmp(at->name.bytes, name.bytes, name.length) == 0) {
            found = at;
        }
    }
    PyBuffer_Release(&wanted);
    if (found == NULL) {
        Py_RETURN_NONE;
    }
    return copy(found->value);
}

static PyObject *request_fields(PyObject *object, PyObject *unused)
{
    Request *self = (Request *)object;
    (void)unused;
    PyObject *list = is_open(self) ? PyList_New(self->count) : NULL;
    Py_ssize_t i = 0;
    for (const struct field *field = self->first; list != NULL && field != NULL;
         field = field->next) {
        PyObject *pair = Py_BuildValue("(NN)", copy(field->name), copy(field->value));
        if (pair == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i++, pair);
        }
    }
    return list;
}

static PyObject *request_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    end_request((Request *)object);
    Py_RETURN_NONE;
}

static PyObject *request_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(object);
}

static PyObject *request_exit(PyObject *object, PyObject *arguments)
{
    return request_close(object, arguments);
}

static Py_ssize_t request_length(PyObject *object) { return ((Request *)object)->count; }

static PyMethodDef request_methods[] = {
    {"get", request_get, METH_O, "The first value of that name, or None."},
    {"fields", request_fields, METH_NOARGS, "All names and values, in their order."},
    {"close", request_close, METH_NOARGS, "Frees all of it now."},
    {"__enter__", request_enter, METH_NOARGS, NULL},
    {"__exit__", request_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods request_sequence = {.sq_length = request_length};

static PyTypeObject request_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ebbtide_requests.Request",
    .tp_doc =
        "Request(query, limit=0): a query string, parsed into a region of at most `limit` bytes.",
    .tp_basicsize = sizeof(Request),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = request_init,
    .tp_dealloc = request_dealloc,
    .tp_methods = request_methods,
    .tp_as_sequence = &request_sequence,
};

// What requests hold: the line of their label.
static PyObject *stats(PyObject *module, PyObject *unused)
{
    struct ebb_lifetime_stats lines[64];
    (void)module;
    (void)unused;
    size_t count = ebb_lifetimes_get(lines, 64);
    for (size_t i = 0; i < count && i < 64; i++) {
        if (strcmp(lines[i].label, LABEL) == 0) {
            return Py_BuildValue("{s:n,s:n,s:n,s:K,s:K}", "open", (Py_ssize_t)lines[i].open,
                                 "live_blocks", (Py_ssize_t)lines[i].live_blocks, "held_bytes",
                                 (Py_ssize_t)lines[i].held_bytes, "opened",
                                 (unsigned long long)lines[i].opened, "released",
                                 (unsigned long long)lines[i].released);
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"stats", stats, METH_NOARGS, "What all requests hold."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ebbtide_requests",
                                        .m_doc = "Requests whose parts end together.", .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit_ebbtide_requests(void)
{
    PyObject *module = PyType_Ready(&request_type) == 0 ? PyModule_Create(&definition) : NULL;
    if (module != NULL &&
        PyModule_AddObjectRef(module, "Request", (PyObject *)&request_type) != 0) {
        Py_CLEAR(module);
    }
    return module;
}
