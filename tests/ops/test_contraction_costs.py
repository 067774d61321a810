"""Contractions: their messages, the layouts of their results, and the memory they take."""

import numpy as np
import pytest

from distarray import DeviceMesh, Partial, Replicate, Shard, distribute, trace
from distarray.config import config
from distarray.engines.contracting import execution as engine
from distarray.engines.contracting import program as programs
from distarray.layout import Layout
from distarray.testing import assert_matches

RNG = np.random.default_rng(7)


def run(world, ranks, shapes, placements, call, mesh_shape=None, **settings):
    """Traces and layouts of a call on operands of ones, one a rank; the values are checked."""
    values = [RNG.integers(-4, 5, shape).astype(float) for shape in shapes]
    expected = call(*values)

    def program(group):
        mesh = DeviceMesh(group, mesh_shape or (group.size,))
        arrays = [distribute(v, mesh, p, src=None) for v, p in zip(values, placements, strict=True)]
        mesh.subgroup(tuple(range(mesh.ndim)))
        with config.override(**settings), trace() as t:
            result = call(*arrays)
        assert_matches(result, expected, exact=False, rtol=0, atol=0)
        whole = Layout.replicated((), mesh.shape)  # a number, which all ranks have
        return t, getattr(result, "layout", whole)

    return world.run(ranks, program)


ROWS, COLUMNS, WHOLE = [Shard(0)], [Shard(1)], [Replicate()]


@pytest.mark.parametrize(
    ("shapes", "placements", "call", "placed"),
    [
        (((60, 20), (20, 30)), (ROWS, WHOLE), np.matmul, ROWS),
        (((60, 20), (20, 30)), (WHOLE, COLUMNS), np.matmul, COLUMNS),
        (((60, 20), (20, 30)), (WHOLE, WHOLE), np.matmul, WHOLE),
        (((60, 20), (20,)), (ROWS, WHOLE), np.matmul, ROWS),
        (((12, 5, 6), (12, 6, 4)), (ROWS, ROWS), np.matmul, ROWS),
        (((12, 5, 6), (6, 4)), (ROWS, WHOLE), np.matmul, ROWS),
        (((60,), (50,)), (ROWS, WHOLE), np.outer, ROWS),
        (((60,), (50,)), (WHOLE, ROWS), np.outer, COLUMNS),
        (((6, 5), (3, 2)), (ROWS, WHOLE), np.kron, ROWS),
        (((12, 5), (12, 5)), (ROWS, ROWS), lambda a, b: np.einsum("ij,ij->i", a, b), ROWS),
        (((24, 24),), (ROWS,), lambda a: np.einsum("ij->ji", a), COLUMNS),
        (((24, 24),), (ROWS,), lambda a: np.einsum("ii->i", a), ROWS),
        (((24, 24),), (ROWS,), lambda a: np.einsum("ij->i", a), ROWS),
    ],
)
def test_without_a_message(world, ranks, shapes, placements, call, placed):
    for t, layout in run(world, ranks, shapes, placements, call):
        assert t.messages == 0, str(t)
        assert list(layout.placements) == placed


@pytest.mark.parametrize(
    ("shapes", "placements", "call", "elements"),
    [
        (((20, 60), (60, 30)), (COLUMNS, ROWS), np.matmul, 600),
        (((60,), (60,)), (ROWS, ROWS), np.matmul, 1),
        (((60, 6), (60, 6)), (ROWS, ROWS), np.vdot, 1),
        (((60, 6), (60, 6)), (COLUMNS, COLUMNS), np.vdot, 1),
        (((6, 60), (5, 60)), (COLUMNS, COLUMNS), np.inner, 30),
        (((60, 24),), (ROWS,), lambda a: np.matmul(a.T, a), 576),
        (((60, 24),), (ROWS,), lambda a: a.T @ a, 576),
        (((24, 60),), (COLUMNS,), lambda a: np.einsum("ij,kj", a, a), 576),
        (((24, 24),), (ROWS,), np.trace, 1),
        (((24, 24),), (COLUMNS,), lambda a: np.einsum("ii", a), 1),
        (((24, 24),), (ROWS,), lambda a: np.einsum("ij->j", a), 24),
        (((9, 30, 4), (30, 4, 5)), (COLUMNS, ROWS), np.tensordot, 45),
    ],
)
def test_one_allreduce(world, ranks, shapes, placements, call, elements):
    for t, layout in run(world, ranks, shapes, placements, call):
        assert layout.is_replicated
        if ranks > 1:
            assert [event.kind for event in t] == ["allreduce"], str(t)
            assert t.bytes == 8 * elements


def test_large_sums_are_scattered(world, ranks):
    """What would be whole on every rank is left cut: half the bytes of an allreduce."""
    shapes, placements = ((40, 60), (60, 30)), (COLUMNS, ROWS)
    for t, layout in run(world, ranks, shapes, placements, np.matmul, replicate_below=0):
        if ranks > 1:
            assert layout is Layout.chunked((40, 30), (ranks,), ROWS)
            assert [event.kind for event in t] == ["reduce_scatter"], str(t)


def test_tiny_results_of_large_operands_are_whole(world, ranks):
    """As small arrays are: what is computed with them then sends nothing."""

    def call(a, x):
        y = a @ x
        return y / np.sqrt(y @ y)

    settings = {"replicate_below": 1 << 16}
    for t, layout in run(world, ranks, ((64, 128), (128,)), (ROWS, WHOLE), call, **settings):
        assert layout.is_whole
        assert [event.kind for event in t] == ["exchange"] * (ranks > 1)
    for t, layout in run(world, ranks, ((65, 128), (128,)), (ROWS, WHOLE), np.matmul, **settings):
        assert list(layout.placements) == ROWS  # 520 bytes, where 512 are tiny
        assert t.messages == 0


def test_rows_times_rows_moves_the_second_operand_once(world, ranks):
    for t, layout in run(world, ranks, ((240, 60), (60, 30)), (ROWS, ROWS), np.matmul):
        assert list(layout.placements) == ROWS
        rows = -(-60 // ranks)
        assert t.messages <= ranks - 1
        assert t.bytes <= 8 * 30 * rows * (ranks - 1)


def test_the_smaller_operand_moves(world, ranks):
    call = np.matmul
    for t, _layout in run(world, ranks, ((400, 30), (30, 6)), (COLUMNS, COLUMNS), call):
        assert t.bytes <= 8 * 30 * 400, str(t)
    for t, _ in run(world, ranks, ((400, 30), (30, 6)), (ROWS, COLUMNS), call):
        assert t.bytes <= 8 * 30 * 6 * (ranks - 1), str(t)


@pytest.mark.parametrize("mesh_shape", [(2, 2), (3, 2), (2, 3)])
def test_blocks_times_blocks(world, mesh_shape):
    """On a 2-d mesh an operand goes along one mesh dimension only."""
    ranks = mesh_shape[0] * mesh_shape[1]
    if ranks not in world.ranks:
        pytest.skip("the mesh needs another number of ranks")
    placed = [Shard(0), Shard(1)]
    shapes = ((36, 48), (48, 60))
    for t, layout in run(world, ranks, shapes, (placed, placed), np.matmul, mesh_shape):
        assert list(layout.placements) == placed
        first = 36 // mesh_shape[0] * 48 // mesh_shape[1] * (mesh_shape[1] - 1)
        second = 48 // mesh_shape[0] * 60 // mesh_shape[1] * (mesh_shape[0] - 1)
        assert t.bytes <= 8 * (first + second)


def test_replicated_factors_of_a_large_result_are_divided(world, ranks):
    shapes = ((64, 3), (3, 32))
    for t, layout in run(world, ranks, shapes, (WHOLE, WHOLE), np.matmul, replicate_below=1000):
        assert t.messages == 0
        assert list(layout.placements) == (ROWS if ranks > 1 else WHOLE)


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_shifted_views_of_a_sum(world, ranks, shift):
    """Two views of one base that differ by a shift exchange the rows between, not all of them."""
    call = lambda a: np.dot(a[shift:], a[: 60000 - shift])  # noqa: E731
    for t, _ in run(world, ranks, ((60000,),), (ROWS,), call):
        if ranks > 1:
            assert t.count("allreduce") == 1
            assert t.bytes <= 8 * (1 + shift)


@pytest.fixture
def pieces(monkeypatch):
    """Elements of each piece of an operand that was brought, on all thread ranks together."""
    sizes = []
    moved = engine.movement.moved

    def watched(block, src, dst, mesh):
        part = moved(block, src, dst, mesh)
        if dst is not src:
            sizes.append(part.size)
        return part

    monkeypatch.setattr(engine.movement, "moved", watched)
    return sizes


def test_a_large_operand_comes_in_panels(world, ranks, pieces, monkeypatch):
    """The second operand would be whole on every rank: it comes in columns, a part at a time."""
    monkeypatch.setattr(programs, "PANEL_BYTES", 64)
    for _, layout in run(world, ranks, ((241, 61), (61, 31)), (ROWS, ROWS), np.matmul):
        assert list(layout.placements) == ROWS
    if ranks > 1:
        assert max(pieces) <= 61 * -(-31 // ranks) + 61


@pytest.mark.parametrize("dtype", ["f8", "i8", "?", "f2"])
@pytest.mark.parametrize("mesh_shape", [(2, 2), (3, 2), (1, 4)])
def test_panels_of_a_summed_label(world, mesh_shape, dtype, pieces, monkeypatch):
    """Blocks times blocks with neither operand whole anywhere."""
    ranks = mesh_shape[0] * mesh_shape[1]
    if ranks not in world.ranks:
        pytest.skip("the mesh needs another number of ranks")
    monkeypatch.setattr(programs, "PANEL_BYTES", 8)
    a, b = (RNG.integers(-3, 4, shape).astype(dtype) for shape in ((24, 45), (45, 18)))
    expected = a @ b

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x, y = (distribute(v, mesh, [Shard(0), Shard(1)], src=None) for v in (a, b))
        assert_matches(x @ y, expected, exact=False, rtol=0, atol=0)

    world.run(ranks, program)
    if 1 not in mesh_shape:
        depth = -(-45 // max(mesh_shape))
        assert max(pieces) <= depth * max(24 // mesh_shape[0], 18 // mesh_shape[1])


@pytest.mark.parametrize("dtype", ["f8", "i8", "?", "f2"])
@pytest.mark.parametrize("rows", [37, 41])
def test_a_large_sum_is_made_in_parts(world, ranks, dtype, rows, monkeypatch):
    """No rank holds a contribution as large as the whole result."""
    monkeypatch.setattr(programs, "PANEL_BYTES", 8)
    a, b = (RNG.integers(-3, 4, shape).astype(dtype) for shape in ((rows, 61), (61, 39)))

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        x = distribute(a, mesh, [Shard(1)], src=None)
        y = distribute(b, mesh, [Shard(0)], src=None)
        with config.override(replicate_below=0), trace() as t:
            result = np.dot(x, y)
            other = np.einsum("ij,jk->ki", x, y)
        assert_matches(result, a @ b, exact=False, rtol=0, atol=0)
        assert_matches(other, (a @ b).T, exact=False, rtol=0, atol=0)
        return t

    for t in world.run(ranks, program):
        if ranks > 1:
            assert t.count("reduce_scatter") > 2


def test_pending_operands_are_settled_first(world, ranks):
    values = np.arange(12.0).reshape(3, 4)

    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        from distarray import from_local

        x = from_local(values.copy(), mesh, [Partial()])
        assert_matches(x @ values.T, group.size * values @ values.T)

    world.run(ranks, program)


def test_ranks_outside_of_the_mesh_take_no_part(world, ranks):
    a, b = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(4, 2)

    def program(group):
        mesh = DeviceMesh(group, (max(1, group.size - 1),), ranks=range(max(1, group.size - 1)))
        x, y = (distribute(v, mesh, [Shard(0)], src=None) for v in (a, b))
        assert_matches(x @ y, a @ b)
        assert_matches(x @ b, a @ b)
        assert_matches(np.vdot(x, x), np.vdot(a, a))
        assert_matches(np.einsum("ij,jk,ik->", x, y, a @ b), np.einsum("ij,jk,ik->", a, b, a @ b))
        assert_matches(np.trace(x), np.trace(a))
        assert_matches(np.kron(x, y), np.kron(a, b))

    world.run(ranks, program)
