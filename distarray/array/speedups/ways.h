/* The short ways of small arrays, in C.
 *
 * On arrays that every rank has whole a call is NumPy's own on the blocks. In a loop over them most
 * of the time goes to asking whether a call is such a one; here this is asked in C.
 *
 * A `Way` stands in the place of a method of DistArray, and keeps that method. It answers where the
 * method would call NumPy on the blocks, and in the same way; whatever else comes is the method's.
 * So a program gets the same with and without these files; see __init__.py, which puts the ways in.
 *
 * Functions that look for an answer return NULL without an exception if they have none. A program's
 * own objects may run anything when NumPy asks them, and so may warnings and the garbage collector:
 * they may write to an array of ours, or delete its attributes. So what is needed after a call is
 * held, and questions are asked in ways that run nothing.
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

/* What Python has handed over, by `adopt`. */
extern struct Known {
    PyTypeObject *array;             /* DistArray, */
    PyTypeObject *layouts, *meshes;  /* and what it holds */
    Py_ssize_t block, layout, mesh;  /* where its slots are, */
    Py_ssize_t shape, size, is_whole, partials, replicas, row, coords; /* and theirs */
    PyObject *error_state;  /* NumPy's context variable, or None */
    PyObject *is_observed;  /* comm.observed.is_observed, ... */
    PyObject *observed, *warnings;  /* ... the names of that module, and of Python's */
    PyObject *settings;     /* that of the settings in force here, ... */
    PyObject *base;         /* ... and a list with those that hold elsewhere */
    PyObject *usual, *unwatched, *basic_keys, *functions;  /* of the ladder and the registry */
    PyObject *numbers, *plain;  /* types: of numbers, and of what is passed to NumPy as it is */
    PyObject *elementwise;      /* ufuncs */
    PyObject *ours;             /* names of parameters that NumPy's functions do not have */
    PyObject *temporaries;      /* the module's names */
    PyObject *given_out;        /* at_hand.given_out */
    PyObject *made_again;       /* unhashable.made_again */
    npy_bool elements[TYPES];   /* by NumPy's number of the type: at_hand.ELEMENTS */
    Py_ssize_t most;            /* at_hand.MOST */
    PyObject *name_cut_from, *name_small, *name_reproducible, *name_call, *name_large, *names_out;
    PyObject *names_asked[ASKED], *names_seen[ASKED], *name_observed;
} known;

#define SLOT(object, name) (*(PyObject **)((char *)(object) + known.name))
#define BLOCK(x) SLOT(x, block)
#define LAYOUT(x) SLOT(x, layout)
#define MESH(x) SLOT(x, mesh)
#define HOLDS(x, name, type) (SLOT(x, name) != NULL && Py_TYPE(SLOT(x, name)) == (type))
/* Of no subclass: those of ours have yet to compute their blocks. A program may have deleted its
   attributes, or set them. */
#define IS_ARRAY(x)                                                                                \
    (Py_TYPE(x) == known.array && BLOCK(x) != NULL && HOLDS(x, layout, known.layouts) &&           \
     HOLDS(x, mesh, known.meshes))
#define IS_WHOLE(layout) (SLOT(layout, is_whole) == Py_True)
#define IS_SMALL(layout) (SLOT(layout, replicas) != Py_None)

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *method;  /* of DistArray, in Python */
    PyObject *numpys;  /* the ufunc, or the method of numpy.ndarray */
    PyObject *dict;    /* what describes the method */
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
