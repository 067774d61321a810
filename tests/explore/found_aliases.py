"""Programs of several views of one memory that once went otherwise than with NumPy."""

from __future__ import annotations

ALIASES = {
    "nothing is written to what is shared": """
        v1 = lay(make(60), S(0))[::-1]
        v2 = np.reshape(v1, (10, 3, 2))
        v2[[]] = make(())
        v2[False] = 0
        v1.flat[[0]] = 3
        v2.flat[[0]] = 4
    """,
    "a reshape of what is read-only": """
        v1 = lay(make(30), S(0))
        v4 = v1[::2]
        v4.setflags(write=False)
        v8 = v4.reshape((3, 5))
        v8[:] = 0
        v8 += 1
        v1[0] = 5
        v5 = v8.sum()
    """,
    "a refused write leaves what is newest": """
        v1 = lay(make((10, 10)), S(0))
        v1.setflags(write=False)
        v5 = v1.reshape((2, 50))
        np.lcm(v5, v5, out=v5)
        v6 = np.ascontiguousarray(v1)
    """,
    "no elements of what is shared": """
        v1 = lay(make((2, 30)), S(1)).T
        v2 = v1.T
        v2.flat = 3
        v4 = v2[:0].ravel()
        np.copyto(v4, 0)
    """,
    "permuted into what is shared": """
        v2 = lay(make((30, 2)), S(1))
        v4 = np.ravel(v2)
        np.random.default_rng(1).permuted(v2, out=v2)
        np.random.default_rng(1).shuffle(v4)
    """,
    "elements that were kept while the cut moves": """
        v1 = lay(make(22), S(0))
        v1[0] += 1
        v3 = v1[1:]
        v4 = v3.reshape((7, 3))
        v4[0] = 7
        v3[5] = 8
        v5 = v1[2:].reshape((4, 5))
        v5[1] = 9
    """,
    "columns are no line": """
        v1 = lay(make((2, 3)), S(1))
        v5 = np.hsplit(v1, [1])[1]
        v8 = v5.reshape(-1)
        v8 += v8
        v9 = lay(make(23), S(0))[::2].reshape((3, 2, 2))
        v10 = v9.view("i4")
    """,
    "bytes swapped in what is shared": """
        v2 = lay(make(24), S(0))
        v7 = v2.reshape((2, 4, 3))
        v2.byteswap(True)
        v2.byteswap(True)
    """,
    "one element is stretched on one rank": """
        v1 = lay(make(1), S(0))
        v6 = v1
        v8 = np.broadcast_to(v6, 2)
    """,
    "rows of what is shared": """
        v1 = lay(make((2, 45)), S(0))
        v2 = v1.reshape((5, 9, 2))
        v3 = list(v1)
        v2[0] = 3
    """,
    "a view of what alone is left of a memory": """
        v1 = lay(make((9, 5)), S(0))
        v1.shape = (15, -1)
        np.random.default_rng(3).permuted(v1, out=v1)
        v4 = v1.T.view('u1')
        v5 = v1.view('u1')[:, 3]
    """,
    "what windows show of another rank, written through an alias": """
        v1 = lay(make(24, 'i8', 1), S(0))[1:]
        v3 = np.lib.stride_tricks.sliding_window_view(v1, 2, writeable=True)
        v5 = v3[:, ::2].reshape((11, 2))
        np.clip(v5, 0, 0, out=v5)
    """,
    "windows of a view, when its base has got another shape": """
        v1 = lay(make(36, 'c16'), S(0))
        v2 = v1.imag
        v3 = v1[3:30:2]
        v1.shape = (2, 18)
        v4 = np.lib.stride_tricks.sliding_window_view(v2, 3, writeable=True)
        v4[5] = -1
        v5 = np.lib.stride_tricks.sliding_window_view(v3, 2, writeable=True)
        v5[2, 1] = 77
        v1[1] *= 2
    """,
    "a view of a read-only alias can be written to": """
        v1 = lay(make(30), S(0))
        v1.shape = (-1, 2)
        v2 = v1.reshape((-1, 3))
        v2.setflags(write=False)
        v3 = v2[:]
        v3.flags.writeable = True
        v3[1] = 5
    """,
    "windows of what can be written to, of what cannot": """
        v1 = lay(make(30), S(0))
        v2 = v1[:]
        v3 = v1.ravel()
        v1.setflags(write=False)
        v4 = np.lib.stride_tricks.sliding_window_view(v2, 2, writeable=True)
        v4[3] = 5
        v5 = np.lib.stride_tricks.sliding_window_view(v3, 2, writeable=True)
        v5[7] = 6
    """,
    "a cut that other items do not allow is not moved": """
        v1 = lay(make(6, 'i4'), S(0))
        v2 = v1.view('f8')
        v3 = v1.reshape((2, 3))
        v3[0] = 7
    """,
    "other items of a reshape in Fortran order": """
        v1 = lay(make((30, 3)), S(0))
        v2 = np.reshape(v1, (10, 3, 3), order='F')
        v3 = v2.view('i4')
        v3[2, 1] = 5
        v1[3] = 1
    """,
    "records at indices go to fields by their position": """
        v1 = lay(make(5, 'rec'), S(0))
        v2 = v1[['y', 'x']]
        v2[[0, 3]] = make((), 'rec')
    """,
}
