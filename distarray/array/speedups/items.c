/* Indexing and assignment, where NumPy reads the key itself. */

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
    PyObject *layout = Py_NewRef(LAYOUT(x)); /* a key may be a program's, and run anything */
    Py_INCREF(block);
    PyObject *part = PyObject_GetItem((PyObject *)block, key);
    if (part != NULL && PyArray_CheckExact(part)) {
        part = PyLong_CheckExact(key) ? wrapped(part, SLOT(layout, row), MESH(x))
                                      : small_array(part, layout, MESH(x));
    }
    Py_DECREF(block);
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

/* What NumPy copies into a block as we do: numbers, its own arrays, and the blocks of ours. */
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
