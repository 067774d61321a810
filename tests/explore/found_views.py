"""Programs about views, stored order and writes that once went wrong."""

__all__ = ["VIEWS"]

VIEWS = {
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
    "what has gaps is written through its flat iterator": """
        v1 = lay(make((3, 6), 'i8'), S(0))
        v1[:, ::2].flat[[0, 20]] = 88
        v1.T.flat[[1, 2, 20]] = [1, 2, 3]
        v1[:, ::3].flat[20] = 5
        v1[1].flat[[1, 2, 20]] = 7
        v2 = lay(make(3, 'rec'), S(0))
        v2[::2].flat[[0, 2]] = make(())
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
    "records for one field": """
        v1 = lay(make(3, 'rec'), S(0))
        v1['y'] = make(0, 'rec')
        v1['y'] = lay(make(2, 'rec'), S(0))
        v1['x'] = v1[['y']]
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
}
