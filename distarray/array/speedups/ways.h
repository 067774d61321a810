/* Fast paths of small arrays, in C.
 *
 * For arrays that every rank has whole, a call is NumPy's own call on the blocks. In a loop over
 * small arrays most of the time is spent on checking whether a call is of this kind. These checks
 * are in C here.
 *
 * A `Way` is a callable that replaces a method of DistArray and keeps this method. It computes the
 * result if the method would call NumPy on the blocks. It passes all other calls to the method, so
 * a program gets the same results with and without these files. __init__.py installs the ways.
 *
 * Functions that look for a result return NULL without an exception if they have none. Objects of
 * the program may run any code when NumPy uses them; so may warnings and the garbage collector.
 * Such code may write to a DistArray, or delete its attributes. So references that are needed after
 * a call are held, and the checks call no Python code.
 */

#ifndef DISTARRAY_WAYS_H
#define DISTARRAY_WAYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL distarray_numpys_table
#ifndef OWNS_NUMPYS_TABLE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#ifdef Py_GIL_DISABLED
#error "what is borrowed here from slots is safe under the interpreter's lock only"
#endif

enum { MOST_ARGUMENTS = 12, TYPES = 24, ASKED = 3 };

/* Objects that Python passes by `adopt`. */
extern struct Known {
    PyTypeObject *array;             /* DistArray */
    PyTypeObject *layouts, *meshes;  /* Layout and DeviceMesh */
    Py_ssize_t block, layout, mesh;  /* offsets of the slots of DistArray */
    Py_ssize_t shape, size, is_whole, partials, replicas, row, coords; /* and of these */
    PyObject *error_state;  /* NumPy's context variable, or None */
    PyObject *is_observed;  /* comm.observed.is_observed */
    PyObject *observed, *warnings;  /* names of comm.observed, and of Python's warnings */
    PyObject *settings;     /* context variable of the settings in force */
    PyObject *base;         /* list with the settings where that variable is not set */
    PyObject *usual, *unwatched, *basic_keys, *functions;  /* of ladder.py and registry.py */
    PyObject *numbers, *plain;  /* types: of numbers, and of arguments passed to NumPy unchanged */
    PyObject *elementwise;      /* elementwise ufuncs */
    PyObject *ours;             /* names of parameters that NumPy's functions do not have */
    PyObject *temporaries;      /* names of temporaries.py */
    PyObject *given_out;        /* at_hand.given_out */
    PyObject *made_again;       /* unhashable.made_again */
    npy_bool elements[TYPES];   /* at_hand.ELEMENTS, by NumPy's number of the type */
    Py_ssize_t most;            /* at_hand.MOST */
    PyObject *name_cut_from, *name_small, *name_reproducible, *name_call, *name_large, *names_out;
    PyObject *names_asked[ASKED], *names_seen[ASKED], *name_observed;
} known;

#define SLOT(object, name) (*(PyObject **)((char *)(object) + known.name))
#define BLOCK(x) SLOT(x, block)
#define LAYOUT(x) SLOT(x, layout)
#define MESH(x) SLOT(x, mesh)
#define HOLDS(x, name, type) (SLOT(x, name) != NULL && Py_TYPE(SLOT(x, name)) == (type))
/* True for a DistArray of no subclass: subclasses may not have computed their blocks yet. A program
   may have deleted attributes, or set them. */
#define IS_ARRAY(x)                                                                                \
    (Py_TYPE(x) == known.array && BLOCK(x) != NULL && HOLDS(x, layout, known.layouts) &&           \
     HOLDS(x, mesh, known.meshes))
#define IS_WHOLE(layout) (SLOT(layout, is_whole) == Py_True)
#define IS_SMALL(layout) (SLOT(layout, replicas) != Py_None)

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *method;  /* the method of DistArray, in Python */
    PyObject *numpys;  /* the ufunc, or the method of numpy.ndarray */
    PyObject *dict;    /* docstring and other attributes of the method */
} Way;

#define ARGUMENTS Way *way, PyObject *const *args, size_t nargsf, PyObject *names
#define FOUND_OR_IN_PYTHON(found)                                                                  \
    ((found) != NULL || PyErr_Occurred() ? (found) : in_python(way, args, nargsf, names))

/* questions.c */
PyObject *in_python(ARGUMENTS);
int is_usual(void);
int is_unwatched(void);
int is_observed(void);
int has_type_in(PyObject *value, PyObject *types);
int is_number(PyObject *value);
int is_basic(PyObject *key);
PyArrayObject *whole_block(PyObject *x);
PyObject *beside(PyObject *x, PyObject *other);
int is_special(PyArrayObject *block);
int is_large(PyObject *layout);
PyObject *wrapped(PyObject *block, PyObject *layout, PyObject *mesh);
PyObject *small_array(PyObject *block, PyObject *like, PyObject *mesh);

/* steps.c */
extern PyTypeObject StepsType;

/* storages.c */
PyObject *noting(PyObject *module, PyObject *members);

/* rows.c */
PyObject *grouped(PyObject *module, PyObject *args);
PyObject *scattered(PyObject *module, PyObject *args);

/* The ways: items.c, elementwise.c, functions.c */
PyObject *get_item(ARGUMENTS);
PyObject *set_item(ARGUMENTS);
PyObject *binary(ARGUMENTS);
PyObject *equality(ARGUMENTS);
PyObject *reflected(ARGUMENTS);
PyObject *unary(ARGUMENTS);
PyObject *power(ARGUMENTS);
PyObject *in_place(ARGUMENTS);
PyObject *array_ufunc(ARGUMENTS);
PyObject *method(ARGUMENTS);
PyObject *number(ARGUMENTS);
PyObject *product(ARGUMENTS);
PyObject *array_function(ARGUMENTS);

#endif
