"""Programs about views, memory and its order that once went otherwise than with NumPy."""

from __future__ import annotations

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
    "einsum gives views": """
        v1 = lay(make((4, 3), 'f8', 1), S(0))
        np.einsum('i->i', v1[1])[...] = 7
        np.einsum('ij->ji', v1)[0] = 6
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
    "memory of a view at one coordinate": """
        v1 = lay(make((3,), 'f8', 1), S(0))
        v2 = v1[..., 2]
        v3 = np.shares_memory(v1, v2), np.shares_memory(v2, v1[1:]), np.shares_memory(v2, v1[:2])
        v4 = np.may_share_memory(v1[2:], v2), np.may_share_memory(v2, v1 + 1)
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
    "views of nothing may be written to again": """
        v1 = lay(make((0, 0)), S(0))
        v2 = np.diagonal(v1).ravel()
        v2[:].flags.writeable = True
    """,
    "views of what is read-only stay so": """
        v1 = lay(make(0), S(0))
        v2 = v1.ravel()
        v1.setflags(write=False)
        v2.flags.writeable = True
    """,
    "windows of nothing may not be written to": """
        v1 = lay(make(1, 'i8'), S(0))
        v2 = np.lib.stride_tricks.sliding_window_view(v1, 1)
        v2.flags.writeable = True
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
    "read-only diagonals": """
        v1 = lay(make((3, 3)), S(0))
        v2 = np.broadcast_to(v1, (2, 3, 3))
        np.fill_diagonal(v2[0], 1)
        np.fill_diagonal(v2[0], [])
        np.fill_diagonal(np.broadcast_to(v1[0, 0], (1, 0, 0))[0], 1)
        np.fill_diagonal(v1[::-1], [1, 2])
    """,
}
