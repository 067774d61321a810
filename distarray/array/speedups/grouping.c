/* Rows grouped by their owners: ordered by owner, and by position where that is one. */

#include "ways.h"

/* With up to so many owners a pass for each is quicker than places that are counted in memory, which
   are waited for from one row to the next. */
enum { FEW_OWNERS = 4, MOST_OWNERS = 256 };

typedef struct {
    const npy_uint8 *owners;
    npy_intp rows;
    Py_ssize_t ranks;
    npy_intp first[MOST_OWNERS + 1]; /* the place of each owner's first row, and the end */
} Order;

/* Copy rows of so many bytes to the places of their owners. */
static inline void
copy_rows(const Order *order, const char *from, char *to, npy_intp width)
{
    if (order->ranks > FEW_OWNERS) {
        npy_intp places[MOST_OWNERS];
        memcpy(places, order->first, sizeof(places));
        for (npy_intp row = 0; row < order->rows; row++) {
            memcpy(to + places[order->owners[row]]++ * width, from + row * width, width);
        }
        return;
    }
    for (Py_ssize_t rank = 0; rank < order->ranks; rank++) {
        npy_intp place = order->first[rank], stop = order->first[rank + 1];
        for (npy_intp row = 0; row < order->rows && place < stop; row++) {
            memcpy(to + place * width, from + row * width, width);
            place += order->owners[row] == rank; /* else the next row takes its place */
        }
    }
}

/* The same; the usual widths are constants, for which a copy is one instruction. */
static void
group_rows(const Order *order, PyArrayObject *rows, PyArrayObject *result)
{
    const char *from = PyArray_BYTES(rows);
    char *to = PyArray_BYTES(result);
    npy_intp width = order->rows == 0 ? 0 : PyArray_NBYTES(rows) / order->rows;
    if (width == 8) {
        copy_rows(order, from, to, 8);
    }
    else if (width == 4) {
        copy_rows(order, from, to, 4);
    }
    else {
        copy_rows(order, from, to, width);
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
    memset(order->first, 0, sizeof(order->first));
    for (Py_ssize_t rank = 0; rank < order->ranks; rank++) {
        npy_intp count = PyLong_AsSsize_t(PyList_GET_ITEM(counts, rank));
        if (count < 0) {
            break;
        }
        order->first[rank + 1] = order->first[rank] + count;
    }
    if (!PyErr_Occurred() && order->first[order->ranks] != order->rows) {
        PyErr_SetString(PyExc_ValueError, "counts of other owners");
    }
    return !PyErr_Occurred();
}

/* grouped(owners, counts, rows): see _ways.pyi. */
PyObject *
grouped(PyObject *module, PyObject *args)
{
    PyArrayObject *owners;
    PyObject *counts, *rows;
    Order order;
    if (!PyArg_ParseTuple(args, "O!O!O:grouped", &PyArray_Type, &owners, &PyList_Type, &counts,
                          &rows) ||
        !take_order(&order, owners, counts)) {
        return NULL;
    }
    if (!is_fit(rows, order.rows)) {
        return PyErr_Format(PyExc_TypeError, "rows lie one after the other, one for each owner");
    }
    PyObject *result = PyArray_NewLikeArray((PyArrayObject *)rows, NPY_CORDER, NULL, 0);
    if (result != NULL) {
        Py_BEGIN_ALLOW_THREADS
        group_rows(&order, (PyArrayObject *)rows, (PyArrayObject *)result);
        Py_END_ALLOW_THREADS
    }
    return result;
}
