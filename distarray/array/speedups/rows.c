/* Rows grouped by the ranks that own them, and written to their places; each is some bytes. */

#include "ways.h"

/* So many rows are grouped at once: where they go stays in the first cache. */
enum { MOST_PARTS = 256, TOGETHER = 1024 };

/* Rows of one array, and where they are copied to; `narrow` writes 8-byte integers as 4 bytes. */
typedef struct {
    const char *from;
    char *to;
    npy_intp width;
    int narrow;
} Column;

/* A row belongs to the part that is the number of starts that its key has reached. */
typedef struct {
    const npy_int64 *keys, *starts;
    npy_intp rows;
    Py_ssize_t parts;
    npy_intp next[MOST_PARTS + 1]; /* the place of each part's next row, and the end */
} Order;

/* The place of a row of two parts, and the step to the next one's. Without a branch, which would be
   guessed wrong half the time, and without places in memory, which are waited for. `first` is the
   next place of the first part; that of the second one is `both - first`. */
static inline npy_intp
place_of_two(npy_int64 key, npy_int64 start, npy_intp both, npy_intp *first)
{
    npy_intp second = -(npy_intp)(key >= start); /* all bits, or none */
    npy_intp place = (*first & ~second) | ((both - *first) & second);
    *first += 1 + second;
    return place;
}

static void
find_places(Order *order, npy_intp start, npy_intp count, npy_intp *places)
{
    const npy_int64 *keys = order->keys + start;
    if (order->parts == 2) {
        npy_intp first = order->next[0], both = first + order->next[1];
        for (npy_intp row = 0; row < count; row++) {
            places[row] = place_of_two(keys[row], order->starts[0], both + row, &first);
        }
        order->next[0] = first;
        order->next[1] = both + count - first;
        return;
    }
    npy_uint8 parts[TOGETHER] = {0};
    for (Py_ssize_t i = 0; i < order->parts - 1; i++) {
        for (npy_intp row = 0; row < count; row++) {
            parts[row] += keys[row] >= order->starts[i];
        }
    }
    for (npy_intp row = 0; row < count; row++) {
        places[row] = order->next[parts[row]]++;
    }
}

static inline void
copy_row(const Column *column, npy_intp row, npy_intp place, npy_intp width, int narrow)
{
    if (narrow) {
        npy_int32 number = (npy_int32)((const npy_int64 *)column->from)[row];
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

/* Numbers and rows of 8 bytes to two parts: in one pass, which takes half as long as two. */
static void
split_pairs(const Order *order, const Column *columns)
{
    npy_intp first = order->next[0], both = first + order->next[1];
    for (npy_intp row = 0; row < order->rows; row++) {
        npy_intp place = place_of_two(order->keys[row], order->starts[0], both + row, &first);
        copy_row(&columns[0], row, place, 4, 1);
        copy_row(&columns[1], row, place, 8, 0);
    }
}

/* Group the rows of some arrays. The usual widths are constants, for which a copy is one
   instruction. */
static void
group_rows(Order *order, Py_ssize_t many, const Column *columns)
{
    if (order->parts == 2 && many == 2 && columns[0].narrow && columns[1].width == 8 &&
        !columns[1].narrow) {
        split_pairs(order, columns);
        return;
    }
    npy_intp places[TOGETHER];
    for (npy_intp start = 0; start < order->rows; start += TOGETHER) {
        npy_intp count = Py_MIN(order->rows - start, TOGETHER);
        find_places(order, start, count, places);
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
}

static int
is_fit(PyObject *rows, npy_intp count)
{
    return PyArray_CheckExact(rows) && PyArray_NDIM((PyArrayObject *)rows) > 0 &&
           PyArray_DIM((PyArrayObject *)rows, 0) == count &&
           PyArray_IS_C_CONTIGUOUS((PyArrayObject *)rows) &&
           !PyDataType_REFCHK(PyArray_DESCR((PyArrayObject *)rows));
}

static int
are_numbers(PyArrayObject *array, Py_ssize_t count)
{
    return PyArray_TYPE(array) == NPY_INT64 && PyArray_IS_C_CONTIGUOUS(array) &&
           (count < 0 || PyArray_SIZE(array) == count);
}

/* Keys, the starts of parts and how many rows each part has; 0 with an error if that is not so. */
static int
take_order(Order *order, PyArrayObject *keys, PyArrayObject *starts, PyObject *counts)
{
    order->keys = PyArray_DATA(keys);
    order->rows = PyArray_SIZE(keys);
    order->starts = PyArray_DATA(starts);
    order->parts = PyList_GET_SIZE(counts);
    if (!are_numbers(keys, -1) || order->parts > MOST_PARTS ||
        !are_numbers(starts, order->parts - 1)) {
        PyErr_Format(PyExc_TypeError, "keys and starts are int64, of up to %d parts", MOST_PARTS);
        return 0;
    }
    order->next[0] = 0;
    for (Py_ssize_t part = 0; part < order->parts; part++) {
        npy_intp count = PyLong_AsSsize_t(PyList_GET_ITEM(counts, part));
        if (count < 0) {
            break;
        }
        order->next[part + 1] = order->next[part] + count;
    }
    if (!PyErr_Occurred() && order->next[order->parts] != order->rows) {
        PyErr_SetString(PyExc_ValueError, "counts of other keys");
    }
    return !PyErr_Occurred();
}

/* An array and the one that takes its rows; 0 if they do not fit. */
static int
take_column(Column *column, PyObject *rows, PyObject *into, npy_intp count)
{
    if (!is_fit(rows, count) || !is_fit(into, count) ||
        !PyArray_ISWRITEABLE((PyArrayObject *)into)) {
        return 0;
    }
    npy_intp bytes = PyArray_NBYTES((PyArrayObject *)rows);
    int type = PyArray_TYPE((PyArrayObject *)rows);
    column->from = PyArray_BYTES((PyArrayObject *)rows);
    column->to = PyArray_BYTES((PyArrayObject *)into);
    column->width = count == 0 ? 0 : bytes / count;
    column->narrow = type == NPY_INT64 && PyArray_TYPE((PyArrayObject *)into) == NPY_INT32;
    return PyArray_NBYTES((PyArrayObject *)into) == (column->narrow ? bytes / 2 : bytes);
}

enum { MOST_ARRAYS = 4 };

/* grouped(keys, starts, counts, arrays, into): see _ways.pyi. */
PyObject *
grouped(PyObject *module, PyObject *args)
{
    PyArrayObject *keys, *starts;
    PyObject *counts, *arrays, *into;
    Order order;
    Column columns[MOST_ARRAYS];
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!:grouped", &PyArray_Type, &keys, &PyArray_Type, &starts,
                          &PyList_Type, &counts, &PyTuple_Type, &arrays, &PyTuple_Type, &into) ||
        !take_order(&order, keys, starts, counts)) {
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
    Py_BEGIN_ALLOW_THREADS
    group_rows(&order, many, columns);
    Py_END_ALLOW_THREADS
    return Py_NewRef(Py_None);
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
