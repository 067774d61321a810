/* Elementwise operators and ufuncs, on the blocks of arrays in one layout. */

#include "ways.h"

/* True if an operation needs the blocks only, and its result is no scalar. */
static int
lies_well(PyObject *layout)
{
    return PyTuple_GET_SIZE(SLOT(layout, partials)) == 0 &&
           PyTuple_GET_SIZE(SLOT(layout, shape)) > 0 && !is_large(layout) &&
           (IS_WHOLE(layout) || !is_observed());
}

/* Return the one of two small arrays to whose shape both broadcast; see plan.whole_pair. */
static PyObject *
wider(PyObject *x, PyObject *y)
{
    if (!IS_SMALL(LAYOUT(x)) || SLOT(LAYOUT(x), replicas) != SLOT(LAYOUT(y), replicas)) {
        return NULL;
    }
    PyArrayObject *wide = whole_block(x), *narrow = whole_block(y);
    if (wide == NULL || narrow == NULL) {
        return NULL;
    }
    int more = PyArray_NDIM(wide) - PyArray_NDIM(narrow);
    if (more < 0 || (more == 0 && PyArray_SIZE(wide) < PyArray_SIZE(narrow))) {
        PyArrayObject *other = wide;
        wide = narrow, narrow = other;
        x = y;
        more = -more;
    }
    for (int i = 0; i < PyArray_NDIM(narrow); i++) {
        npy_intp extent = PyArray_DIM(narrow, i);
        if (extent != 1 && extent != PyArray_DIM(wide, more + i)) {
            return NULL;
        }
    }
    return x;
}

/* Return the operand with the layout of the result; at least one operand is an array. */
static PyObject *
model_of(PyObject *x, PyObject *y)
{
    if (!IS_ARRAY(x)) {
        return IS_ARRAY(y) && is_number(x) ? y : NULL;
    }
    if (!IS_ARRAY(y)) {
        return is_number(y) ? x : NULL;
    }
    if (MESH(x) != MESH(y)) {
        return NULL;
    }
    return LAYOUT(x) == LAYOUT(y) ? x : wider(x, y);
}

/* Call a function of one or two operands (DistArrays or numbers) on the blocks. */
static PyObject *
of_blocks(PyObject *function, PyObject *x, PyObject *y, PyObject *model)
{
    int is_numpys = PyArray_Check(BLOCK(model));
    PyObject *a = Py_NewRef(IS_ARRAY(x) ? BLOCK(x) : x);
    PyObject *b = y == NULL ? NULL : Py_NewRef(IS_ARRAY(y) ? BLOCK(y) : y);
    PyObject *layout = Py_NewRef(LAYOUT(model)), *mesh = Py_NewRef(MESH(model));
    PyObject *given[] = {a, b};
    PyObject *found = PyObject_Vectorcall(function, given, y == NULL ? 1 : 2, NULL);
    PyObject *result = wrapped(found, layout, mesh);
    Py_DECREF(mesh);
    Py_DECREF(layout);
    Py_XDECREF(b);
    Py_DECREF(a);
    /* A device lacks some functions, and some types; the Python method then uses NumPy. */
    if (result == NULL && !is_numpys && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
    }
    return result;
}

static PyObject *
of_two(PyObject *ufunc, PyObject *x, PyObject *y, int whole)
{
    PyObject *model = model_of(x, y);
    if (model == NULL || !lies_well(LAYOUT(model)) || (whole && !IS_WHOLE(LAYOUT(model)))) {
        return NULL;
    }
    return of_blocks(ufunc, x, y, model);
}

static PyObject *
of_one(PyObject *ufunc, PyObject *x, int whole)
{
    if (!IS_ARRAY(x) || !lies_well(LAYOUT(x)) || (whole && !IS_WHOLE(LAYOUT(x)))) {
        return NULL;
    }
    return of_blocks(ufunc, x, NULL, x);
}

/* Compute an operator of two operands. */
static PyObject *
of_operator(ARGUMENTS)
{
    if (PyVectorcall_NARGS(nargsf) != 2 || names != NULL || !is_usual()) {
        return NULL;
    }
    return of_two(way->numpys, args[0], args[1], 0);
}

PyObject *
binary(ARGUMENTS)
{
    PyObject *found = of_operator(way, args, nargsf, names);
    return FOUND_OR_IN_PYTHON(found);
}

/* As `binary`; if NumPy cannot compare the types, the Python method computes every element. */
PyObject *
equality(ARGUMENTS)
{
    PyObject *found = of_operator(way, args, nargsf, names);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
    }
    return FOUND_OR_IN_PYTHON(found);
}

/* Compute an operator whose left operand is a number. */
PyObject *
reflected(ARGUMENTS)
{
    PyObject *found = NULL;
    if (PyVectorcall_NARGS(nargsf) == 2 && names == NULL && is_number(args[1]) && is_usual()) {
        found = of_two(way->numpys, args[1], args[0], 0);
    }
    return FOUND_OR_IN_PYTHON(found);
}

PyObject *
unary(ARGUMENTS)
{
    PyObject *found = NULL;
    if (PyVectorcall_NARGS(nargsf) == 1 && names == NULL && is_usual()) {
        found = of_one(way->numpys, args[0], 0);
    }
    return FOUND_OR_IN_PYTHON(found);
}

static int
is_inexact(PyArrayObject *block)
{
    return PyTypeNum_ISFLOAT(PyArray_TYPE(block)) || PyTypeNum_ISCOMPLEX(PyArray_TYPE(block));
}

/* Raise inexact numbers to the power of a Python number; NumPy's operator has special cases. */
PyObject *
power(ARGUMENTS)
{
    PyObject *found = NULL;
    if (PyVectorcall_NARGS(nargsf) == 2 && names == NULL && IS_ARRAY(args[0]) &&
        (PyFloat_CheckExact(args[1]) || PyLong_CheckExact(args[1])) && is_usual()) {
        PyObject *block = BLOCK(args[0]), *layout = LAYOUT(args[0]);
        if (PyArray_CheckExact(block) && lies_well(layout) &&
            is_inexact((PyArrayObject *)block)) {
            PyObject *mesh = Py_NewRef(MESH(args[0]));
            Py_INCREF(block);
            Py_INCREF(layout);
            found = wrapped(PyNumber_Power(block, args[1], Py_None), layout, mesh);
            Py_DECREF(layout);
            Py_DECREF(block);
            Py_DECREF(mesh);
        }
    }
    return FOUND_OR_IN_PYTHON(found);
}

PyObject *
in_place(ARGUMENTS)
{
    if (PyVectorcall_NARGS(nargsf) == 2 && names == NULL && is_usual()) {
        PyObject *block = (PyObject *)whole_block(args[0]);
        PyObject *other = block == NULL ? NULL : beside(args[0], args[1]);
        if (other != NULL) {
            PyObject *given[] = {Py_NewRef(block), Py_NewRef(other), block};
            PyObject *found = PyObject_Vectorcall(way->numpys, given, 2, known.names_out);
            Py_DECREF(other);
            Py_DECREF(block);
            if (found == NULL) {
                return NULL;
            }
            Py_DECREF(found);
            return Py_NewRef(args[0]);
        }
    }
    return in_python(way, args, nargsf, names);
}

static int
is_elementwise(PyObject *ufunc)
{
    int found = PySet_Contains(known.elementwise, ufunc);
    if (found < 0) {
        PyErr_Clear(); /* a program may pass any object */
    }
    return found == 1;
}

/* __array_ufunc__(self, ufunc, "__call__", *inputs), for an elementwise ufunc. */
PyObject *
array_ufunc(ARGUMENTS)
{
    PyObject *found = NULL;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if ((count == 4 || count == 5) && names == NULL && PyUnicode_Check(args[2]) &&
        PyUnicode_Compare(args[2], known.name_call) == 0 && is_usual() &&
        is_elementwise(args[1])) {
        found = count == 4 ? of_one(args[1], args[3], 1) : of_two(args[1], args[3], args[4], 1);
    }
    return FOUND_OR_IN_PYTHON(found);
}
