"""Programs that see one memory in several ways, as people write them; they `say` what they find."""

from __future__ import annotations

__all__ = ["PROGRAMS"]

#: Of arrays above the default threshold, of which `n` is the side.
PROGRAMS = {
    "a state vector seen as a grid": """
        y = np.zeros(n * n); d = y.reshape(n, n); d[1:-1, 1:-1] = 1; say(y.sum())
        y[:n] = 3; say(d[0].sum(), d.sum())
    """,
    "its shape set": """
        y = np.arange(n * n) * 1.; z = y[:]; y.shape = (n, n); y[3] = 0; say(y.shape, z.sum())
    """,
    "what is put off": """
        x = np.arange(n * n) * 1.; q = x.reshape(n, n); x += 1; say(q.sum()); q *= 2; say(x.sum())
        w = x * 2 + 1; q[5] = 0; say(w.sum(), x.sum(), (q + x.reshape(n, n)).sum())
    """,
    "a field of records": """
        r = np.zeros(n * n, [("a", float), ("b", int)]); r["a"].reshape(n, n)[0] = 1
        g = r["b"].reshape(n, n); g[:, 0] = 7; say(r["a"].sum(), r["b"].sum())
        r["b"] = 1; say(g.sum(), r[["b"]].shape)
    """,
    "a right-hand side": """
        def rhs(t, y):
            f = np.zeros_like(y); g = f.reshape(n, n); q = y.reshape(n, n)
            g[1:-1, 1:-1] = q[2:, 1:-1] + q[:-2, 1:-1] - 2 * q[1:-1, 1:-1]
            return f
        y = np.arange(n * n) ** 2 * 1.0; say(rhs(0, y).sum() / n)
        k1 = rhs(0, y); k2 = rhs(0, y + .5 * k1); y += .25 * (k1 + k2); say(y.sum() / n)
    """,
    "windows": """
        from numpy.lib.stride_tricks import sliding_window_view
        x = np.zeros(100_000); w = sliding_window_view(x, 3); x[1000] = 1; say(w.sum())
        x[50_000:] = 2; say(w[:, 0].sum(), w[-1].sum())
    """,
    "four variables in one vector": """
        y = np.zeros(4 * n * n); rho, mx, my, e = y.reshape(4, n, n)
        rho[...] = 1; mx[3] = 2; my[:, 3] = 3; e += 4; say(y.sum(), y[n * n:].sum())
        y[:] = 0; say(rho.sum(), e.max())
    """,
    "split into parts": """
        y = np.zeros(3 * n * n); u, v, w = np.split(y, 3); U = u.reshape(n, n); U[0] = 1
        v.reshape(n, n)[:, 0] = 2; w[:] = 3; say(y.sum(), U.sum(), v.sum())
    """,
    "a vector of a matrix": """
        a = np.zeros((n, n)); v = a.ravel(); v[::n + 1] = 1; say(a.trace(), a.sum())
        a.reshape(-1)[5] = 7; say(v.sum(), a.ravel().sum())
    """,
    "columns by another shape": """
        a = np.zeros((2, n * n)); b = a.reshape(n, 2 * n); b[:, 1] = 1; say(a[0].sum(), a[1].sum())
        a[1] = 5; say(b.sum(), b[-1].sum())
    """,
    "a transposed grid": """
        y = np.arange(n * n) * 1.; t = y.reshape(n, n).T; t[0] = 0; say(y.sum(), t[:, 0].sum())
        y[1] = 99; say(t[1, 0])
    """,
    "in place with an overlap": """
        y = np.arange(n * n) * 1.; g = y.reshape(n, n); g[1:] += g[:-1]; say(y.sum())
        y[1:] += y[:-1]; say(g.sum(), g[-1, -1])
    """,
    "out= of an alias": """
        y = np.arange(n * n) * 1.; g = y.reshape(n, n); np.multiply(g, 2, out=g); say(y.sum())
        np.add(y, 1, out=y); np.add(g, g.T, out=g); say(y.sum(), y[1])
    """,
    "complex parts": """
        z = np.zeros(n * n, complex); r = z.real.reshape(n, n); r[1] = 3; z.imag[:] = 1
        say(z.sum(), abs(z[n:2 * n]).sum())
        f = z.view(float).reshape(n, n, 2); f[..., 1] = 5; say(z.sum())
    """,
    "elements in a loop": """
        y = np.zeros(n * n); g = y.reshape(n, n)
        for i in range(0, n, 50): g[i, i] = i
        say(y.sum()); y[n + 1] = 5; say(g[1, 1])
        for row in g: row[0] = 1
        say(y.sum())
    """,
    "put and place": """
        y = np.zeros(n * n); g = y.reshape(n, n); np.put(g, [3, n * n - 1], 4); say(y.sum())
        np.place(g, g > 3, [7, 8]); say(y.sum()); np.putmask(y, y > 7, 1); say(g.sum())
        np.copyto(g[2], 5); np.fill_diagonal(g, 2); g.flat[5:9] = 6; say(y.sum())
    """,
    "sorted and shuffled": """
        y = (np.arange(n * n) * 7919) % 1009 * 1.; g = y.reshape(n, n); g.sort(axis=1)
        say(y[:n].sum(), y[-1]); y.sort(); say(g[0].sum(), g[-1].sum())
        np.random.default_rng(1).shuffle(g); say(y[0], y.sum())
    """,
    "ufunc.at": """
        y = np.zeros(n * n); g = y.reshape(n, n); np.add.at(y, [0, 0, n], 1); say(g[0, 0], g[1, 0])
        np.add.at(g, ([1, 1], [2, 2]), 5); say(y[n + 2], y.sum())
    """,
    "errors in the middle": """
        y = np.arange(n * n) * 1.; g = y.reshape(n, n)
        try: g[n] = 1
        except IndexError: say("index")
        try: g[0] = np.zeros(3)
        except ValueError: say("shape")
        try: y += np.zeros(3)
        except ValueError: say("in place")
        try: y.reshape(7, 3)
        except ValueError: say("reshape")
        g[1, 1] = -1; say(y[n + 1], y.sum())
    """,
    "copies stay copies": """
        y = np.arange(n * n) * 1.; c = y.reshape(n, n).copy(); f = y.reshape(n, n).flatten()
        t = y.reshape(n, n).T.ravel(); y[:] = 0; say(c.sum(), f.sum(), t.sum())
        c[0] = 5; say(y.sum(), f[0])
    """,
    "three aliases in turn": """
        y = np.zeros(12 * n * n); a = y.reshape(3 * n, 4 * n); b = y.reshape(2 * n, 6 * n)
        for i in range(5): y[i] += 1; a[:, i] += 2; b[i, :] *= 2; say(y.sum(), a.sum(), b.sum())
    """,
    "the base is gone": """
        g = np.zeros(n * n).reshape(n, n); v = g.ravel(); g[3] = 1; del g; v[0] = 5; say(v.sum())
        say(v.base is not None, v.flags.owndata, v.reshape(n, n)[3].sum())
    """,
    "Runge and Kutta": """
        def rhs(y):
            k = np.zeros_like(y); u, d = y.reshape(n, n), k.reshape(n, n)
            d[1:-1, 1:-1] = u[2:, 1:-1] + u[:-2, 1:-1] - 4 * u[1:-1, 1:-1]
            d[1:-1, 1:-1] += u[1:-1, 2:] + u[1:-1, :-2]
            return k
        y = np.zeros(n * n); y.reshape(n, n)[n // 2, n // 2] = 1.
        for step in range(3):
            k1 = rhs(y); k2 = rhs(y + .05 * k1); k3 = rhs(y + .05 * k2); k4 = rhs(y + .1 * k3)
            y += .1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        say(round(float(y.max()), 9), round(float(y.sum()), 9))
    """,
}
