# ruff: noqa: E501 - a statement is a line
"""Statements whose functions leave something behind: see `tests.explore.grammar`."""

__all__ = ["EFFECTS"]

#: What a function has noted, in the order of its calls, is the value that is compared.
EFFECTS = """
    3 v = numpy.array((lambda g: [np.vectorize(lambda t: g.append(t) or t)({x:exact+some}), g][1])([]))
    2 v = np.vectorize(lambda t, g=[]: g.append(t) or len(g))({x:exact+some})
    v = np.vectorize(lambda t, g=[]: g.append(t) or len(g), otypes="d", cache=True)({x:exact})
    v = np.vectorize(lambda t, u, g=[]: g.append(u) or len(g))({x:exact+some}, {same})
    v = np.vectorize(lambda r, g=[]: g.append(1) or r[::-1] + len(g), signature="(n)->(n)")({x:exact+nd})
    2 v = (lambda o: [np.vectorize(lambda t: o.__setitem__(int(t) % 5, t))({x:exact+some}), o][1])(numpy.zeros(5))
    v = sorted((lambda d: [np.vectorize(lambda t: d.update([(t, len(d))]))({x:exact+some}), d][1])(dict()).values())
    2 v = np.frompyfunc(lambda t, g=[]: g.append(t) or len(g), 1, 1)({x:exact+nd+some}).astype(int)
    v = np.frompyfunc(lambda t, u, g=[]: g.append(t) or len(g), 2, 1).reduce({x:exact+d1+some})
    v = np.frompyfunc(lambda t, u, g=[]: g.append(t) or len(g), 2, 1).accumulate({x:exact+d1+some}).astype(int)
    v = np.frompyfunc(lambda t, u, g=[]: g.append(t) or len(g), 2, 1).outer({x:exact+d1+some}, {y:d1+num+some}).astype(int)
    2 v = np.apply_along_axis(lambda r, g=[]: g.append(r[:1]) or len(g), arr={x:exact+dd+some}, axis={axis})
    v = np.apply_along_axis(lambda r, g: g.append(1) or r + len(g), 0, {x:exact+nd+some}, [])
    v = numpy.array((lambda g: [np.apply_along_axis(lambda r: g.append(r.sum()) or r, -1, {x:exact+nd+some}), g][1])([]))
    2 np.apply_along_axis(lambda r: r.sort() or 0, 0, {x:exact+nd+some})
    np.apply_along_axis(lambda r, g=[]: g.append(1) or r.fill(len(g)) or 1, -1, {x:exact+nd+some})
    v = np.pad({x:exact+nd}, 1, lambda r, w, a, k, g=[]: g.append(a) or r.fill(len(g)))
    v = np.piecewise({x:exact+nd}, [{mask}], [lambda t, g=[]: g.append(1) or t + len(g), 2])
    v = [w for w in np.frompyfunc(lambda t: [t], 1, 1)({x:exact+d1+small})[::-1]]
    v = np.fromiter((w * 2 for w in {x:exact+d1}), float)
"""
