"""Programs of operations, their types and their `out` that once went otherwise than with NumPy."""

from __future__ import annotations

OPERATIONS = {
    "calls in the order of memory: joined": """
        v2 = lay(make((2, 1, 2)), S(1))
        v5 = np.asfortranarray(v2)
        v6 = np.hstack(12 * [v5])
        v7 = (lambda g: [np.vectorize(lambda t: g.append(t) or t)(v6), g])([])
    """,
    "calls in the order of memory: stretched": """
        v1 = lay(make(2), S(0))
        v5 = np.insert(v1, 0, 0)
        v7 = np.broadcast_to(v5, (2, 3))
        v9 = np.vectorize(lambda t, g=[]: g.append(t) or len(g))(v7)
    """,
    "differences of small integers as times": """
        v1 = lay(make(2, 'm8[s]'), S(0))
        v2 = lay(np.array([[0, 0, 0], [0, 0, 1]], dtype='u1'), S(0))
        np.subtract.reduce(v2, axis=1, out=v1)
    """,
    "folds in another type": """
        v1 = lay(make((7,), '?', 1), S(0))
        v2 = lay(make((6, 3), 'i4', 2), S(0))
        v3 = np.subtract.reduce(v1, dtype='f4')
        v4 = np.remainder.accumulate(v2, dtype='f8')
        v5 = np.subtract.reduce(v1)
        v6 = np.subtract.accumulate(v2, axis=1, dtype='i1')
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
    "select looks at conditions before shapes": """
        v1 = lay(make(2), S(0))
        v2 = np.select(make((1, 0)), [v1])
        v3 = np.select([lay(make(3)) > 1], [v1])
    """,
    "clip into a smaller array": """
        v1 = lay(make(1))
        np.clip(v1, 0, True, out=make(()))
        np.isposinf(v1, out=make((), '?'))
    """,
    "a masked clip into an array of NumPy's": """
        v1 = lay(make((2, 3)), S(0))
        v2 = make((2, 3), 'f8')
        v3 = np.clip(v1, 1, 3, out=v2, where=lay(make((2, 3), 'b1'), S(1)))
        v4 = np.clip(v1, 1, 3, out=(v2,), where=v1 > 2, casting='no')
        v5 = np.clip(v1[0], 1, 3, out=v2, where=True)
        v6 = np.clip(v1, 1, 3, out=v2[:, :2], where=v1 > 2)
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
    "records where shapes do not broadcast": """
        v1 = lay(make((0, 0)), S(0))
        v2 = make(2, 'rec')
        v3 = np.logical_or(v1, v2)
        v3 = np.add(v1, v2)
        v3 = np.where(lay(v2, S(0))[:0], make(2), 0)
        v3 = np.where(v2, v1, make(2, 'M8[D]'))
        v3 = np.logical_or(v1, v2, out=lay(make(3)))
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
        np.logical_or(v3, 0, out=v8, where=numpy.array([1, 0]))
    """,
    "counts of records": """
        v1 = lay(make(3, 'rec'), S(0))
        v2 = np.count_nonzero(v1)
        v3 = np.count_nonzero(v1, axis=0)
        v4 = np.count_nonzero(v1, axis=5)
        v5 = np.count_nonzero(v1['y'], axis=5)
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
    "a negative initial value where nothing is folded": """
        v1 = lay(make(0, 'i8', 1), S(0))
        v2 = np.gcd.reduce(v1, initial=-1)
        v3 = lay(make(3, 'f8', 1), S(0))
        v4 = np.hypot.reduce(v3, initial=-1.0, where=v3 > 1e9)
        v5 = np.sum(v3, initial=-0.0, where=v3 > 1e9)
    """,
    "calls along the memory of a turned view": """
        v1 = lay(make((2, 2)), S(1))
        v2 = np.rot90(v1)
        v3 = np.vectorize(lambda t, u, g=[]: g.append(u) or len(g))(v2, v2)
    """,
    "calls along the memory of what is repeated": """
        v1 = lay(make((4, 1)), S(0))
        v2 = np.broadcast_to(v1, (2, 4, 1))
        v3 = np.frompyfunc(lambda t, g=[]: g.append(t) or len(g), 1, 1)(v2)
        v4 = np.broadcast_to(lay(make((1, 3)), S(0)), (2, 3))
        v5 = np.vectorize(lambda t, u, g=[]: g.append(u) or len(g))(v4, v4)
        v6 = np.asfortranarray(lay(make((1, 2, 2)), S(0)))
        v7 = np.vectorize(lambda t, g=[]: g.append(t) or len(g))(v6[0])
    """,
    "an element that one rank has": """
        v1 = lay(make((3, 1), '?'), S(1))
        v2 = raised(lambda: np.log(v1[-3, 0, ...]))
        v3 = np.squeeze(lay(make((1,), 'i1', 53), S(0)))
        v4 = recorded(lambda: 0 / v3)
        v5 = called(lambda: 0 / lay(make(1), S(0))[..., 0])
    """,
    "resized in the other order of bytes": """
        v1 = lay(make(5, '>i4'), S(0))
        v2 = np.resize(v1, 3)
        v3 = np.resize(v1, ())
        v4 = np.resize(v1, (2, 4))
    """,
    "calls along every other column, one on a rank": """
        v1 = lay(make((2, 3)), S(1))
        v2 = np.frompyfunc(lambda t, g=[]: g.append(t) or len(g), 1, 1)(v1[:, ::2])
        v3 = np.frompyfunc(lambda t, g=[]: g.append(t) or len(g), 1, 1)(v1[:, ::-2])
    """,
    "into what every second element was joined to": """
        v1 = np.dstack([lay(make(3), S(0))[::2], make(2)]).reshape((2, 2))
        v2 = np.dot(v1, v1, out=v1)
    """,
    "integers divided into times": """
        v1 = lay(make(3, 'i4'), S(0))
        v2 = make((), 'm8[s]')
        v3 = np.floor_divide.reduce(v1 * 0, out=v2)
        v4 = np.subtract.reduce(v1, out=lay(make((), 'm8[s]')))
    """,
}
