/* NumPy's functions and methods, for small arrays that every rank has whole; see at_hand.py. */

#include "ways.h"

/* Sizes in bytes from which arrays are cut: up to one dimension, and more; see
   config.Settings.cut_from. */
typedef struct {
    Py_ssize_t bytes[2];
    PyObject *tuple;
} Limits;

/* Read the limits, whose tuple is a new reference; 0 if config.reproducible prescribes the order of
   sums. */
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
    PyErr_Clear(); /* of limits that are no sizes; the Python method reads them */
    Py_CLEAR(limits->tuple);
    return 0;
}

static int
is_below(PyArrayObject *block, const Limits *limits)
{
    return PyArray_NBYTES(block) < limits->bytes[PyArray_NDIM(block) > 1];
}

/* Return the block (borrowed) of a small array that every rank has whole, with usual elements. */
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

/* True if an argument is passed to NumPy unchanged. */
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

/* Arguments of a call of NumPy's, with blocks in place of arrays. The caller holds references to
   `args`; the other references are held from `hold` to `let_go`. */
typedef struct {
    PyObject *const *args;
    PyObject *given[MOST_ARGUMENTS];
    Py_ssize_t total; /* with keyword arguments */
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

/* True if all keyword arguments are parameters of NumPy's. */
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

/* Put blocks in place of arrays; 0 if NumPy cannot be called. References are not counted yet. */
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

/* Wrap NumPy's result by at_hand.given_out. It keeps any number of Python objects whole, since a
   second call would call the program's Python functions again. */
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

/* Wrap NumPy's result: DistArrays in place of its arrays. Takes the reference to `found`. */
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

/* Compute NumPy's result for small arrays that every rank has whole, as at_hand.answer. */
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

/* Compute the result of a method of an array. */
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

/* As `method`, for methods that return a number if called without arguments; no layout is needed
   for that result, so the operand may have any whole layout. */
PyObject *
number(ARGUMENTS)
{
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    PyObject *found = of_method(way, args, count, names, count == 1 && names == NULL);
    return FOUND_OR_IN_PYTHON(found);
}

/* True if vectors or matrices can be multiplied, and the product has few elements. */
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

/* Compute the operator @ for vectors and matrices whose product is small. */
PyObject *
product(ARGUMENTS)
{
    PyObject *found = NULL;
    if (PyVectorcall_NARGS(nargsf) == 2 && names == NULL && is_unwatched()) {
        found = product_of(way->numpys, args);
    }
    return FOUND_OR_IN_PYTHON(found);
}

/* Return the function that replaces a NumPy function on small arrays: a new reference, or NULL. */
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

/* As `answer`, for arguments in a tuple and a dictionary. */
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
    /* The dictionary may change while the tuple is made, and while the function runs. */
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
