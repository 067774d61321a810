/* Checks of arrays and of the program's state, and construction of arrays, for the ways. */

#include "ways.h"

/* -- checks ------------------------------------------------------------------------------------- */

/* Repeat a failed call with stand-ins for objects whose type cannot be hashed. Without such objects
   restore the error. See unhashable.py. */
static PyObject *
made_again(Way *way, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *error, *value, *trace, *found = NULL;
    PyErr_Fetch(&error, &value, &trace);
    PyObject *given = PyTuple_New(count), *named = PyDict_New();
    for (Py_ssize_t i = 0; given != NULL && i < count; i++) {
        PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    }
    int failed = given == NULL || named == NULL;
    for (Py_ssize_t i = 0; !failed && names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        failed = PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), args[count + i]) < 0;
    }
    if (!failed) {
        found = PyObject_CallFunctionObjArgs(known.made_again, way->method, given, named, NULL);
    }
    Py_XDECREF(named);
    Py_XDECREF(given);
    if (found == Py_None) {
        PyErr_Restore(error, value, trace);
        Py_CLEAR(found);
        return NULL;
    }
    Py_XDECREF(error);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyObject *result = found == NULL ? NULL : Py_XNewRef(PyTuple_GetItem(found, 0));
    Py_XDECREF(found);
    return result;
}

PyObject *
in_python(ARGUMENTS)
{
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    PyObject *found = PyObject_Vectorcall(way->method, args, count, names);
    if (found == NULL && known.made_again != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        found = made_again(way, args, count, names);
    }
    return found;
}

/* True if steps 1 and 2 of the dispatcher (ladder.py) have no effect. */
int
is_usual(void)
{
    PyObject *state = NULL;
    if (known.error_state == NULL || known.error_state == Py_None) {
        return 0;
    }
    if (PyContextVar_Get(known.error_state, NULL, &state) < 0) {
        PyErr_Clear();
        return 0;
    }
    int same = state != NULL && state == PyList_GET_ITEM(known.usual, 0);
    Py_XDECREF(state);
    return same;
}

/* True if the filters and display of warnings are those that comm.observed has seen last. */
static int
is_as_seen(void)
{
    for (int i = 0; i < ASKED; i++) {
        PyObject *now = PyDict_GetItemWithError(known.warnings, known.names_asked[i]);
        PyObject *seen = PyDict_GetItemWithError(known.observed, known.names_seen[i]);
        if (now == NULL || seen == NULL) {
            return 0;
        }
        if (now != seen && (i > 0 || PyObject_RichCompareBool(now, seen, Py_EQ) != 1)) {
            return 0;
        }
    }
    return 1;
}

/* True if the program can observe a warning of one rank; as comm.observed.is_observed. */
int
is_observed(void)
{
    PyObject *found = NULL;
    if (is_as_seen()) {
        found = PyDict_GetItemWithError(known.observed, known.name_observed);
        Py_XINCREF(found);
    }
    else if (!PyErr_Occurred()) {
        found = PyObject_CallNoArgs(known.is_observed);
    }
    PyErr_Clear();
    int observed = found != Py_False;
    Py_XDECREF(found);
    return observed;
}

int
is_unwatched(void)
{
    return known.unwatched != NULL && PyList_GET_ITEM(known.unwatched, 0) == Py_True;
}

/* True if the type of a value is in a set. False if the type's metaclass overrides comparison of
   types: it could run any code, or raise. */
int
has_type_in(PyObject *value, PyObject *types)
{
    PyTypeObject *of_type = Py_TYPE(Py_TYPE(value));
    return of_type->tp_hash == PyType_Type.tp_hash &&
           of_type->tp_richcompare == PyType_Type.tp_richcompare &&
           PySet_Contains(types, (PyObject *)Py_TYPE(value)) == 1;
}

int
is_number(PyObject *value)
{
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value) ||
           has_type_in(value, known.numbers);
}

static int
is_basic_entry(PyObject *key)
{
    return PyLong_CheckExact(key) || PySlice_Check(key) || key == Py_None || key == Py_Ellipsis ||
           Py_TYPE(key) == &PyLongArrType_Type;
}

/* True if NumPy reads a key as this library does. */
int
is_basic(PyObject *key)
{
    if (PySet_GET_SIZE(known.basic_keys) == 0) {
        return 0;
    }
    if (!PyTuple_CheckExact(key)) {
        return is_basic_entry(key);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
        if (!is_basic_entry(PyTuple_GET_ITEM(key, i))) {
            return 0;
        }
    }
    return 1;
}

/* Return the NumPy block (borrowed) of an array that every rank has whole; otherwise NULL. */
PyArrayObject *
whole_block(PyObject *x)
{
    if (!IS_ARRAY(x) || !IS_WHOLE(LAYOUT(x)) || SLOT(MESH(x), coords) == Py_None) {
        return NULL;
    }
    return PyArray_CheckExact(BLOCK(x)) ? (PyArrayObject *)BLOCK(x) : NULL;
}

/* Return the operand for NumPy beside a whole block: a number, or the block of a whole array. */
PyObject *
beside(PyObject *x, PyObject *other)
{
    if (IS_ARRAY(other)) {
        return MESH(other) == MESH(x) && IS_WHOLE(LAYOUT(other)) ? BLOCK(other) : NULL;
    }
    return is_number(other) ? other : NULL;
}

/* True if elements are records, Python objects or strings of variable length: no plain scalars. */
int
is_special(PyArrayObject *block)
{
    char kind = PyArray_DESCR(block)->kind;
    return kind == 'V' || kind == 'O' || kind == 'T';
}

/* True if operations on an array may be deferred. */
int
is_large(PyObject *layout)
{
    PyObject *large = PyDict_GetItemWithError(known.temporaries, known.name_large);
    Py_ssize_t size = PyLong_AsSsize_t(SLOT(layout, size));
    Py_ssize_t from = large == NULL ? 0 : PyLong_AsSsize_t(large);
    if (size < 0 || from < 0) {
        PyErr_Clear();
        return 1;
    }
    return size >= from;
}

/* -- results ------------------------------------------------------------------------------------ */

/* Return a DistArray of a block. Takes the reference to `block`, which is NULL after an error. */
PyObject *
wrapped(PyObject *block, PyObject *layout, PyObject *mesh)
{
    if (block == NULL) {
        return NULL;
    }
    Py_INCREF(layout); /* before the allocation, which may collect garbage */
    Py_INCREF(mesh);
    PyObject *x = known.array->tp_alloc(known.array, 0);
    if (x == NULL) {
        Py_DECREF(mesh);
        Py_DECREF(layout);
        Py_DECREF(block);
        return NULL;
    }
    BLOCK(x) = block;
    LAYOUT(x) = layout;
    MESH(x) = mesh;
    return x;
}

/* Return the layout of a small array of the block's shape, on the mesh of `layout`; a new
   reference. */
static PyObject *
small_layout(PyObject *layout, PyArrayObject *block)
{
    PyObject *shape = PyArray_IntTupleFromIntp(PyArray_NDIM(block), PyArray_DIMS(block));
    if (shape == NULL) {
        return NULL;
    }
    PyObject *replicas = Py_NewRef(SLOT(layout, replicas));
    PyObject *found = PyObject_GetItem(replicas, shape); /* creates a missing entry */
    Py_DECREF(replicas);
    Py_DECREF(shape);
    return found;
}

/* As `wrapped`, for a small array on a mesh; `like` is a layout there. The caller holds both. */
PyObject *
small_array(PyObject *block, PyObject *like, PyObject *mesh)
{
    PyObject *layout = small_layout(like, (PyArrayObject *)block);
    if (layout == NULL) {
        Py_DECREF(block);
        return NULL;
    }
    PyObject *x = wrapped(block, layout, mesh);
    Py_DECREF(layout);
    return x;
}
