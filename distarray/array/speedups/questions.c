/* What the ways ask of arrays and their state, and how they make arrays. */

#include "ways.h"

/* -- what is asked ------------------------------------------------------------------------------ */

PyObject *
in_python(ARGUMENTS)
{
    return PyObject_Vectorcall(way->method, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

/* Whether rungs 1 and 2 of the ladder have nothing to do. */
int
is_usual(void)
{
    PyObject *state = NULL;
    if (known.error_state == Py_None || PyContextVar_Get(known.error_state, NULL, &state) < 0) {
        PyErr_Clear();
        return 0;
    }
    int same = state != NULL && state == PyList_GET_ITEM(known.usual, 0);
    Py_XDECREF(state);
    return same;
}

/* Whether what decides who observes warnings is what comm.observed has seen last. */
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

/* Whether the program can tell that one rank has warned; as comm.observed.is_observed. */
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
    return PyList_GET_ITEM(known.unwatched, 0) == Py_True;
}

int
has_type_in(PyObject *value, PyObject *types)
{
    return PySet_Contains(types, (PyObject *)Py_TYPE(value)) == 1;
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

/* Whether NumPy reads a key as we do. */
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

/* The block of an array that every rank has whole, if it is NumPy's; borrowed. */
PyArrayObject *
whole_block(PyObject *x)
{
    if (!IS_ARRAY(x) || !IS_WHOLE(LAYOUT(x)) || SLOT(MESH(x), coords) == Py_None) {
        return NULL;
    }
    return PyArray_CheckExact(BLOCK(x)) ? (PyArrayObject *)BLOCK(x) : NULL;
}

/* An operand as NumPy takes it beside a whole block: a number, or the block of a whole array. */
PyObject *
beside(PyObject *x, PyObject *other)
{
    if (IS_ARRAY(other)) {
        return MESH(other) == MESH(x) && IS_WHOLE(LAYOUT(other)) ? BLOCK(other) : NULL;
    }
    return is_number(other) ? other : NULL;
}

/* Whether elements are records, Python objects or texts of any length: no scalars of NumPy's. */
int
is_special(PyArrayObject *block)
{
    char kind = PyArray_DESCR(block)->kind;
    return kind == 'V' || kind == 'O' || kind == 'T';
}

/* Whether operations on an array may be put off. */
int
is_large(PyObject *layout)
{
    PyObject *large = PyDict_GetItemWithError(known.temporaries, known.name_large);
    return large == NULL || PyLong_AsSsize_t(SLOT(layout, size)) >= PyLong_AsSsize_t(large);
}

/* -- results ------------------------------------------------------------------------------------ */

/* An array of a block, whose reference is taken, and which is NULL if there was an error. */
PyObject *
wrapped(PyObject *block, PyObject *layout, PyObject *mesh)
{
    if (block == NULL) {
        return NULL;
    }
    PyObject *x = known.array->tp_alloc(known.array, 0);
    if (x == NULL) {
        Py_DECREF(block);
        return NULL;
    }
    BLOCK(x) = block;
    LAYOUT(x) = Py_NewRef(layout);
    MESH(x) = Py_NewRef(mesh);
    return x;
}

/* The layout of a small array of this shape, on the mesh of another; a new reference. */
static PyObject *
small_layout(PyObject *layout, PyArrayObject *block)
{
    PyObject *replicas = SLOT(layout, replicas);
    PyObject *shape = PyArray_IntTupleFromIntp(PyArray_NDIM(block), PyArray_DIMS(block));
    if (shape == NULL) {
        return NULL;
    }
    PyObject *found = PyObject_GetItem(replicas, shape); /* makes what is missing */
    Py_DECREF(shape);
    return found;
}

/* As `wrapped`, for a small array, on the mesh of one with the layout `like`. */
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
