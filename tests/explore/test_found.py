"""Small programs that once went otherwise than with NumPy, or not alike on all ranks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import distarray as da
from tests.everywhere import raises_everywhere
from tests.explore.program import THRESHOLDS, Program, follow

PROGRAMS = {
    "a view at one coordinate beside a length of 1": """
        v1 = lay(make((4, 3, 5), 'f8', 1), S(0))
        v2 = lay(make((7,), 'f8', 2), S(0))
        v3 = v1[0] + v2[:1]
        v4 = v1[-1]
        v4 *= v2[:1]
        v5 = np.where(v1[1] > 0, v2[:1], v1[2])
    """,
    "Fortran order is a copy on all ranks": """
        v1 = lay(make((3, 2), 'f8', 1), S(0))
        v2 = np.asfortranarray(v1)
        v2[:] = 5
        v3 = np.asarray(v1, order='F')
        v3[:] = 6
        v4 = v1.astype('f8', order='F', copy=False)
        v4[:] = 7
        v5 = np.require(v1, requirements='F')
        v5[:] = 8
    """,
    "as stored, of what is repeated along a dimension": """
        v1 = np.broadcast_to(lay(make(3), S(0)), (2, 3))
        v2 = v1.flatten('K')
        v3 = np.broadcast_to(lay(make((13, 1, 3)), S(0)), (13, 2, 3)).T.flatten('K')
        v4 = np.broadcast_to(lay(make((13, 1, 3)), S(0)), (13, 2, 3))[::-1].ravel('K')
    """,
    "nothing to squeeze": """
        v1 = lay(make(()))
        v2 = np.squeeze(v1)
        v2.setflags(write=False)
        v3 = np.squeeze(lay(make((3,)), S(0)))
    """,
    "differences of small integers as times": """
        v1 = lay(make(2, 'm8[s]'), S(0))
        v2 = lay(np.array([[0, 0, 0], [0, 0, 1]], dtype='u1'), S(0))
        np.subtract.reduce(v2, axis=1, out=v1)
    """,
    "no NaN to replace in integers that are read-only": """
        v1 = lay(make((3, 3), 'i8'), S(0))
        v2 = np.nan_to_num(np.diagonal(v1), copy=False)
    """,
    "C order of what has gaps is a copy on all ranks": """
        v1 = lay(make((9,), 'i8', 1), S(0))
        v2 = np.ascontiguousarray(v1[::4])
        v2[:] = 5
        v3 = np.ascontiguousarray(v1)
        v3[:2] = 6
        v4 = np.require(v1[::8], requirements=['C', 'O'])
        v4[:] = 7
    """,
    "reshaped and ravelled": """
        v1 = lay(make((4, 3), 'f8', 1), S(0))
        v2 = v1.T.ravel()
        v2[0] = 9
        v3 = v1.reshape(12)
        v3[1] = 8
        v4 = v1.ravel(order='F')
        v4[2] = 7
        v5 = v1.T.reshape(12, order='A')
        v5[3] = 6
    """,
    "no memory on one of the ranks": """
        v1 = lay(make((3, 2, 4), 'f8', 1), S(2)).transpose(1, 0, 2)
        v2 = v1.reshape(6, 2, 2)
        v3 = np.reshape(v1, (6, 4), copy=False)
        v4 = np.array(v1, order='C', copy=False)
        v5 = np.ascontiguousarray(v2)
        v5[:] = 5
        v6 = np.asfortranarray(v2.copy())
        v7 = v6.ravel()
        v7[0] = 9
    """,
    "text from one element to another": """
        v1 = lay(make((6,), 'U3', 1), S(0))
        v1[0] = v1[-1]
        v1[1:2] = v1[3]
    """,
    "at refuses negative powers": """
        v1 = lay(make((8,), 'i8', 1), S(0))
        np.power.at(v1, [5, -7], [-1, 1])
        v2 = v1 + 1
        np.power.at(v1, [1, -1], [2, 3])
    """,
    "at of what is read-only": """
        v1 = lay(make((5, 4), 'i8', 1), S(0))
        np.add.at(v1.diagonal(), slice(0, 2), 1)
        np.add.at(np.broadcast_to(v1, (2, 5, 4)), ..., 1)
        v2 = v1 + 1
    """,
    "einsum gives views": """
        v1 = lay(make((4, 3), 'f8', 1), S(0))
        np.einsum('i->i', v1[1])[...] = 7
        np.einsum('ij->ji', v1)[0] = 6
    """,
    "one field from another": """
        v1 = lay(make((5,), 'rec', 1), S(0))
        v1['y'][::-1] = v1['x']
        v1['x'][1:] = v1['y'][:-1]
        v1['x'][-1:] = v1['x'][:1]
        v1['y'][0] = v1['y'][-1]
        v2 = np.concatenate([v1['x'][-1:], v1['x'][:1]])
        v3 = v1['x'][1:2].sum() + v1['x'][-1:].max()
        v4 = np.add.reduce(lay(make((5, 3), 'rec', 2), S(1))['x'][1:2], axis=1)
    """,
    "copyto": """
        v1 = lay(make((3, 4), 'f8', 1), S(0))
        v2 = lay(make((4,), 'f8', 2), S(0))
        np.copyto(v2, lay(make((1, 4), 'f8', 3), S(1)), where=[True, False, True, False])
        np.copyto(v1, v2, where=v1 > 0)
        np.copyto(v1, 1j)
        np.copyto(v1, lay(make((4,), 'c16', 3), S(0)), where=v1 > 0)
        np.copyto(v1, v2, where='yes')
        np.copyto(v1, v2, where=[1.5])
        np.copyto(v1, lay(make((4,), 'c16', 3), S(0)), casting='unsafe')
    """,
    "keys that select nothing": """
        v1 = lay(make((7,), 'f8', 1), S(0))
        v1[[]] = lay(make((4, 0), 'f8', 2), S(0))
        v1[numpy.zeros(0, bool)] = 5
        v2 = v1[numpy.zeros(0, bool)]
        v1[[]] = numpy.zeros((2, 3))
        v1[[]] = numpy.zeros((0, 1))
        v1[[]] = numpy.zeros((4, 1))
        v1[:0][[]] = lay(make((0, 1)), S(0))
        v3 = lay(make((3, 0)), S(0))
        v3[[1, 2]] = numpy.zeros((2, 2, 0))
        v3[[1, 2]] = numpy.zeros((2, 0, 0))
        v4 = lay(make((7, 3)), S(0))
        v4[numpy.zeros(7, bool)] = numpy.zeros((4, 0, 3))
        v4[numpy.zeros(7, bool)] = numpy.zeros((4, 1, 3))
    """,
    "put writes what comes before": """
        v1 = lay(make((7,), 'f8', 1), S(0))
        np.put(v1, [1, 2, 9, 3], [11, 12, 13, 14])
        np.put(v1, [-8, 3], 5)
        np.put(v1, [], [1])
        np.put(v1[:0], [0], [1])
    """,
    "folds in another type": """
        v1 = lay(make((7,), '?', 1), S(0))
        v2 = lay(make((6, 3), 'i4', 2), S(0))
        v3 = np.subtract.reduce(v1, dtype='f4')
        v4 = np.remainder.accumulate(v2, dtype='f8')
        v5 = np.subtract.reduce(v1)
        v6 = np.subtract.accumulate(v2, axis=1, dtype='i1')
    """,
    "the flat iterator": """
        v1 = lay(make((3, 4), 'i1', 1), S(0))
        v1.flat[1:4] = np.uint8(200)
        v1.flat[[0, 5]] = [7, 8]
        v1.flat[-1] = 9
        v1.T.flat[2:5] = [1, 2]
        v1.flat[99] = 1
        v1.diagonal().flat[0] = 1
    """,
    "real and imaginary parts": """
        v1 = lay(make((4,), 'c16', 1), S(0))
        v1.real = 1j
        v1.imag = lay(make((4,), 'f8', 2), S(0))
        v1.real = [1, 2, 3, 4]
    """,
    "orders": """
        v1 = np.asfortranarray(lay(make((4, 3), 'f8', 1), S(0)))
        v2 = v1.astype('f8', order='A', copy=False)
        v2[0] = 5
        v3 = np.array(v1, order='A', copy=None)
        v3[1] = 6
        v4 = v1.reshape(12, order='A')
        v4[2] = 7
        v5 = np.ravel(v1, order='K')
    """,
    "place and putmask": """
        v1 = lay(make((5, 3), 'f8', 1), S(0))
        np.place(v1.diagonal(), [True, True, True], [1.0])
        np.putmask(v1.diagonal(), [True, True, True], [1.0])
        np.place(v1, v1 > 0, [7, 8])
        np.putmask(v1, v1 < 7, [1, 2, 3, 4])
        np.place(v1, v1 > 0, [])
        v2 = lay(make((9,), 'f8', 3), S(0))
        np.putmask(v2[1:], v2[1:] > 0, v2[:-1])
        np.putmask(v2[:-1], v2[1:] > 0, v2[1:])
    """,
    "offsets that are no integers": """
        v1 = np.tri(5, 4, -1.5)
        v2 = np.tri(4, 5, -10.5)
        v3 = np.tril(lay(make((5, 4), 'f8', 1), S(0)), 0.5)
        v4 = np.triu(lay(make((5, 4), 'f8', 1), S(0)), -0.5)
        v5 = np.tril_indices(4, -10.5)
        v6 = np.triu_indices(4, 1.5)
    """,
    "arguments that are refused": """
        v1 = lay(make((6,), 'f8', 1), S(0))
        v2 = np.insert(v1, 1.5, 3)
        v2 = np.insert(v1, [1.5, 2.0], 3)
        v2 = np.insert(v1, [1.0], 3)
        v2 = np.arange()
        v2 = np.unpackbits(lay(make((6,), 'u1', 1), S(0)), count=3.5)
        v2 = np.unpackbits(lay(make((6,), 'u1', 1), S(0)), count=3)
        v3 = np.insert(v1, [1, 3], [7, 8])
    """,
    "what writes is refused what is read-only": """
        v1 = np.broadcast_to(lay(make((4,), 'f8', 1), S(0)), (3, 4))
        v1.fill(1)
        np.add(v1, 1, out=v1)
        np.copyto(v1, 2)
        np.put(v1, [0], 1)
        np.put_along_axis(v1, numpy.zeros((1, 4), int), 5, 0)
        np.cumsum(v1, axis=0, out=v1)
        np.concatenate([v1[:1] + 1, v1[1:]], out=v1)
        np.round(v1, out=v1)
        np.sum(v1, axis=0, out=v1[0])
        np.clip(lay(make((3, 4), 'c16', 1), S(0)), 0, 1, out=v1)
        v2 = v1 + 1
    """,
    "results of several shapes": """
        v1 = lay(make((4,), 'f8', 1), S(0))
        v2 = lay(make((2, 4), 'f8', 2), S(1))
        v3 = lay(make((4,), 'f8', 3), S(0))
        np.modf(v1, out=(v2, v3))
        np.modf(v1[0], out=(v2[:1, :1], v3[:1].reshape(())))
        np.add(v1[None], 1, out=v2[:, :1])
        np.divmod(v1, 2, out=(v2, None))
        np.modf(v1, out=(v3, v1))
    """,
    "objects that have no such operation": """
        v1 = lay(make((4,), '?', 1), S(0))
        v2 = np.power(v1, numpy.array(None))
        v3 = np.add(v1, numpy.array([None]))
        v4 = v1 + 1
    """,
    "text of no dimensions keeps its length": """
        v1 = lay(make((1, 2), 'U3', 1), S(0))
        v2 = np.add(v1, v1[0, ..., 0])
        v3 = np.strings.add(v1[0, ..., 1], v1)
    """,
    "what is no axis and no array": """
        v1 = lay(make((3, 4), 'f8', 1), S(0))
        v2 = np.sum(v1, axis=True)
        v3 = np.max(v1, axis=(True,))
        v4 = np.take(v1, 0, axis=True)
        v5 = np.round(v1, 0, 5)
        v6 = np.add(v1, 1, out=5)
        v7 = np.sum(v1, 0, None, [v1])
        v8 = np.median(v1, 0, 'a')
    """,
    "types before shapes": """
        v1 = lay(make((2,), 'rec', 1), S(0))
        v2 = v1 == numpy.zeros(0)
        v3 = v1 != lay(make((3,), 'f8', 2), S(0))
        v4 = v1 == lay(make((3,), 'rec', 2), S(0))
        v5 = lay(make((2,), 'M8[D]', 3), S(0))
        v6 = np.where(numpy.zeros(0), numpy.zeros(()), v5)
        v7 = np.where(v1['x'] > 0, numpy.zeros(3), v5)
        v8 = np.clip(numpy.zeros(0), 0, v5)
    """,
    "memory of a view at one coordinate": """
        v1 = lay(make((3,), 'f8', 1), S(0))
        v2 = v1[..., 2]
        v3 = np.shares_memory(v1, v2), np.shares_memory(v2, v1[1:]), np.shares_memory(v2, v1[:2])
        v4 = np.may_share_memory(v1[2:], v2), np.may_share_memory(v2, v1 + 1)
    """,
    "records among integers": """
        v1 = lay(make((3,), 'rec', 1), S(0))
        v2 = lay(make((4,), 'i8', 2), S(0))
        v3 = np.isin(v2[:0], v1)
        v3 = np.isin(v2, v1)
        v3 = np.isin(v2[:0], v1[:0])
        v3 = np.isin(v1, v2[:0])
        v4 = np.isin(v1, v2[:0], kind='table')
    """,
    "products with what has no dimensions": """
        v1 = lay(make((3,), 'i8', 1), S(0))
        v2 = lay(make((2, 3), 'f4', 2), S(1))
        np.dot(v1, 2, out=v2)
        np.dot(numpy.array(3), v1, out=v2[1])
        v3 = np.dot(v1[0], v1[1], out=lay(make((), 'f8', 3)))
        np.dot(v2, numpy.array(2, 'f4'), out=lay(make((2, 3), 'f8', 3), S(1)))
        np.dot(v1, numpy.array(2), out=v2[:, 0])
        np.dot(v1, numpy.array(2), out=lay(make((3,), '?', 3), S(0)))
    """,
    "functions that give back what they get": """
        v1 = lay(make((3, 3, 3), 'f8', 1), S(0))
        v2 = v1[1]
        v3 = np.real_if_close(v2)
        v4 = np.linalg.matrix_transpose(v2)
        v5 = np.astype(v2, 'f8', copy=False)
        v6 = np.apply_over_axes(np.sum, v2, [])
        v7 = np.polyder(v2[0], 0)
        v8 = np.polyint(v2[0], 0)
        v9 = np.linalg.matrix_power(v2, 1)
        v4[0] = 7
        v10 = np.polyint(v2[0], 2)
        v11 = np.linalg.matrix_power(v2, 3)
        v2[:] = 2 * numpy.eye(3)
        v12 = np.linalg.matrix_power(v2, -2)
    """,
    "one of several results into a scalar": """
        v1 = lay(make((), 'i8', 1))
        v2 = make((2,), 'f8', 2)
        np.divmod(v1, 2, out=(v2[0], v2[...]))
        np.divmod(v1, 2, out=(v2[...], v2[0]))
        np.modf(lay(make((2,), 'f8', 1), S(0)), out=(v2, v1[()]))
    """,
    "closeness of text": """
        v1 = lay(make((2,), 'f8', 1), S(0))
        v2 = np.isclose(v1, make((0,), 'U3'))
        v2 = np.isclose(v1, make((3,), 'f8'))
    """,
    "read-only diagonals": """
        v1 = lay(make((3, 3)), S(0))
        v2 = np.broadcast_to(v1, (2, 3, 3))
        np.fill_diagonal(v2[0], 1)
        np.fill_diagonal(v2[0], [])
        np.fill_diagonal(np.broadcast_to(v1[0, 0], (1, 0, 0))[0], 1)
        np.fill_diagonal(v1[::-1], [1, 2])
    """,
    "gaps in the blocks of some ranks": """
        v1 = lay(make((2, 5)), S(1))
        v2 = np.asarray(v1[:, 1:], order='C')
        v2[:] = 7
        v3 = v1[:, :4].reshape(8)
        v3[:] = 8
        v4 = np.asfortranarray(v1.T[:4])
        v4[:] = 9
        v5 = v1.T[1:].reshape(8, order='F')
        v5[:] = 6
        v6 = np.ascontiguousarray(v1[:, 1:].T)
    """,
    "scans and slices into other types": """
        v1 = lay(make((5,), '?', 1), S(0))
        v2 = lay(make((2,), 'm8[s]', 2), S(0))
        np.bitwise_and.reduceat(v1, [0, 2], out=v2)
        np.multiply.reduceat(v1, [0, 2], out=v2)
        np.add.reduceat(v1, [0, 2], out=v2)
        np.add.reduceat(v1, [0, 2], out=v2[:1])
        np.add.reduceat(v1, [0, 2], out=np.broadcast_to(v2[0], (2,)))
        v3 = np.subtract.accumulate(v1, out=lay(make((5,), 'i4'), S(0)))
        v4 = np.subtract.accumulate(v1, out=make((5,), 'f8'))
    """,
    "a text that one rank has": """
        v1 = lay(make(4, 'U3', 1), S(0))
        v2 = v1[..., 3]
        v3 = np.strings.find(v2, 'a')
        v4 = np.strings.str_len(v2)
        v5 = np.strings.add(v2, v2)
        v6 = v2 + v2
        v7 = np.strings.add(v2, 'abc')
        v8 = np.strings.add(v2, v1)
        v9 = np.strings.isalpha(np.resize(v1, ()))
        np.strings.add(v2, v2, out=lay(make(4, 'U6'), S(0))[..., 1])
        v10 = np.where(v2 == v2, v2, 'abcdef')
        v11 = np.strings.replace(v2, 'a', 'bb')
    """,
    "too many counts": """
        v1 = lay(make(4, 'i8', 1), S(0))
        v2 = np.bincount(abs(v1[:2].byteswap()))
        v3 = np.bincount(abs(v1))
    """,
    "numbers for which there is no room": """
        v1 = lay(make(3, 'i1'), S(0))
        v1[..., 0] = numpy.uint8(200)
        v1[1] = numpy.uint8(200)
        v1[1:2] = numpy.uint8(200)
        v1[1:2] = lay(make(3, 'i8') * 100, S(0)).sum()
        v1[..., 0] = numpy.array(300)
        v1[1:2] = numpy.array(300)
        v1[1:1] = numpy.int64(300)
        v1[..., 2] = numpy.float64(3.5)
        v1[[0, 1]] = numpy.int64(300)
    """,
    "arrays without dimensions are cast": """
        v1 = lay(make(4, 'i1'), S(0))
        v2 = lay(make(()), R)
        v2 -= 300
        v1[0] = v2
        v1[..., 2] = v2
        v1[:] = v2
        v1[3] = lay(make(4), S(0))[..., 2]
    """,
    "select looks at conditions before shapes": """
        v1 = lay(make(2), S(0))
        v2 = np.select(make((1, 0)), [v1])
        v3 = np.select([lay(make(3)) > 1], [v1])
    """,
    "what has gaps is written through its flat iterator": """
        v1 = lay(make((3, 6), 'i8'), S(0))
        v1[:, ::2].flat[[0, 20]] = 88
        v1.T.flat[[1, 2, 20]] = [1, 2, 3]
        v1[:, ::3].flat[20] = 5
        v1[1].flat[[1, 2, 20]] = 7
        v2 = lay(make(3, 'rec'), S(0))
        v2[::2].flat[[0, 2]] = make(())
    """,
    "clip into a smaller array": """
        v1 = lay(make(1))
        np.clip(v1, 0, True, out=make(()))
        np.isposinf(v1, out=make((), '?'))
    """,
    "the stored order of parts of complex numbers, turned": """
        v1 = np.real(lay(make((2, 1, 2), 'c8'), S(0))).T
        v2 = v1.ravel('K')
        v2 = np.real(lay(make((2, 1, 2), 'c8'), S(2))).T.ravel('K')
        v3 = np.imag(lay(make((2, 1, 1, 3), 'c16'), S(0))).T.flatten('K')
        v4 = np.real(lay(make((4, 1, 2), 'c8'), S(0))).swapaxes(0, 1).copy('K').ravel('K')
        v5 = lay(make((2, 2)), S(1)).T[:, None, :].ravel('K')
        v6 = lay(make((2, 2)), S(1)).T[None].ravel('K')
    """,
    "a masked clip into an array of NumPy's": """
        v1 = lay(make((2, 3)), S(0))
        v2 = make((2, 3), 'f8')
        v3 = np.clip(v1, 1, 3, out=v2, where=lay(make((2, 3), 'b1'), S(1)))
        v4 = np.clip(v1, 1, 3, out=(v2,), where=v1 > 2, casting='no')
        v5 = np.clip(v1[0], 1, 3, out=v2, where=True)
        v6 = np.clip(v1, 1, 3, out=v2[:, :2], where=v1 > 2)
    """,
    "the stored order of what is joined and rolled": """
        v1 = np.block([lay(make((2, 2))).T]).flatten('K')
        v2 = np.block([[lay(make((4, 3)), S(0)).T], [lay(make((4, 3)), S(0)).T]]).ravel('K')
        v3 = np.block(lay(make((4, 3)), S(1)).T).ravel('K')
        v4 = np.concatenate([lay(make((7, 5)), S(1)).T, make((2, 7))], 0).ravel('K')
        v5 = np.hstack([lay(make((7, 5)), S(0)).T, lay(make((7, 5)), S(0)).T + 1]).ravel('K')
        v6 = np.concatenate([lay(make((7, 5)), S(1)).T, make((1, 7))], 0).ravel('K')
        v7 = np.roll(lay(make((7, 5)), S(0)).T, 2, 1).ravel('K')
        v8 = np.roll(lay(make((7, 5)), S(0)).T, 2).ravel('K')
    """,
    "a condition that overlaps what is written": """
        v1 = lay(make((5, 2), '?', 51))
        np.putmask(v1, v1[::-1], make(5, 'b1'))
        v2 = lay(make((5, 2), '?', 51), S(0))
        np.putmask(v2, v2[::-1], make((5, 2), 'b1'))
    """,
    "an axis that is none, into what is read-only": """
        v1 = np.diagonal(np.full((0, 0), 0))
        np.cumsum(v1, axis=1, out=v1)
    """,
    "one of two results into a larger array": """
        v1 = lay(make(1, 'f8', 1), S(0))
        v2 = np.divmod(v1, 2, out=(make(0), None))
        v3 = np.divmod(v1, v1, out=(None, make((2, 3))))
        v4 = np.modf(lay(make((), 'f8', 1)), out=(make(3), None))
        v5 = np.modf(v1, out=(lay(make(3), S(0)), None))
        v6 = np.modf(v1, out=(lay(make(3), S(0)), make(3)))
    """,
    "text for no elements": """
        v1 = lay(make(3, 'c8'), S(0))
        v1[:0] = lay(make(1, 'U3', 1), S(0))
        v1[:0] = make(1, 'U3', 1)
        v1[:0] = 'ab'
        v1[:0] = make(2, 'U3', 1)
        v1[:0] = lay(make(1, 'rec'), S(0))
        v1[:1] = lay(make(1, 'U3', 1), S(0))
    """,
    "records for one field": """
        v1 = lay(make(3, 'rec'), S(0))
        v1['y'] = make(0, 'rec')
        v1['y'] = lay(make(2, 'rec'), S(0))
        v1['x'] = v1[['y']]
    """,
    "records where shapes do not broadcast": """
        v1 = lay(make((0, 0)), S(0))
        v2 = make(2, 'rec')
        v3 = np.logical_or(v1, v2)
        v3 = np.add(v1, v2)
        v3 = np.where(lay(v2, S(0))[:0], make(2), 0)
        v3 = np.where(v2, v1, make(2, 'M8[D]'))
        v3 = np.logical_or(v1, v2, out=lay(make(3)))
    """,
    "stored order where blocks have a single index": """
        v1 = lay(make((2, 2, 2), 'f8', 1), S(1)).T
        v2 = v1.ravel('K')
        v3 = v1.flatten('K')
        v4 = lay(make((2, 3), 'f8', 1), S(0)).T
        v5 = v4.tobytes('A'), v4.tobytes('F'), v4.tobytes('C'), v4.tobytes('K')
        v6 = v4[::2].tobytes('A'), v1.tobytes('A'), v1[1].tobytes('A')
        v7 = v1.transpose(1, 0, 2).ravel('K')
        v8 = v1.transpose(1, 2, 0)[:, ::-1].ravel('K')
    """,
    "choices without a common type": """
        v1 = lay(make(2, 'rec'), S(0))
        v2 = np.choose(lay(make(2), S(0)), [v1, 0])
        v2 = np.choose(lay(make(2), S(0)), ['a', 0])
        v2 = np.choose(lay(make(2), S(0)), [1, v1['y']])
        v3 = np.choose(v1['x'] > 0, [1, v1['y']])
        v4 = np.choose(v1['x'] > 0, [[1, 2], 3])
    """,
    "powers in a type that is asked for": """
        v1 = make(())
        v2 = np.power(v1, lay(make(2, 'i8', 20), S(0)), dtype='i1', casting='unsafe')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), [1,2], dtype='i1', casting='unsafe')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), [1,-2], dtype='i1', casting='unsafe')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), [1,2], dtype='i1')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), -1, dtype='i1')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), -1.5, dtype='i1', casting='unsafe')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), -1.5, dtype='i1')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), [1,-2,3], dtype='i1')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), [1,-2], dtype='f8')
        v2 = np.power(lay(make(2, 'i8', 20), S(0)), -1)
    """,
    "conditions for NumPy's arrays": """
        v3 = lay(make(()))
        v8 = make(0)
        np.logical_or(v3, 0, out=v8, where=0)
        v8 = make(2)
        np.logical_or(v3, 0, out=v8, where=[True, False])
        np.logical_or(lay(make(2),S(0)), 0, out=v8, where=lay(numpy.array([True, False]), S(0)))
        np.logical_or(v3, 0, out=v8, where=[1.5, 0])
    """,
    "counts of records": """
        np.logical_or(v3, 0, out=v8, where=numpy.array([1, 0]))
    """,
    "what is no array to write to": """
        v1 = lay(make(3), S(0))
        np.add.reduce(v1, out='U3')
        np.add.accumulate(v1, out='U3')
        np.add.reduceat(v1, [0], out='U3')
        np.max(v1, out='U3')
        np.matmul(v1, v1, out='U3')
        np.matmul(v1, v1, out=v1[0])
        np.einsum('i->', v1, out='U3')
        np.add.reduce(v1, out=v1[0])
        np.add.reduceat(v1, [0], out=np.broadcast_to(v1[0], 1))
    """,
    "products go into what is stored in C order": """
        v1 = lay(make((4, 4), 'f8', 1), S(0))
        v2 = lay(make((4, 4), 'f8', 2), S(1))
        np.dot(v1, v1, out=v2.T)
        np.dot(v1, numpy.array(2.0), out=v2.T)
        np.dot(v1, v1[0], out=lay(make((4, 4)), S(0))[:, 0])
        v3 = lay(make((4, 8)), S(0))
        v1.dot(v1, out=v3[:, ::2])
        np.linalg.multi_dot([v1, v1, v1], out=np.asfortranarray(v2))
        np.dot(v1, v1, out=v2)
        np.matmul(v1, v1, out=v3[:, ::2])
        np.outer(v1[0], v1[1], out=v2.T)
    """,
    "flags of views that run backwards": """
        v0 = lay(make(1), S(0))
        v1 = np.flip(v0)
        v1.flags.writeable = True
        v1.flags.writeable = False
        v1.flags.writeable = True
        v1[:] = 3
    """,
    "a turned view without elements is as writable as what it is a view of": """
        v1 = lay(make(0, 'f8', 1), S(0))
        v2 = v1[::-1]
        v1.setflags(write=False)
        v2.flags.writeable = True
    """,
    "a negative initial value where nothing is folded": """
        v1 = lay(make(0, 'i8', 1), S(0))
        v2 = np.gcd.reduce(v1, initial=-1)
        v3 = lay(make(3, 'f8', 1), S(0))
        v4 = np.hypot.reduce(v3, initial=-1.0, where=v3 > 1e9)
        v5 = np.sum(v3, initial=-0.0, where=v3 > 1e9)
    """,
    "scalars are nothing to write to": """
        v1 = lay(make((4,), 'f8', 1), S(0))
        np.add(v1[0], 1, out=v1[0])
        np.sum(v1, out=v1[0])
        np.cumsum(v1, out=v1[0])
        np.copyto(v1[0], 1)
        np.put(v1[0], [0], 1)
        np.place(v1[0], True, [1])
    """,
}


@pytest.mark.parametrize("below", THRESHOLDS[:2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_with_numpy(world, ranks, name, below):
    lines = tuple([line.strip() for line in PROGRAMS[name].strip().splitlines()])

    def program(group):
        at = [0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return follow(Program(lines, group.size, (group.size,), below), group, at)

    failures = [f for f in world.run(ranks, program) if f is not None]
    assert not failures, f"{lines[failures[0].line]}: {failures[0].kind}: {failures[0].text}"


def test_at_refuses_what_is_read_only_by_any_key(world, ranks):
    """Also by positions, with which NumPy writes to it."""

    def program(group):
        mesh = da.DeviceMesh(group, (group.size,))
        x = da.distribute(np.arange(20).reshape(5, 4), mesh, [da.Shard(0)], src=None)
        for view in (x.diagonal(), np.broadcast_to(x, (2, 5, 4))):
            raises_everywhere(group, ValueError, lambda v=view: np.add.at(v, [0, 1], 1))
        return x.full()

    for found in world.run(ranks, program):
        np.testing.assert_array_equal(found, np.arange(20).reshape(5, 4))


def test_numpys_arrays_are_joined_on_the_mesh_of_out(world, ranks):
    def program(group):
        mesh = da.DeviceMesh(group, (1, group.size))
        parts = [np.arange(6.0).reshape(2, 3)] * 2
        joined = da.distribute(np.zeros((4, 3)), mesh, [da.Shard(0)] * 2, src=None)
        np.concatenate(parts, out=joined)
        stacked = da.distribute(np.zeros((2, 2, 3)), mesh, [da.Shard(1)] * 2, src=None)
        np.stack(parts, out=stacked)
        return joined.full(), stacked.full()

    for joined, stacked in world.run(ranks, program):
        np.testing.assert_array_equal(joined, [*np.arange(6.0).reshape(2, 3)] * 2)
        np.testing.assert_array_equal(stacked, [np.arange(6.0).reshape(2, 3)] * 2)
