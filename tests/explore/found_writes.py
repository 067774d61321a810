"""Programs that write to arrays and once went otherwise than with NumPy."""

from __future__ import annotations

WRITES = {
    "text from one element to another": """
        v1 = lay(make((6,), 'U3', 1), S(0))
        v1[0] = v1[-1]
        v1[1:2] = v1[3]
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
    "what has gaps is written through its flat iterator": """
        v1 = lay(make((3, 6), 'i8'), S(0))
        v1[:, ::2].flat[[0, 20]] = 88
        v1.T.flat[[1, 2, 20]] = [1, 2, 3]
        v1[:, ::3].flat[20] = 5
        v1[1].flat[[1, 2, 20]] = 7
        v2 = lay(make(3, 'rec'), S(0))
        v2[::2].flat[[0, 2]] = make(())
    """,
    "a condition that overlaps what is written": """
        v1 = lay(make((5, 2), '?', 51))
        np.putmask(v1, v1[::-1], make(5, 'b1'))
        v2 = lay(make((5, 2), '?', 51), S(0))
        np.putmask(v2, v2[::-1], make((5, 2), 'b1'))
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
    "no NaN to replace in integers that are read-only": """
        v1 = lay(make((3, 3), 'i8'), S(0))
        v2 = np.nan_to_num(np.diagonal(v1), copy=False)
    """,
    "what gets a dimension keeps its steps": """
        v1 = lay(make(1))
        v2 = v1.reshape(1)
        np.logical_or(v1, make(()), out=v2, where=make((), '?', 1))
    """,
    "a product over no dimension has no negative zeros": """
        v1 = np.tensordot(make(3), lay(make(4)), axes=0)
        v2 = v1.astype('U3')
    """,
    "dates that are too long for a text": """
        v1 = lay(make(2, 'U3'))
        v1[1:] = lay(make(1, 'M8[D]'))
        v1[1:] = make(1, 'M8[D]')
    """,
    "at does not ask objects": """
        v1 = lay(make((), 'O'))
        np.bitwise_xor.at(v1, [], make(0))
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
