/* The type `Way`, and the objects that Python passes to this module. */

#define OWNS_NUMPYS_TABLE
#include "ways.h"

struct Known known;

/* -- the type ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    vectorcallfunc call;
} kinds[] = {
    {"get_item", (vectorcallfunc)get_item},
    {"set_item", (vectorcallfunc)set_item},
    {"binary", (vectorcallfunc)binary},
    {"equality", (vectorcallfunc)equality},
    {"reflected", (vectorcallfunc)reflected},
    {"unary", (vectorcallfunc)unary},
    {"power", (vectorcallfunc)power},
    {"in_place", (vectorcallfunc)in_place},
    {"method", (vectorcallfunc)method},
    {"number", (vectorcallfunc)number},
    {"product", (vectorcallfunc)product},
    {"array_ufunc", (vectorcallfunc)array_ufunc},
    {"array_function", (vectorcallfunc)array_function},
};

static PyObject *
way_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    const char *kind;
    PyObject *method, *numpys = Py_None;
    if (!PyArg_ParseTuple(args, "sO|O:Way", &kind, &method, &numpys)) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (strcmp(kinds[i].name, kind) == 0) {
            Way *way = (Way *)type->tp_alloc(type, 0);
            if (way != NULL) {
                way->call = kinds[i].call;
                way->method = Py_NewRef(method);
                way->numpys = Py_NewRef(numpys);
            }
            return (PyObject *)way;
        }
    }
    return PyErr_Format(PyExc_ValueError, "no way is called %s", kind);
}

static PyObject *
way_get(PyObject *way, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(way) : PyMethod_New(way, object);
}

static int
way_traverse(Way *way, visitproc visit, void *arg)
{
    Py_VISIT(way->method);
    Py_VISIT(way->numpys);
    Py_VISIT(way->dict);
    return 0;
}

/* The method is not cleared: a way may be called while the garbage collector clears its cycle. The
   class that contains the way breaks a cycle through the method. */
static int
way_clear(Way *way)
{
    Py_CLEAR(way->dict);
    return 0;
}

static void
way_dealloc(Way *way)
{
    PyObject_GC_UnTrack(way);
    Py_XDECREF(way->method);
    Py_XDECREF(way->numpys);
    Py_XDECREF(way->dict);
    Py_TYPE(way)->tp_free(way);
}

static PyGetSetDef way_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

static PyTypeObject WayType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "distarray.array.speedups._ways.Way",
    .tp_doc = PyDoc_STR("Way(kind, method, numpys=None): a method of DistArray, quicker on small arrays."),
    .tp_basicsize = sizeof(Way),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = way_new,
    .tp_dealloc = (destructor)way_dealloc,
    .tp_traverse = (traverseproc)way_traverse,
    .tp_clear = (inquiry)way_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Way, call),
    .tp_descr_get = way_get,
    .tp_getset = way_getset,
    .tp_dictoffset = offsetof(Way, dict),
};

/* -- objects from Python ------------------------------------------------------------------------ */

static const struct {
    const char *name;
    PyObject **place;
    PyTypeObject *type;
} objects[] = {
    {"error_state", &known.error_state, NULL},
    {"is_observed", &known.is_observed, NULL},
    {"observed", &known.observed, &PyDict_Type},
    {"warnings", &known.warnings, &PyDict_Type},
    {"settings", &known.settings, &PyContextVar_Type},
    {"base", &known.base, &PyList_Type},
    {"usual", &known.usual, &PyList_Type},
    {"unwatched", &known.unwatched, &PyList_Type},
    {"basic_keys", &known.basic_keys, &PySet_Type},
    {"functions", &known.functions, &PyDict_Type},
    {"numbers", &known.numbers, &PyFrozenSet_Type},
    {"plain", &known.plain, &PyFrozenSet_Type},
    {"elementwise", &known.elementwise, &PyFrozenSet_Type},
    {"ours", &known.ours, &PyFrozenSet_Type},
    {"temporaries", &known.temporaries, &PyDict_Type},
    {"given_out", &known.given_out, NULL},
    {"made_again", &known.made_again, NULL},
    {"array", (PyObject **)&known.array, &PyType_Type}, /* last: before that no object is one */
};

/* Names that comm.observed compares: in `warnings`, and in itself for the values seen last. */
static const char *const asked[ASKED][2] = {
    {"filters", "_filters"}, {"_showwarnmsg_impl", "_receive"}, {"showwarning", "_show"},
};

static const struct {
    const char *name;
    Py_ssize_t *place;
    PyTypeObject **owner;
} slots[] = {
    {"block", &known.block, NULL},
    {"layout", &known.layout, NULL},
    {"mesh", &known.mesh, NULL},
    {"shape", &known.shape, NULL},
    {"size", &known.size, NULL},
    {"is_whole", &known.is_whole, NULL},
    {"partials", &known.partials, NULL},
    {"replicas", &known.replicas, NULL},
    {"row", &known.row, &known.layouts},
    {"coords", &known.coords, &known.meshes},
};

/* Return the entry of a dictionary, borrowed; NULL with an error if it is missing. */
static PyObject *
entry(PyObject *from, const char *name)
{
    PyObject *found = PyDict_GetItemString(from, name);
    if (found == NULL) {
        PyErr_Format(PyExc_KeyError, "%s was not handed over", name);
    }
    return found;
}

static int
adopt_slots(PyObject *from)
{
    for (size_t i = 0; i < sizeof(slots) / sizeof(*slots); i++) {
        PyObject *member = entry(from, slots[i].name);
        if (member == NULL) {
            return 0;
        }
        if (Py_TYPE(member) != &PyMemberDescr_Type ||
            ((PyMemberDescrObject *)member)->d_member->type != T_OBJECT_EX) {
            PyErr_Format(PyExc_TypeError, "%s is no slot", slots[i].name);
            return 0;
        }
        *slots[i].place = ((PyMemberDescrObject *)member)->d_member->offset;
        if (slots[i].owner != NULL) {
            Py_XSETREF(*slots[i].owner, (PyTypeObject *)Py_NewRef(PyDescr_TYPE(member)));
        }
    }
    return 1;
}

static int
adopt_objects(PyObject *from)
{
    for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++) {
        PyObject *found = entry(from, objects[i].name);
        if (found == NULL) {
            return 0;
        }
        if (objects[i].type != NULL && !PyObject_TypeCheck(found, objects[i].type)) {
            PyErr_Format(PyExc_TypeError, "%s has another type", objects[i].name);
            return 0;
        }
        Py_XSETREF(*objects[i].place, Py_NewRef(found));
    }
    return 1;
}

/* Set the table of element types from NumPy's type characters. */
static int
adopt_elements(PyObject *characters)
{
    for (int type = 0; characters != NULL && type < TYPES; type++) {
        PyArray_Descr *descr = PyArray_DescrFromType(type);
        PyObject *character = descr == NULL ? NULL : PyUnicode_FromFormat("%c", descr->type);
        int found = character == NULL ? -1 : PySet_Contains(characters, character);
        Py_XDECREF(character);
        Py_XDECREF(descr);
        if (found < 0) {
            return 0;
        }
        known.elements[type] = found == 1;
    }
    return characters != NULL;
}

PyDoc_STRVAR(adopt_doc, "adopt(objects, slots, elements, most)\n--\n\n"
                        "Take over what the ways ask; see adopted.py.");

static PyObject *
adopt(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *from, *members, *characters;
    if (!PyArg_ParseTuple(args, "O!O!On:adopt", &PyDict_Type, &from, &PyDict_Type, &members,
                          &characters, &known.most)) {
        return NULL;
    }
    if (!adopt_slots(members) || !adopt_elements(characters) || !adopt_objects(from)) {
        return NULL;
    }
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(grouped_doc, "grouped(keys, starts, arrays, into)\n--\n\n"
                          "The rows of arrays ordered by owner; see rows.py.");

PyDoc_STRVAR(scattered_doc, "scattered(block, places, start, values)\n--\n\n"
                            "Write rows to their places; see rows.py.");

/* Return the value in a slot of an object, or None; `member` is the slot's descriptor. */
static PyObject *
value_or_none(PyObject *member, PyObject *object)
{
    if (!PyObject_TypeCheck(object, PyDescr_TYPE(member))) {
        return PyErr_Format(PyExc_TypeError, "not of the class that has the slot");
    }
    Py_ssize_t offset = ((PyMemberDescrObject *)member)->d_member->offset;
    PyObject *value = *(PyObject **)((char *)object + offset);
    return Py_NewRef(value == NULL ? Py_None : value);
}

static PyMethodDef getter_of_slot = {"value_or_none", value_or_none, METH_O, NULL};

PyDoc_STRVAR(getter_doc, "getter(member)\n--\n\n"
                         "A function that gives what a slot of an object has, or None.");

static PyObject *
getter_of(PyObject *Py_UNUSED(module), PyObject *member)
{
    if (Py_TYPE(member) != &PyMemberDescr_Type ||
        ((PyMemberDescrObject *)member)->d_member->type != T_OBJECT_EX) {
        return PyErr_Format(PyExc_TypeError, "no slot");
    }
    return PyCFunction_New(&getter_of_slot, member);
}

PyDoc_STRVAR(noting_doc, "noting(slots)\n--\n\n"
                         "The function that notes views of arrays; see sharing.py.");

static PyMethodDef functions[] = {
    {"noting", noting, METH_O, noting_doc},
    {"getter", getter_of, METH_O, getter_doc},
    {"adopt", adopt, METH_VARARGS, adopt_doc},
    {"grouped", grouped, METH_VARARGS, grouped_doc},
    {"scattered", scattered, METH_VARARGS, scattered_doc},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "distarray.array.speedups._ways",
    .m_doc = PyDoc_STR("The short ways of small arrays, in C."),
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__ways(void)
{
    import_array();
    known.name_cut_from = PyUnicode_InternFromString("cut_from");
    known.name_reproducible = PyUnicode_InternFromString("reproducible");
    known.name_small = PyUnicode_InternFromString("small");
    known.name_large = PyUnicode_InternFromString("LARGE");
    for (int i = 0; i < ASKED; i++) {
        known.names_asked[i] = PyUnicode_InternFromString(asked[i][0]);
        known.names_seen[i] = PyUnicode_InternFromString(asked[i][1]);
    }
    known.name_observed = PyUnicode_InternFromString("_observed");
    known.name_call = PyUnicode_InternFromString("__call__");
    known.names_out = Py_BuildValue("(s)", "out");
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyErr_Occurred() || PyModule_AddType(module, &WayType) < 0 ||
        PyModule_AddType(module, &StepsType) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
