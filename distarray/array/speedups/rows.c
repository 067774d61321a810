/* Functions that group rows by the ranks that own them, and write rows to their places. A row is a
 * number of bytes.
 *
 * Arrays may begin at any byte, so numbers are copied out of them. A number from an array is
 * checked before it becomes an address: a thread of the program may write to keys and places
 * meanwhile.
 */

#include "ways.h"

/* Maximum number of parts, and of rows grouped at once: their places fit into the L1 cache. */
enum { MOST_PARTS = 256, TOGETHER = 1024 };

/* Rows of one array, and the target memory; `narrow` writes 8-byte integers as 4 bytes. */
typedef struct {
    const char *from;
    char *to;
    npy_intp width;
    int narrow;
} Column;

/* Assignment of rows to parts. The part of a row is the number of starts that its key reached. */
typedef struct {
    const char *keys; /* of 8 bytes */
    npy_int64 starts[MOST_PARTS];
    npy_intp rows;
    Py_ssize_t parts;
    npy_uint8 *found; /* the part of each row, if there are more than two */
    npy_intp counts[MOST_PARTS];
    npy_intp next[MOST_PARTS]; /* the place of each part's next row */
} Order;

static inline npy_int64
number_at(const char *numbers, npy_intp position)
{
    npy_int64 number;
    memcpy(&number, numbers + position * 8, 8);
    return number;
}

/* Find the part of each row, and count the rows. The number of keys that reached a start is the
   number of rows in its part and all later parts. */
static void
find_parts(Order *order)
{
    memset(order->found, 0, order->rows);
    for (npy_intp start = 0; start < order->rows; start += TOGETHER) {
        npy_intp count = Py_MIN(order->rows - start, TOGETHER);
        npy_uint8 *found = order->found + start;
        for (Py_ssize_t i = 0; i < order->parts - 1; i++) {
            npy_int64 first = order->starts[i];
            npy_intp reached = 0;
            for (npy_intp row = 0; row < count; row++) {
                npy_uint8 is_reached = number_at(order->keys, start + row) >= first;
                found[row] += is_reached;
                reached += is_reached;
            }
            order->counts[i] -= reached;
            order->counts[i + 1] += reached;
        }
    }
}

static void
count_rows(Order *order)
{
    order->counts[0] = order->rows;
    if (order->parts == 2) {
        for (npy_intp row = 0; row < order->rows; row++) {
            order->counts[1] += number_at(order->keys, row) >= order->starts[0];
        }
        order->counts[0] -= order->counts[1];
    }
    else {
        find_parts(order);
    }
    for (Py_ssize_t part = 1; part < order->parts; part++) {
        order->next[part] = order->next[part - 1] + order->counts[part - 1];
    }
}

/* Return the place of a row if there are two parts, and advance the next place. There is no branch,
   which would be mispredicted half the time, and no table of places in memory, whose latency would
   count. `first` is the next place of the first part, `both - first` that of the second part. */
static inline npy_intp
place_of_two(npy_int64 key, npy_int64 start, npy_intp both, npy_intp *first)
{
    npy_intp second = -(npy_intp)(key >= start); /* all bits set, or none */
    npy_intp place = (*first & ~second) | ((both - *first) & second);
    *first += 1 + second;
    return place;
}

/* Find the places of consecutive rows; -1 if one is outside, since keys have changed meanwhile. */
static int
find_places(Order *order, npy_intp start, npy_intp count, npy_intp *places)
{
    npy_intp first = order->next[0], both = first + order->next[1];
    int is_outside = 0;
    for (npy_intp row = 0; row < count; row++) {
        if (order->parts == 2) {
            npy_int64 key = number_at(order->keys, start + row);
            places[row] = place_of_two(key, order->starts[0], both + row, &first);
        }
        else {
            places[row] = order->next[order->found[start + row]]++;
        }
        is_outside |= (npy_uintp)places[row] >= (npy_uintp)order->rows;
    }
    if (order->parts == 2) {
        order->next[0] = first;
        order->next[1] = both + count - first;
    }
    return -is_outside;
}

static inline void
copy_row(const Column *column, npy_intp row, npy_intp place, npy_intp width, int narrow)
{
    if (narrow) {
        npy_int32 number = (npy_int32)number_at(column->from, row);
        memcpy(column->to + place * 4, &number, 4);
    }
    else {
        memcpy(column->to + place * width, column->from + row * width, width);
    }
}

static inline void
copy_rows(const Column *column, npy_intp start, npy_intp count, const npy_intp *places,
          npy_intp width, int narrow)
{
    for (npy_intp row = 0; row < count; row++) {
        copy_row(column, start + row, places[row], width, narrow);
    }
}

/* Copy narrowed numbers and rows of 8 bytes to two parts in one pass, in half the time of two. */
static int
split_pairs(const Order *order, const Column *columns)
{
    npy_intp first = order->next[0], both = first + order->next[1];
    for (npy_intp row = 0; row < order->rows; row++) {
        npy_int64 key = number_at(order->keys, row);
        npy_intp place = place_of_two(key, order->starts[0], both + row, &first);
        if ((npy_uintp)place >= (npy_uintp)order->rows) {
            return -1;
        }
        copy_row(&columns[0], row, place, 4, 1);
        copy_row(&columns[1], row, place, 8, 0);
    }
    return 0;
}

/* Group the rows of some arrays; -1 if keys change meanwhile. The usual widths are constants, so
   that a copy is one instruction. */
static int
group_rows(Order *order, Py_ssize_t many, const Column *columns)
{
    if (order->parts == 2 && many == 2 && columns[0].narrow && columns[1].width == 8 &&
        !columns[1].narrow) {
        return split_pairs(order, columns);
    }
    npy_intp places[TOGETHER];
    for (npy_intp start = 0; start < order->rows; start += TOGETHER) {
        npy_intp count = Py_MIN(order->rows - start, TOGETHER);
        if (find_places(order, start, count, places) < 0) {
            return -1;
        }
        for (const Column *column = columns; column < columns + many; column++) {
            if (column->narrow) {
                copy_rows(column, start, count, places, 4, 1);
            }
            else if (column->width == 8) {
                copy_rows(column, start, count, places, 8, 0);
            }
            else if (column->width == 4) {
                copy_rows(column, start, count, places, 4, 0);
            }
            else {
                copy_rows(column, start, count, places, column->width, 0);
            }
        }
    }
    return 0;
}

static int
is_fit(PyObject *rows, npy_intp count)
{
    return PyArray_CheckExact(rows) && PyArray_NDIM((PyArrayObject *)rows) > 0 &&
           PyArray_DIM((PyArrayObject *)rows, 0) == count &&
           PyArray_IS_C_CONTIGUOUS((PyArrayObject *)rows) &&
           !PyDataType_REFCHK(PyArray_DESCR((PyArrayObject *)rows));
}

/* True if an array has signed integers of this size, in native byte order. */
static int
are_numbers(PyArrayObject *array, npy_intp bytes)
{
    return PyTypeNum_ISSIGNED(PyArray_TYPE(array)) && PyArray_ITEMSIZE(array) == bytes &&
           PyArray_ISNOTSWAPPED(array);
}

/* Read keys and the starts of parts; 0 with an error if they are invalid. */
static int
take_order(Order *order, PyArrayObject *keys, PyArrayObject *starts)
{
    order->rows = PyArray_SIZE(keys);
    order->parts = PyArray_SIZE(starts) + 1;
    if (!are_numbers(keys, 8) || !PyArray_IS_C_CONTIGUOUS(keys) || !are_numbers(starts, 8) ||
        !PyArray_IS_C_CONTIGUOUS(starts) || order->parts > MOST_PARTS) {
        PyErr_Format(PyExc_TypeError, "keys and starts are int64, of up to %d parts", MOST_PARTS);
        return 0;
    }
    order->keys = PyArray_BYTES(keys);
    for (Py_ssize_t part = 0; part < order->parts - 1; part++) {
        order->starts[part] = number_at(PyArray_BYTES(starts), part);
        if (part > 0 && order->starts[part] < order->starts[part - 1]) {
            PyErr_SetString(PyExc_ValueError, "starts do not ascend");
            return 0;
        }
    }
    return 1;
}

/* Return the numbers of rows of the parts as a list. */
static PyObject *
counts_of(const Order *order)
{
    PyObject *counts = PyList_New(order->parts);
    for (Py_ssize_t part = 0; counts != NULL && part < order->parts; part++) {
        PyObject *count = PyLong_FromSsize_t(order->counts[part]);
        if (count == NULL) {
            Py_CLEAR(counts);
        }
        else {
            PyList_SET_ITEM(counts, part, count);
        }
    }
    return counts;
}

/* Read an array and the target array of its rows; 0 if they do not fit together. */
static int
take_column(Column *column, PyObject *rows, PyObject *into, npy_intp count)
{
    if (!is_fit(rows, count) || !is_fit(into, count) ||
        !PyArray_ISWRITEABLE((PyArrayObject *)into)) {
        return 0;
    }
    npy_intp bytes = PyArray_NBYTES((PyArrayObject *)rows);
    column->from = PyArray_BYTES((PyArrayObject *)rows);
    column->to = PyArray_BYTES((PyArrayObject *)into);
    column->width = count == 0 ? 0 : bytes / count;
    column->narrow =
        are_numbers((PyArrayObject *)rows, 8) && are_numbers((PyArrayObject *)into, 4);
    return PyArray_NBYTES((PyArrayObject *)into) == (column->narrow ? bytes / 2 : bytes);
}

enum { MOST_ARRAYS = 4 };

/* grouped(keys, starts, arrays, into): see _ways.pyi. */
PyObject *
grouped(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyArrayObject *keys, *starts;
    PyObject *arrays, *into;
    Order order = {0};
    Column columns[MOST_ARRAYS];
    if (!PyArg_ParseTuple(args, "O!O!O!O!:grouped", &PyArray_Type, &keys, &PyArray_Type, &starts,
                          &PyTuple_Type, &arrays, &PyTuple_Type, &into) ||
        !take_order(&order, keys, starts)) {
        return NULL;
    }
    Py_ssize_t many = PyTuple_GET_SIZE(arrays);
    if (many > MOST_ARRAYS || many != PyTuple_GET_SIZE(into)) {
        return PyErr_Format(PyExc_ValueError, "up to %d arrays, not %zd", MOST_ARRAYS, many);
    }
    for (Py_ssize_t i = 0; i < many; i++) {
        if (!take_column(&columns[i], PyTuple_GET_ITEM(arrays, i), PyTuple_GET_ITEM(into, i),
                         order.rows)) {
            return PyErr_Format(PyExc_TypeError, "rows one after the other, one for each key");
        }
    }
    order.found = order.parts == 2 ? NULL : PyMem_RawMalloc(order.rows);
    if (order.found == NULL && order.parts != 2) {
        return PyErr_NoMemory();
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    count_rows(&order);
    failed = group_rows(&order, many, columns) < 0;
    Py_END_ALLOW_THREADS
    PyMem_RawFree(order.found);
    if (failed) {
        return PyErr_Format(PyExc_RuntimeError, "a thread writes to an index that is in use");
    }
    return counts_of(&order);
}

/* -- writing ------------------------------------------------------------------------------------ */

/* Distance of the prefetch ahead of the row that is written, in rows. */
enum { AHEAD = 16 };

typedef struct {
    char *block;
    npy_intp extent, start, width; /* rows of the block, place of the first, bytes of a row */
    const char *values;
    npy_intp step; /* bytes from one value to the next; 0 for a single value */
} Target;

/* Return the place of a row in the block; a place outside of it is at least its number of rows. */
static inline npy_uintp
place_of(const Target *target, const char *places, npy_intp row, int is_short)
{
    npy_int32 number;
    if (!is_short) {
        return (npy_uintp)number_at(places, row) - (npy_uintp)target->start;
    }
    memcpy(&number, places + row * 4, 4);
    return (npy_uintp)(npy_intp)number - (npy_uintp)target->start;
}

/* Write values one after the other; return -1 at the first place outside of the block. */
static inline int
write_each(const Target *target, const char *places, npy_intp count, int is_short, npy_intp width)
{
    for (npy_intp row = 0; row < count; row++) {
        npy_uintp place = place_of(target, places, row, is_short);
        if (row + AHEAD < count) {
            npy_uintp next = place_of(target, places, row + AHEAD, is_short);
            __builtin_prefetch((const char *)((npy_uintp)target->block + next * width), 1);
        }
        if (place >= (npy_uintp)target->extent) {
            return -1;
        }
        memcpy(target->block + place * width, target->values + row * target->step, width);
    }
    return 0;
}

/* As `write_each`, with constants for the usual widths, as above. */
static int
write_rows(const Target *target, const char *places, npy_intp count, int is_short)
{
    if (is_short && target->width == 8) {
        return write_each(target, places, count, 1, 8);
    }
    return write_each(target, places, count, is_short, target->width);
}

/* scattered(block, places, start, values): see _ways.pyi. */
PyObject *
scattered(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyArrayObject *block, *places;
    PyObject *values;
    Target target;
    if (!PyArg_ParseTuple(args, "O!O!nO:scattered", &PyArray_Type, &block, &PyArray_Type, &places,
                          &target.start, &values)) {
        return NULL;
    }
    npy_intp count = PyArray_SIZE(places), given = is_fit(values, count) ? count : 1;
    int is_short = are_numbers(places, 4);
    if (!(is_short || are_numbers(places, 8)) || !PyArray_IS_C_CONTIGUOUS(places)) {
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
    failed = write_rows(&target, PyArray_BYTES(places), count, is_short);
    Py_END_ALLOW_THREADS
    if (failed) {
        return PyErr_Format(PyExc_IndexError, "a place outside of the block");
    }
    return Py_NewRef(Py_None);
}
