/* NumPy's functions and methods of small arrays that every rank has whole; see at_hand.py. */

#include "ways.h"

/* Bytes from which arrays are cut: lines, and others; see config.Settings.cut_from. */
typedef struct {
    Py_ssize_t bytes[2];
    PyObject *tuple;
} Limits;

/* Whether sums have no order of their own; and the limits, whose tuple is a new reference. */
static int
limits_in_force(Limits *limits)
{
    PyObject *settings = NULL;
    if (PyContextVar_Get(known.settings, NULL, &settings) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (settings == NULL || settings == Py_None) {
        Py_XSETREF(settings, Py_NewRef(PyList_GET_ITEM(known.base, 0)));
    }
    PyObject *reproducible = PyObject_GetAttr(settings, known.name_reproducible);
    limits->tuple = reproducible != Py_False ? NULL : PyObject_GetAttr(settings, known.name_cut_from);
    Py_DECREF(settings);
    Py_XDECREF(reproducible);
    if (limits->tuple != NULL && PyTuple_CheckExact(limits->tuple) &&
        PyTuple_GET_SIZE(limits->tuple) == 2) {
        limits->bytes[0] = PyLong_AsSsize_t(PyTuple_GET_ITEM(limits->tuple, 0));
        limits->bytes[1] = PyLong_AsSsize_t(PyTuple_GET_ITEM(limits->tuple, 1));
        if (!PyErr_Occurred()) {
            return 1;
        }
    }
    PyErr_Clear(); /* of limits that are no sizes; the method asks them in Python */
    Py_CLEAR(limits->tuple);
    return 0;
}

static int
is_below(PyArrayObject *block, const Limits *limits)
{
    return PyArray_NBYTES(block) < limits->bytes[PyArray_NDIM(block) > 1];
}

/* The block of an array that every rank has, and which is small, of usual elements; borrowed. */
static PyArrayObject *
small_block(PyObject *x, const Limits *limits, int whole)
{
    PyArrayObject *block = whole_block(x);
    if (block == NULL || !(whole || IS_SMALL(LAYOUT(x))) || !is_below(block, limits)) {
        return NULL;
    }
    int type = PyArray_TYPE(block);
    return type >= 0 && type < TYPES && known.elements[type] ? block : NULL;
}

/* Whether an argument is passed to NumPy as it is. */
static int
is_plain(PyObject *value)
{
    if (!PyTuple_CheckExact(value)) {
        return is_number(value) || has_type_in(value, known.plain);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(value, i))) {
            return 0;
        }
    }
    return 1;
}

/* The arguments of a call of NumPy's, with blocks in place of arrays. The caller holds `args`; the
   rest is held from `hold` to `let_go`. */
typedef struct {
    PyObject *const *args;
    PyObject *given[MOST_ARGUMENTS];
    Py_ssize_t total; /* with those that have names */
    PyObject *model, *layout, *mesh; /* of the first array */
} Call;

static void
hold(Call *call)
{
    call->layout = Py_NewRef(LAYOUT(call->model));
    call->mesh = Py_NewRef(MESH(call->model));
    for (Py_ssize_t i = 0; i < call->total; i++) {
        Py_INCREF(call->given[i]);
    }
}

static void
let_go(Call *call)
{
    for (Py_ssize_t i = 0; i < call->total; i++) {
        Py_DECREF(call->given[i]);
    }
    Py_DECREF(call->mesh);
    Py_DECREF(call->layout);
}

/* Whether parameters are NumPy's. */
static int
are_numpys(PyObject *names)
{
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (!PyUnicode_CheckExact(name) || PySet_Contains(known.ours, name) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Put blocks in the place of arrays; false if NumPy cannot be called. Nothing is counted yet. */
static int
fill(Call *call, const Limits *limits, int whole)
{
    npy_intp elements = 1, arrays = 0;
    PyArrayObject *last = NULL;
    for (Py_ssize_t i = 0; i < call->total; i++) {
        PyObject *value = call->args[i];
        if (Py_TYPE(value) == known.array) {
            PyObject *block = (PyObject *)small_block(value, limits, whole);
            if (block == NULL || (call->model != NULL && MESH(value) != MESH(call->model))) {
                return 0;
            }
            call->model = call->model == NULL ? value : call->model;
            value = block;
        }
        else if (!is_plain(value)) {
            return 0;
        }
        if (PyArray_CheckExact(value)) {
            PyArrayObject *block = (PyArrayObject *)value;
            int is_vast = (last == NULL || !PyArray_SAMESHAPE(last, block)) &&
                          __builtin_mul_overflow(elements, PyArray_SIZE(block), &elements);
            last = block;
            if (++arrays > 1 && (is_vast || elements > known.most)) {
                return 0; /* the result may be too large to stay whole */
            }
        }
        call->given[i] = value;
    }
    return call->model != NULL;
}

/* The same by at_hand.given_out, which also keeps objects whole, however many there are: a function
   of Python must not be called once more. */
static PyObject *
handed_out_in_python(PyObject *found, const Call *call, const Limits *limits)
{
    PyObject *items =
        PyObject_CallFunctionObjArgs(known.given_out, found, call->model, limits->tuple, NULL);
    Py_DECREF(found);
    if (items == Py_NotImplemented) {
        Py_CLEAR(items);
    }
    return items;
}

/* NumPy's result with arrays of ours in place of its own; the reference is taken. */
static PyObject *
handed_out(PyObject *found, const Call *call, const Limits *limits)
{
    if (found == NULL || found == Py_None || PyArray_IsScalar(found, Generic)) {
        return found;
    }
    if (!PyArray_CheckExact(found)) {
        return handed_out_in_python(found, call, limits);
    }
    for (Py_ssize_t i = 0; i < call->total; i++) {
        if (found == call->given[i]) { /* such as `out` */
            Py_DECREF(found);
            return Py_NewRef(call->args[i]);
        }
    }
    if (!is_below((PyArrayObject *)found, limits) || !IS_SMALL(call->layout)) {
        return handed_out_in_python(found, call, limits);
    }
    return small_array(found, call->layout, call->mesh);
}

/* As at_hand.answer: what NumPy gives for small arrays that every rank has whole. */
static PyObject *
answer(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *names, int whole)
{
    Call call = {.args = args, .total = count};
    Limits limits;
    call.total += names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (call.total > MOST_ARGUMENTS || !are_numpys(names) || !limits_in_force(&limits)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (fill(&call, &limits, whole) &&
        (Py_TYPE(function) != &PyMethodDescr_Type || PyArray_CheckExact(call.given[0]))) {
        hold(&call);
        PyObject *found = PyObject_Vectorcall(function, call.given, count, names);
        result = handed_out(found, &call, &limits);
        let_go(&call);
    }
    Py_DECREF(limits.tuple);
    return result;
}

/* The result of a method of an array. */
static PyObject *
of_method(Way *way, PyObject *const *args, Py_ssize_t count, PyObject *names, int whole)
{
    if (count == 0 || Py_TYPE(args[0]) != known.array || !is_unwatched()) {
        return NULL;
    }
    return answer(way->numpys, args, count, names, whole);
}

PyObject *
method(ARGUMENTS)
{
    PyObject *found = of_method(way, args, PyVectorcall_NARGS(nargsf), names, 0);
    return FOUND_OR_IN_PYTHON(found);
}

/* As `method`, for one that gives a number if it has no arguments, and then needs no layout. */
PyObject *
number(ARGUMENTS)
{
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    PyObject *found = of_method(way, args, count, names, count == 1 && names == NULL);
    return FOUND_OR_IN_PYTHON(found);
}

/* Whether vectors or matrices can be multiplied, and give few elements. */
static int
are_multiplied(PyArrayObject *a, PyArrayObject *b)
{
    int m = PyArray_NDIM(a), n = PyArray_NDIM(b);
    if (m < 1 || m > 2 || n < 1 || n > 2 || PyArray_DIM(a, m - 1) != PyArray_DIM(b, 0)) {
        return 0;
    }
    npy_intp rows = m == 2 ? PyArray_DIM(a, 0) : 1, columns = n == 2 ? PyArray_DIM(b, 1) : 1;
    npy_intp elements;
    return !__builtin_mul_overflow(rows, columns, &elements) && elements <= known.most;
}

static PyObject *
product_of(PyObject *matmul, PyObject *const *args)
{
    PyArrayObject *a = whole_block(args[0]), *b = whole_block(args[1]);
    Limits limits;
    if (a == NULL || b == NULL || MESH(args[0]) != MESH(args[1]) || !are_multiplied(a, b) ||
        !limits_in_force(&limits)) {
        return NULL;
    }
    PyObject *found = NULL;
    if (small_block(args[0], &limits, 0) != NULL && small_block(args[1], &limits, 0) != NULL) {
        Call call = {args, {(PyObject *)a, (PyObject *)b}, .total = 2, .model = args[0]};
        hold(&call);
        found = PyObject_Vectorcall(matmul, call.given, 2, NULL);
        found = handed_out(found, &call, &limits);
        let_go(&call);
    }
    Py_DECREF(limits.tuple);
    return found;
}

/* The operator @ of vectors and matrices whose product is small. */
PyObject *
product(ARGUMENTS)
{
    PyObject *found = NULL;
    if (PyVectorcall_NARGS(nargsf) == 2 && names == NULL && is_unwatched()) {
        found = product_of(way->numpys, args);
    }
    return FOUND_OR_IN_PYTHON(found);
}

/* What is called for one of NumPy's functions on small arrays: a new reference, or NULL. */
static PyObject *
row_of(PyObject *function)
{
    PyObject *row = Py_XNewRef(PyDict_GetItemWithError(known.functions, function));
    PyObject *small = row == NULL ? NULL : PyObject_GetAttr(row, known.name_small);
    Py_XDECREF(row);
    if (small == NULL) {
        PyErr_Clear(); /* of a function that cannot be a key */
    }
    if (small == Py_None) {
        Py_CLEAR(small);
    }
    return small;
}

/* A call whose arguments are a tuple and a dictionary. */
static PyObject *
answer_to_packed(PyObject *function, PyObject *args, PyObject *named)
{
    PyObject *all[MOST_ARGUMENTS], *name, *value;
    Py_ssize_t count = PyTuple_GET_SIZE(args), more = PyDict_GET_SIZE(named), position = 0, at = 0;
    if (more == 0) {
        return answer(function, &PyTuple_GET_ITEM(args, 0), count, NULL, 0);
    }
    if (count + more > MOST_ARGUMENTS) {
        return NULL;
    }
    PyObject *names = PyTuple_New(more);
    if (names == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        all[i] = PyTuple_GET_ITEM(args, i);
    }
    /* The dictionary may change: while a tuple is made, and while the function is called. */
    while (at < more && PyDict_Next(named, &position, &name, &value)) {
        all[count + at] = Py_NewRef(value);
        PyTuple_SET_ITEM(names, at++, Py_NewRef(name));
    }
    PyObject *found = at < more ? NULL : answer(function, all, count, names, 0);
    while (at > 0) {
        Py_DECREF(all[count + --at]);
    }
    Py_DECREF(names);
    return found;
}

/* __array_function__(self, function, types, args, kwargs) */
PyObject *
array_function(ARGUMENTS)
{
    PyObject *found = NULL;
    if (PyVectorcall_NARGS(nargsf) == 5 && names == NULL && PyTuple_CheckExact(args[3]) &&
        PyTuple_GET_SIZE(args[3]) > 0 && PyDict_CheckExact(args[4]) && is_unwatched()) {
        PyObject *small = row_of(args[1]);
        if (small != NULL) {
            found = answer_to_packed(small, args[3], args[4]);
            Py_DECREF(small);
        }
    }
    return FOUND_OR_IN_PYTHON(found);
}
