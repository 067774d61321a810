/* Rows grouped by their owners, and written to their places; each is a number of bytes. */

#include "ways.h"

/* So many rows are grouped at once: where they go stays in the first cache. */
enum { MOST_OWNERS = 256, TOGETHER = 1024 };

typedef struct {
    const npy_uint8 *owners;
    npy_intp rows;
    Py_ssize_t ranks;
    npy_intp next[MOST_OWNERS + 1]; /* the place of each owner's next row, and the end */
} Order;

/* Where some rows go. Of two owners without a branch, which would be guessed wrong half the time,
   and without the places in memory, which are waited for from one row to the next. */
static void
find_places(Order *order, npy_intp start, npy_intp count, npy_intp *places)
{
    const npy_uint8 *owners = order->owners + start;
    if (order->ranks != 2) {
        for (npy_intp row = 0; row < count; row++) {
            places[row] = order->next[owners[row]]++;
        }
        return;
    }
    npy_intp first = order->next[0], both = first + order->next[1];
    for (npy_intp row = 0; row < count; row++, both++) {
        npy_intp second = -(npy_intp)owners[row]; /* all bits, or none */
        places[row] = (first & ~second) | ((both - first) & second);
        first += 1 + second;
    }
    order->next[0] = first;
    order->next[1] = both - first;
}

static inline void
copy_rows(const npy_intp *places, npy_intp count, const char *from, char *to, npy_intp width)
{
    for (npy_intp row = 0; row < count; row++) {
        memcpy(to + places[row] * width, from + row * width, width);
    }
}

/* Group the rows of some arrays. The usual widths are constants, for which a copy is one
   instruction. */
static void
group_rows(Order *order, Py_ssize_t arrays, char **from, char **to, const npy_intp *widths)
{
    npy_intp places[TOGETHER];
    for (npy_intp start = 0; start < order->rows; start += TOGETHER) {
        npy_intp count = Py_MIN(order->rows - start, TOGETHER);
        find_places(order, start, count, places);
        for (Py_ssize_t i = 0; i < arrays; i++) {
            const char *rows = from[i] + start * widths[i];
            if (widths[i] == 8) {
                copy_rows(places, count, rows, to[i], 8);
            }
            else if (widths[i] == 4) {
                copy_rows(places, count, rows, to[i], 4);
            }
            else {
                copy_rows(places, count, rows, to[i], widths[i]);
            }
        }
    }
}

static int
is_fit(PyObject *rows, npy_intp count)
{
    return PyArray_CheckExact(rows) && PyArray_NDIM((PyArrayObject *)rows) > 0 &&
           PyArray_DIM((PyArrayObject *)rows, 0) == count &&
           PyArray_IS_C_CONTIGUOUS((PyArrayObject *)rows) &&
           !PyDataType_REFCHK(PyArray_DESCR((PyArrayObject *)rows));
}

/* Owners and how many rows each has; 0 with an error if that is not so. */
static int
take_order(Order *order, PyArrayObject *owners, PyObject *counts)
{
    order->owners = PyArray_DATA(owners);
    order->rows = PyArray_SIZE(owners);
    order->ranks = PyList_GET_SIZE(counts);
    if (PyArray_TYPE(owners) != NPY_UINT8 || !PyArray_IS_C_CONTIGUOUS(owners) ||
        order->ranks > MOST_OWNERS) {
        PyErr_Format(PyExc_TypeError, "owners are bytes, of up to %d ranks", MOST_OWNERS);
        return 0;
    }
    memset(order->next, 0, sizeof(order->next));
    for (Py_ssize_t rank = 0; rank < order->ranks; rank++) {
        npy_intp count = PyLong_AsSsize_t(PyList_GET_ITEM(counts, rank));
        if (count < 0) {
            break;
        }
        order->next[rank + 1] = order->next[rank] + count;
    }
    if (!PyErr_Occurred() && order->next[order->ranks] != order->rows) {
        PyErr_SetString(PyExc_ValueError, "counts of other owners");
    }
    return !PyErr_Occurred();
}

enum { MOST_ARRAYS = 4 };

/* grouped(owners, counts, arrays): see _ways.pyi. */
PyObject *
grouped(PyObject *module, PyObject *args)
{
    PyArrayObject *owners;
    PyObject *counts, *arrays;
    Order order;
    char *from[MOST_ARRAYS], *to[MOST_ARRAYS];
    npy_intp widths[MOST_ARRAYS];
    if (!PyArg_ParseTuple(args, "O!O!O!:grouped", &PyArray_Type, &owners, &PyList_Type, &counts,
                          &PyTuple_Type, &arrays) ||
        !take_order(&order, owners, counts)) {
        return NULL;
    }
    Py_ssize_t many = PyTuple_GET_SIZE(arrays);
    if (many > MOST_ARRAYS) {
        return PyErr_Format(PyExc_ValueError, "up to %d arrays, not %zd", MOST_ARRAYS, many);
    }
    PyObject *results = PyList_New(many);
    for (Py_ssize_t i = 0; results != NULL && i < many; i++) {
        PyArrayObject *rows = (PyArrayObject *)PyTuple_GET_ITEM(arrays, i);
        PyObject *result = NULL;
        if (is_fit((PyObject *)rows, order.rows)) {
            result = PyArray_NewLikeArray(rows, NPY_CORDER, NULL, 0);
        }
        else {
            PyErr_SetString(PyExc_TypeError, "rows lie one after the other, one for each owner");
        }
        if (result == NULL) {
            Py_CLEAR(results);
            continue;
        }
        PyList_SET_ITEM(results, i, result);
        from[i] = PyArray_BYTES(rows);
        to[i] = PyArray_BYTES((PyArrayObject *)result);
        widths[i] = order.rows == 0 ? 0 : PyArray_NBYTES(rows) / order.rows;
    }
    if (results != NULL) {
        Py_BEGIN_ALLOW_THREADS
        group_rows(&order, many, from, to, widths);
        Py_END_ALLOW_THREADS
    }
    return results;
}

/* -- writing ------------------------------------------------------------------------------------ */

/* Rows ahead of the one that is written, for whose place memory is asked. */
enum { AHEAD = 16 };

typedef struct {
    char *block;
    npy_intp extent, start, width; /* rows of the block, the place of the first one, and bytes */
    const char *values;
    npy_intp step; /* bytes from one value to the next; 0 if there is one for all */
} Target;

static inline npy_intp
place_of(const Target *target, const void *places, npy_intp row, int is_short)
{
    npy_int64 place = is_short ? ((const npy_int32 *)places)[row] : ((const npy_int64 *)places)[row];
    return place - target->start;
}

/* Write values one after the other; -1 at the first place that is outside. */
static inline int
write_each(const Target *target, const void *places, npy_intp count, int is_short, npy_intp width)
{
    for (npy_intp row = 0; row < count; row++) {
        npy_uintp place = place_of(target, places, row, is_short);
        if (row + AHEAD < count) {
            npy_intp next = place_of(target, places, row + AHEAD, is_short);
            __builtin_prefetch(target->block + next * width, 1);
        }
        if (place >= (npy_uintp)target->extent) {
            return -1;
        }
        memcpy(target->block + place * width, target->values + row * target->step, width);
    }
    return 0;
}

/* The same; what is usual is constant, as above. */
static int
write_rows(const Target *target, const void *places, npy_intp count, int is_short)
{
    if (is_short && target->width == 8) {
        return write_each(target, places, count, 1, 8);
    }
    return write_each(target, places, count, is_short, target->width);
}

/* scattered(block, places, start, values): see _ways.pyi. */
PyObject *
scattered(PyObject *module, PyObject *args)
{
    PyArrayObject *block, *places;
    PyObject *values;
    Target target;
    if (!PyArg_ParseTuple(args, "O!O!nO:scattered", &PyArray_Type, &block, &PyArray_Type, &places,
                          &target.start, &values)) {
        return NULL;
    }
    npy_intp count = PyArray_SIZE(places), given = is_fit(values, count) ? count : 1;
    int is_short = PyArray_ITEMSIZE(places) == 4;
    if (!PyTypeNum_ISSIGNED(PyArray_TYPE(places)) || !PyArray_IS_C_CONTIGUOUS(places) ||
        !(is_short || PyArray_ITEMSIZE(places) == 8)) {
        return PyErr_Format(PyExc_TypeError, "places are integers of 4 or 8 bytes");
    }
    if (!is_fit((PyObject *)block, PyArray_NDIM(block) ? PyArray_DIM(block, 0) : -1) ||
        !PyArray_ISWRITEABLE(block) || !is_fit(values, given) ||
        !PyArray_EquivTypes(PyArray_DESCR(block), PyArray_DESCR((PyArrayObject *)values))) {
        return PyErr_Format(PyExc_TypeError, "rows of a block and values of its type");
    }
    target.block = PyArray_BYTES(block);
    target.extent = PyArray_DIM(block, 0);
    target.width = target.extent ? PyArray_NBYTES(block) / target.extent : 0;
    target.values = PyArray_BYTES((PyArrayObject *)values);
    target.step = given == count ? target.width : 0;
    if (target.extent && PyArray_NBYTES((PyArrayObject *)values) != given * target.width) {
        return PyErr_Format(PyExc_ValueError, "values of other rows");
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = write_rows(&target, PyArray_DATA(places), count, is_short);
    Py_END_ALLOW_THREADS
    if (failed) {
        return PyErr_Format(PyExc_IndexError, "a place outside of the block");
    }
    return Py_NewRef(Py_None);
}
