/* Fused execution of elementwise operations on pieces that stay in the L1 cache; see tiled.py.
 *
 * The steps call NumPy's own loops, from `ufunc._get_strided_loop`, so that the results are bitwise
 * equal to NumPy's. Intermediate results are in buffers of a piece's size. Floating-point errors
 * are recorded with the operation.
 */

#include <fenv.h>

#include "ways.h"

#include <numpy/dtype_api.h>

/* Elements of a piece: SHORT pieces stay in the L1 cache. Up to FEW steps are bound by memory; LONG
   pieces let memory stream for them (measured: `benchmarks` has the cases named 8M). */
enum { SHORT = 1024, LONG = 65536, FEW = 2 };
enum { MOST_OPERANDS = 5, LINE = 64 };
enum { ERRORS = FE_DIVBYZERO | FE_OVERFLOW | FE_INVALID };

/* NumPy's structure, as in the documentation of `_get_strided_loop`. */
static const char *const info_name = "numpy_1.24_ufunc_call_info";
typedef struct {
    PyArrayMethod_StridedLoop *loop;
    PyArrayMethod_Context *context;
    NpyAuxData *auxdata;
    npy_bool requires_pyapi;
    npy_bool no_floatingpoint_errors;
} Info;

typedef struct {
    const Info *info;
    int count; /* operands and the result */
    Py_ssize_t values[MOST_OPERANDS]; /* numbers: arrays and intermediate results, then constants */
} Step;

/* Memory of a value in a piece: address of the first element, and stride. */
typedef struct {
    char *start;
    npy_intp stride;
    npy_intp width; /* bytes of an element for the loops; 0 if no loop uses it */
    int is_fixed;   /* a buffer, not an array of a run */
    int is_written;
} Place;

typedef struct {
    PyObject_HEAD
    PyObject *kept; /* owner of the loops and the constants */
    Step *steps;
    Place *places; /* of all values; a run sets those of arrays */
    int *errors;   /* of each step */
    char *memory;
    Py_ssize_t count, arrays; /* number of steps; of values that are no constants */
    Py_ssize_t piece;
    int is_running; /* on some thread */
} Steps;

/* -- making ------------------------------------------------------------------------------------- */

static int
add_step(Steps *self, Step *step, PyObject *given, Py_ssize_t constants)
{
    PyObject *capsule, *numbers;
    if (!PyArg_ParseTuple(given, "OO!", &capsule, &PyTuple_Type, &numbers)) {
        return 0;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(numbers);
    step->info = PyCapsule_GetPointer(capsule, info_name);
    if (step->info == NULL) {
        return 0;
    }
    if (step->info->requires_pyapi || step->info->loop == NULL || count < 1 ||
        count > MOST_OPERANDS) {
        PyErr_SetString(PyExc_TypeError, "a loop that cannot be called here");
        return 0;
    }
    step->count = (int)count;
    for (int i = 0; i < step->count; i++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(numbers, i));
        number = number < 0 ? self->arrays - 1 - number : number; /* constants come last */
        if (number < 0 || number >= self->arrays + constants) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_IndexError, "no such value");
            }
            return 0;
        }
        Place *place = &self->places[number];
        npy_intp width = PyDataType_ELSIZE(step->info->context->descriptors[i]);
        if (place->width != 0 && place->width != width) {
            PyErr_SetString(PyExc_TypeError, "loops that take elements of several widths");
            return 0;
        }
        place->width = width;
        place->is_written |= i == step->count - 1;
        step->values[i] = number;
    }
    return 1;
}

/* Set the places of the constants, which follow those of the other values. */
static int
add_constants(Steps *self, PyObject *constants)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
        PyObject *constant = PyTuple_GET_ITEM(constants, i);
        Place *place = &self->places[self->arrays + i];
        if (!PyArray_CheckExact(constant) || PyArray_SIZE((PyArrayObject *)constant) != 1 ||
            !PyArray_ISBEHAVED_RO((PyArrayObject *)constant) || place->is_written ||
            (place->width != 0 && PyArray_ITEMSIZE((PyArrayObject *)constant) != place->width)) {
            PyErr_SetString(PyExc_TypeError, "constants are arrays of one element");
            return 0;
        }
        place->start = PyArray_BYTES((PyArrayObject *)constant);
    }
    return 1;
}

/* Allocate buffers for the intermediate results, given the bytes of an element in each buffer. */
static int
add_memory(Steps *self, PyObject *buffers, PyObject *between)
{
    self->piece = self->count > FEW ? SHORT : LONG;
    Py_ssize_t need = LINE, count = PyTuple_GET_SIZE(buffers);
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t width = PyLong_AsSsize_t(PyTuple_GET_ITEM(buffers, i)), bytes;
        if (width < 0 || __builtin_mul_overflow(width, self->piece, &bytes) ||
            __builtin_add_overflow(need, bytes, &need)) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "elements of no such width");
            }
            return 0;
        }
    }
    self->memory = PyMem_RawMalloc(need);
    if (self->memory == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    char *aligned = self->memory + LINE - (npy_uintp)self->memory % LINE;
    for (Py_ssize_t value = 0; value < self->arrays; value++) {
        Py_ssize_t buffer = PyLong_AsSsize_t(PyTuple_GET_ITEM(between, value));
        if (buffer >= count || PyErr_Occurred()) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_IndexError, "no such buffer");
            }
            return 0;
        }
        Place *place = &self->places[value];
        place->is_fixed = buffer >= 0;
        place->start = aligned;
        for (Py_ssize_t i = 0; i < buffer; i++) {
            place->start += PyLong_AsSsize_t(PyTuple_GET_ITEM(buffers, i)) * self->piece;
        }
        place->stride = buffer < 0 ? 0 : PyLong_AsSsize_t(PyTuple_GET_ITEM(buffers, buffer));
        if (place->is_fixed && place->width > place->stride) {
            PyErr_SetString(PyExc_ValueError, "elements wider than those of their buffer");
            return 0;
        }
    }
    return 1;
}

/* Steps(steps, constants, between, buffers): see _ways.pyi. */
static PyObject *
steps_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *steps, *constants, *between, *buffers;
    if (!PyArg_ParseTuple(args, "O!O!O!O!:Steps", &PyTuple_Type, &steps, &PyTuple_Type, &constants,
                          &PyTuple_Type, &between, &PyTuple_Type, &buffers)) {
        return NULL;
    }
    Steps *self = (Steps *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    Py_ssize_t held = PyTuple_GET_SIZE(constants);
    self->kept = PyTuple_Pack(2, steps, constants);
    self->count = PyTuple_GET_SIZE(steps);
    self->arrays = PyTuple_GET_SIZE(between);
    self->steps = PyMem_Calloc(self->count + 1, sizeof(Step));
    self->errors = PyMem_Calloc(self->count + 1, sizeof(int));
    self->places = PyMem_Calloc(self->arrays + held + 1, sizeof(Place));
    int made = self->kept && self->steps && self->errors && self->places;
    if (!made && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; made && i < self->count; i++) {
        made = add_step(self, &self->steps[i], PyTuple_GET_ITEM(steps, i), held);
    }
    if (!made || !add_constants(self, constants) || !add_memory(self, buffers, between)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
steps_dealloc(Steps *self)
{
    PyMem_Free(self->steps);
    PyMem_Free(self->errors);
    PyMem_Free(self->places);
    PyMem_RawFree(self->memory);
    Py_XDECREF(self->kept);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* -- running ------------------------------------------------------------------------------------ */

/* Prefetch a part of the arrays' next piece, which begins `ahead` elements later. Otherwise each
   piece would wait for memory. */
static void
ask_for(const Steps *self, npy_intp ahead, Py_ssize_t part)
{
    for (Py_ssize_t value = 0; value < self->arrays; value++) {
        const Place *place = &self->places[value];
        npy_intp bytes = self->piece * place->stride;
        if (place->is_fixed || bytes < LINE || place->stride > LINE) {
            continue;
        }
        const char *next = place->start + ahead * place->stride;
        for (npy_intp at = part * bytes / self->count; at < (part + 1) * bytes / self->count;
             at += LINE) {
            __builtin_prefetch(next + at, 0, 2);
        }
    }
}

/* Run the steps on a piece of `elements` elements. */
static int
run_piece(Steps *self, npy_intp elements)
{
    for (Py_ssize_t number = 0; number < self->count; number++) {
        const Step *step = &self->steps[number];
        char *data[MOST_OPERANDS];
        npy_intp strides[MOST_OPERANDS];
        for (int i = 0; i < step->count; i++) {
            data[i] = self->places[step->values[i]].start;
            strides[i] = self->places[step->values[i]].stride;
        }
        if (self->piece == SHORT) {
            ask_for(self, elements, number);
        }
        const Info *info = step->info;
        if (info->loop(info->context, data, &elements, strides, info->auxdata) < 0) {
            return -1;
        }
        int raised = info->no_floatingpoint_errors ? 0 : fetestexcept(ERRORS);
        if (raised) {
            self->errors[number] |= raised;
            feclearexcept(FE_ALL_EXCEPT);
        }
    }
    return 0;
}

/* Run the steps on a line of the arrays, piece by piece. */
static int
run_line(Steps *self, PyArrayObject **arrays, char **starts, npy_intp extent)
{
    for (npy_intp start = 0; start < extent; start += self->piece) {
        for (Py_ssize_t value = 0; value < self->arrays; value++) {
            if (arrays[value] != NULL) {
                Place *place = &self->places[value];
                place->start = starts[value] + start * place->stride;
            }
        }
        if (run_piece(self, Py_MIN(extent - start, self->piece)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Run the steps on all lines along the last dimension. */
static int
run_lines(Steps *self, PyArrayObject **arrays, char **starts, int ndim, const npy_intp *shape)
{
    npy_intp index[NPY_MAXDIMS] = {0};
    for (int dim = 0; dim < ndim; dim++) {
        if (shape[dim] == 0) {
            return 0;
        }
    }
    while (1) {
        if (run_line(self, arrays, starts, shape[ndim - 1]) < 0) {
            return -1;
        }
        int dim = ndim - 2;
        while (dim >= 0 && ++index[dim] == shape[dim]) {
            index[dim--] = 0;
        }
        if (dim < 0) {
            return 0;
        }
        for (Py_ssize_t value = 0; value < self->arrays; value++) {
            PyArrayObject *array = arrays[value];
            if (array != NULL) {
                starts[value] += PyArray_STRIDE(array, dim);
                for (int inner = dim + 1; inner < ndim - 1; inner++) {
                    starts[value] -= PyArray_STRIDE(array, inner) * (shape[inner] - 1);
                }
            }
        }
    }
}

/* Read the arrays of a run; intermediate results have none. NULL with an error if one is unfit. */
static PyArrayObject *
take_arrays(Steps *self, PyObject *values, PyArrayObject **arrays)
{
    PyArrayObject *model = NULL;
    for (Py_ssize_t value = 0; value < self->arrays; value++) {
        PyObject *given = PyList_GET_ITEM(values, value);
        arrays[value] = NULL;
        if (self->places[value].is_fixed) {
            continue;
        }
        const Place *place = &self->places[value];
        if (!PyArray_CheckExact(given) || !PyArray_ISBEHAVED_RO((PyArrayObject *)given) ||
            (place->width != 0 && PyArray_ITEMSIZE((PyArrayObject *)given) != place->width) ||
            (place->is_written && !PyArray_ISWRITEABLE((PyArrayObject *)given))) {
            PyErr_SetString(PyExc_TypeError, "an array that loops cannot take");
            return NULL;
        }
        arrays[value] = (PyArrayObject *)given;
        model = model == NULL ? arrays[value] : model;
        if (!PyArray_SAMESHAPE(model, arrays[value])) {
            PyErr_SetString(PyExc_ValueError, "arrays of several shapes");
            return NULL;
        }
    }
    if (model == NULL || PyArray_NDIM(model) == 0) {
        PyErr_SetString(PyExc_ValueError, "no array with dimensions");
        return NULL;
    }
    return model;
}

/* Return the floating-point errors since the last call: list of (step, kind), in NumPy's words. */
static PyObject *
errors_of(Steps *self)
{
    static const struct {
        int flag;
        const char *words;
    } kinds[] = {
        {FE_DIVBYZERO, "divide by zero"},
        {FE_OVERFLOW, "overflow"},
        {FE_INVALID, "invalid value"},
    };
    PyObject *found = PyList_New(0);
    for (Py_ssize_t number = 0; found != NULL && number < self->count; number++) {
        for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
            if (self->errors[number] & kinds[kind].flag) {
                PyObject *error = Py_BuildValue("(ns)", number, kinds[kind].words);
                if (error == NULL || PyList_Append(found, error) < 0) {
                    Py_CLEAR(found);
                }
                Py_XDECREF(error);
            }
        }
        self->errors[number] = 0;
    }
    return found;
}

PyDoc_STRVAR(run_doc, "run(values, /)\n--\n\nRun the steps on arrays of one shape.");

static PyObject *
steps_run(Steps *self, PyObject *values)
{
    if (!PyList_CheckExact(values) || PyList_GET_SIZE(values) < self->arrays) {
        return PyErr_Format(PyExc_TypeError, "run() takes a list of %zd values", self->arrays);
    }
    if (self->is_running) {
        return PyErr_Format(PyExc_RuntimeError, "steps that run on another thread");
    }
    PyArrayObject **arrays = PyMem_Calloc(self->arrays + 1, sizeof(*arrays)), *model = NULL;
    char **starts = PyMem_Calloc(self->arrays + 1, sizeof(*starts));
    int failed = arrays == NULL || starts == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    else {
        model = take_arrays(self, values, arrays);
    }
    if (model != NULL) {
        int ndim = PyArray_NDIM(model);
        for (Py_ssize_t value = 0; value < self->arrays; value++) {
            if (arrays[value] != NULL) {
                Py_INCREF(arrays[value]);
                starts[value] = PyArray_BYTES(arrays[value]);
                self->places[value].stride = PyArray_STRIDE(arrays[value], ndim - 1);
            }
        }
        self->is_running = 1;
        Py_BEGIN_ALLOW_THREADS
        feclearexcept(FE_ALL_EXCEPT);
        failed = run_lines(self, arrays, starts, ndim, PyArray_DIMS(model)) < 0;
        Py_END_ALLOW_THREADS
        self->is_running = 0;
        for (Py_ssize_t value = 0; value < self->arrays; value++) {
            Py_XDECREF(arrays[value]);
        }
    }
    PyMem_Free(starts);
    PyMem_Free(arrays);
    if (failed && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "one of NumPy's loops has failed");
    }
    return PyErr_Occurred() ? NULL : errors_of(self);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)steps_run, METH_O, run_doc},
    {NULL},
};

PyTypeObject StepsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "distarray.array.speedups._ways.Steps",
    .tp_doc = PyDoc_STR("Steps(steps, constants, between, buffers): what is run on each piece."),
    .tp_basicsize = sizeof(Steps),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = steps_new,
    .tp_dealloc = (destructor)steps_dealloc,
    .tp_methods = methods,
};
