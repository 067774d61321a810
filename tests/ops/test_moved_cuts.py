"""A vector that is seen as a grid: what is sent once the cut has moved to where rows end."""

import numpy as np
import pytest

import distarray as da
import distarray.numpy as dnp


def _sweep(d, u):
    d[1:-1, 1:-1] = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


def _zeros(shape, mesh):
    return da.distribute(np.zeros(shape), mesh, [da.Shard(0)], src=None)


def _sent(group, act):
    with da.trace() as t:
        act()
    return int(group.allreduce(np.array(t.bytes), da.Fold.SUM))


@pytest.mark.parametrize("n", [20, 41])
def test_a_stencil_sends_what_it_sends_for_a_grid(world, ranks, n):
    def program(group):
        mesh = da.DeviceMesh(group, (group.size,))
        y, f = _zeros(n * n, mesh), _zeros(n * n, mesh)
        moved = _sent(group, lambda: (y.reshape(n, n), f.reshape(n, n)))
        d, u = y.reshape(n, n), f.reshape(n, n)
        e, w = _zeros((n, n), mesh), _zeros((n, n), mesh)
        grid = _sent(group, lambda: (_sweep(e, w), e.sum()))
        flat = _sent(group, lambda: (_sweep(d, u), y.sum()))
        return moved, grid, flat, d.layout is e.layout

    row, item = n, 8
    for moved, grid, flat, alike in world.run(ranks, program):
        assert flat <= grid
        assert alike
        assert moved <= 2 * (ranks * ranks * row * item + 64 * ranks)


def test_runge_and_kutta_send_what_they_send_for_grids(world, ranks):
    n = 24

    def program(group):
        mesh = da.DeviceMesh(group, (group.size,))

        def rhs(y):
            k = np.zeros_like(y)
            _sweep(k.reshape(n, n), y.reshape(n, n))
            return k

        def step(y):
            k1 = rhs(y)
            k2 = rhs(y + 0.05 * k1)
            k3 = rhs(y + 0.05 * k2)
            k4 = rhs(y + 0.1 * k3)
            y += 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        flat, grid = _zeros(n * n, mesh), _zeros((n, n), mesh)
        flat.reshape(n, n)[n // 2] = 1
        grid[n // 2] = 1
        sent = [_sent(group, lambda y=y: step(y)) for y in (flat, grid)]
        return sent, flat.full().reshape(n, n), grid.full()

    for (flat, grid), one, other in world.run(ranks, program):
        assert flat <= grid
        np.testing.assert_array_equal(one, other)


def test_a_moved_cut_has_no_bounds(world, ranks):
    def program(group):
        y = dnp.zeros(400 * 400)
        d = y.reshape(400, 400)
        return y.layout.cuts[0].bounds, d.layout.is_canonical, y.layout == np.zeros_like(y).layout

    for bounds, canonical, alike in world.run(ranks, program):
        assert bounds is None
        assert canonical
        assert alike
