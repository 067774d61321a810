/* Indexing and assignment with keys that NumPy reads as this library does. */

#include "ways.h"

static PyObject *
item(PyObject *x, PyObject *key)
{
    PyArrayObject *block = whole_block(x);
    if (block == NULL || !is_basic(key)) {
        return NULL;
    }
    if (is_special(block) || !IS_SMALL(LAYOUT(x))) {
        return NULL;
    }
    if (PyLong_CheckExact(key)) {
        PyObject *row = PyObject_GetItem((PyObject *)block, key);
        int is_array = row != NULL && PyArray_CheckExact(row);
        return is_array ? wrapped(row, SLOT(LAYOUT(x), row), MESH(x)) : row;
    }
    /* Slices may contain the program's own number objects, which may run any code. */
    PyObject *layout = Py_NewRef(LAYOUT(x)), *mesh = Py_NewRef(MESH(x));
    Py_INCREF(block);
    PyObject *part = PyObject_GetItem((PyObject *)block, key);
    if (part != NULL && PyArray_CheckExact(part)) {
        part = small_array(part, layout, mesh);
    }
    Py_DECREF(block);
    Py_DECREF(mesh);
    Py_DECREF(layout);
    return part;
}

PyObject *
get_item(ARGUMENTS)
{
    PyObject *found = NULL;
    if (PyVectorcall_NARGS(nargsf) == 2 && names == NULL) {
        found = item(args[0], args[1]);
    }
    return FOUND_OR_IN_PYTHON(found);
}

/* Return the value that NumPy copies into a block: a number, a NumPy array, or the block of a whole
   array; otherwise NULL. */
static PyObject *
to_be_copied(PyObject *value, PyObject *x)
{
    return PyArray_CheckExact(value) ? value : beside(x, value);
}

PyObject *
set_item(ARGUMENTS)
{
    if (PyVectorcall_NARGS(nargsf) == 3 && names == NULL) {
        PyArrayObject *block = whole_block(args[0]);
        if (block != NULL && !is_special(block) && is_basic(args[1])) {
            PyObject *value = to_be_copied(args[2], args[0]);
            if (value != NULL) {
                Py_INCREF(block);
                Py_INCREF(value);
                int failed = PyObject_SetItem((PyObject *)block, args[1], value) < 0;
                Py_DECREF(value);
                Py_DECREF(block);
                return failed ? NULL : Py_NewRef(Py_None);
            }
        }
    }
    return in_python(way, args, nargsf, names);
}
