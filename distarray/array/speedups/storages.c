/* Registration of views of arrays, which every slice of a cut array needs; see sharing.py. */

#include "ways.h"

/* Offsets of the slots of DistArray, Storage and Materialization. */
static struct {
    PyTypeObject *array, *storage, *materialization;
    Py_ssize_t own, source, parent, make, block, kind, late, base, depth, arrays, most;
} at;

#define AT(object, name) (*(PyObject **)((char *)(object) + at.name))

static const struct {
    const char *name;
    Py_ssize_t *place;
    PyTypeObject **owner;
} slots[] = {
    {"_storage", &at.own, &at.array},
    {"source", &at.source, &at.storage},
    {"parent", &at.parent, &at.storage},
    {"make", &at.make, &at.storage},
    {"block", &at.block, &at.storage},
    {"kind", &at.kind, &at.storage},
    {"late", &at.late, &at.storage},
    {"base", &at.base, &at.storage},
    {"depth", &at.depth, &at.storage},
    {"arrays", &at.arrays, &at.materialization},
    {"_most", &at.most, &at.materialization},
};

/* Create the storage of a view, without registering it. */
static PyObject *
storage_over(PyObject *x, PyObject *above, PyObject *make)
{
    PyObject *own = PyType_GenericAlloc(at.storage, 0);
    if (own != NULL) {
        PyObject *base = AT(above, base) == Py_None ? x : AT(above, base);
        AT(own, source) = Py_NewRef(AT(above, source));
        AT(own, parent) = Py_NewRef(above);
        AT(own, make) = Py_NewRef(make);
        AT(own, block) = Py_NewRef(Py_None);
        AT(own, kind) = Py_NewRef(Py_None);
        AT(own, late) = Py_NewRef(Py_None);
        AT(own, base) = Py_NewRef(base);
        AT(own, depth) = PyLong_FromSsize_t(PyLong_AsSsize_t(AT(above, depth)) + 1);
        if (AT(own, depth) == NULL) {
            Py_CLEAR(own);
        }
    }
    return own;
}

/* True if an array has a complete storage. Storages of the classes' own functions are complete. */
static int
is_entered(PyObject *x)
{
    PyObject *own = PyObject_TypeCheck(x, at.array) ? AT(x, own) : NULL;
    PyObject *source = own != NULL && Py_TYPE(own) == at.storage ? AT(own, source) : NULL;
    return source != NULL && AT(own, base) != NULL && AT(own, depth) != NULL &&
           PyLong_CheckExact(AT(own, depth)) && Py_TYPE(source) == at.materialization &&
           AT(source, arrays) != NULL && PyList_CheckExact(AT(source, arrays)) &&
           AT(source, most) != NULL && PyLong_CheckExact(AT(source, most));
}

/* Remove references to dead arrays if there may be many. */
static int
struck_off(PyObject *source)
{
    static PyObject *name = NULL;
    if (PyList_GET_SIZE(AT(source, arrays)) <= PyLong_AsSsize_t(AT(source, most))) {
        return 1;
    }
    if (name == NULL && (name = PyUnicode_InternFromString("strike_off")) == NULL) {
        return 0;
    }
    PyObject *done = PyObject_CallMethodNoArgs(source, name);
    Py_XDECREF(done);
    return done != NULL;
}

static PyObject *
noted(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !is_entered(args[0]) || !PyObject_TypeCheck(args[1], at.array)) {
        return PyErr_Format(PyExc_TypeError, "noted(array with a storage, view, function)");
    }
    PyObject *x = args[0], *view = args[1];
    PyObject *own = storage_over(x, AT(x, own), args[2]);
    PyObject *known = own == NULL ? NULL : PyWeakref_NewRef(view, NULL);
    if (known == NULL) {
        Py_XDECREF(own);
        return NULL;
    }
    PyObject *source = AT(own, source);
    Py_XSETREF(AT(view, own), Py_NewRef(own));
    int failed = PyList_Append(AT(source, arrays), known) < 0;
    Py_DECREF(known);
    if (failed || !struck_off(source)) {
        Py_DECREF(own);
        return NULL;
    }
    return own;
}

static PyMethodDef function = {
    "noted", (PyCFunction)(void (*)(void))noted, METH_FASTCALL,
    PyDoc_STR("noted(x, view, make)\n--\n\nNote a view of an array; its storage."),
};

/* Return the function `noted`, given the slots that it reads and fills. */
PyObject *
noting(PyObject *Py_UNUSED(module), PyObject *members)
{
    for (size_t i = 0; i < sizeof(slots) / sizeof(*slots); i++) {
        PyObject *member = PyDict_Check(members) ? PyDict_GetItemString(members, slots[i].name) : NULL;
        if (member == NULL || Py_TYPE(member) != &PyMemberDescr_Type ||
            ((PyMemberDescrObject *)member)->d_member->type != T_OBJECT_EX) {
            return PyErr_Format(PyExc_TypeError, "%s is no slot", slots[i].name);
        }
        *slots[i].place = ((PyMemberDescrObject *)member)->d_member->offset;
        Py_XSETREF(*slots[i].owner, (PyTypeObject *)Py_NewRef(PyDescr_TYPE(member)));
    }
    return PyCFunction_New(&function, NULL);
}
