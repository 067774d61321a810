"""What is explained is what is sent then, rank by rank; and explaining sends nothing."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray
import distarray.numpy as np
from distarray import Partial, Replicate, Shard
from distarray.comm.ledger import forbid_communication, trace
from distarray.errors import LayoutError
from distarray.layout import Layout
from distarray.plan.explaining import explain_fold, explain_move

ROWS, COLUMNS, WHOLE = [Shard(0)], [Shard(1)], [Replicate()]


def made(shape, placements, dtype="f8"):
    values = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    return distarray.distribute(values, placements=placements, src=None)


def check(explain, act):
    """Compare what is explained with what `act` then sends from this rank."""
    with forbid_communication():
        plan = explain()
        assert str(plan)
        html = plan._repr_html_()
    with trace() as t:
        result = act()
    rank = distarray.default_mesh().rank
    assert sum(step.sent[rank] for step in plan.steps) == t.bytes, f"{plan}\n{t}"
    exchanges = [step for step in plan.steps if step.kind == "exchange"]
    mine = sum(sender == rank for step in exchanges for sender, _ in step.pairs)
    assert mine == sum(event.messages for event in t if event.kind == "exchange")
    assert html.count("<svg") == max(1, 2 * len(plan.steps))
    if isinstance(result, distarray.DistArray):
        assert result.to_local().nbytes <= plan.nbytes <= plan.memory
        if result.mesh.size() > 1:
            assert result.layout.placements == plan.result.placements
    return plan


@pytest.mark.parametrize("before", [ROWS, COLUMNS, WHOLE])
@pytest.mark.parametrize("after", [ROWS, COLUMNS, WHOLE])
def test_redistributions(world, ranks, before, after):
    def program(group):
        x = made((11, 7), before)
        check(lambda: x.explain(after), lambda: x.redistribute(placements=after))
        same = distarray.explain(distarray.DistArray.redistribute, x, after)
        assert str(same) == str(x.explain(after))

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n in (3, 4, 6))
@settings(deadline=None, max_examples=10)
@given(st.data())
def test_redistributions_on_grids(world, ranks, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=2)))
    mesh_shape = {3: (1, 3), 4: (2, 2), 6: (3, 2)}[ranks]
    places = st.sampled_from([Shard(0), Shard(1), Replicate()])
    before, after = [[data.draw(places), data.draw(places)] for _ in range(2)]

    def program(group):
        mesh = distarray.init_device_mesh("cpu", mesh_shape)
        x = distarray.distribute(numpy.ones(shape), mesh, before, src=None)
        with forbid_communication():
            plan = x.explain(after)
        with trace() as t:
            x.redistribute(placements=after)
        assert sum(step.sent[mesh.rank] for step in plan.steps) == t.bytes

    world.run(ranks, program)


@pytest.mark.parametrize("after", [ROWS, COLUMNS, WHOLE])
def test_pending_folds_are_carried_out_first(world, ranks, after):
    def program(group):
        x = distarray.from_local(numpy.ones((6, 5)), None, [Partial()])
        y = distarray.from_local(numpy.ones((6, 5)), None, [Partial()])
        check(lambda: x.explain(after), lambda: y.redistribute(placements=after))
        with pytest.raises(LayoutError, match="not created"):
            made((6, 5), ROWS).explain([Partial()])
        assert x.explain([Partial()]).steps == []

    world.run(ranks, program)


def test_a_row_of_a_cut_array(world, ranks):
    def program(group):
        row = made((9, 4), ROWS)[5]
        check(lambda: row.explain(WHOLE), lambda: row.redistribute(placements=WHOLE))

    world.run(ranks, program)


@pytest.mark.parametrize("first", [ROWS, COLUMNS, WHOLE])
@pytest.mark.parametrize("second", [ROWS, COLUMNS, WHOLE])
def test_products(world, ranks, first, second):
    def program(group):
        a, b = made((12, 8), first), made((8, 10), second)
        check(lambda: distarray.explain(np.matmul, a, b), lambda: a @ b)

    world.run(ranks, program)


@pytest.mark.parametrize("first", [ROWS, COLUMNS, WHOLE])
@pytest.mark.parametrize("second", [ROWS, COLUMNS])
def test_operations_element_by_element(world, ranks, first, second):
    def program(group):
        a, b = made((12, 8), first), made((12, 8), second, "f4")
        check(lambda: distarray.explain(np.add, a, b), lambda: np.add(a, b))
        check(lambda: distarray.explain(np.multiply, a, 2.0), lambda: a * 2.0)

    world.run(ranks, program)


def test_shifted_views(world, ranks):
    def program(group):
        x = made((24, 5), ROWS)
        plan = check(lambda: distarray.explain(np.add, x[:-1], x[1:]), lambda: x[:-1] + x[1:])
        assert plan.messages == ranks - 1
        assert plan.sent == 40 * (ranks - 1)

    world.run(ranks, program)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["sum", "max", "all"])
def test_reductions(world, ranks, axis, name):
    function = getattr(np, name)

    def program(group):
        x = made((12, 8), ROWS, "i8")
        check(lambda: distarray.explain(function, x, axis=axis), lambda: function(x, axis=axis))

    world.run(ranks, program)


def test_what_cannot_be_known_before_is_said():
    x = np.ones(5)
    with pytest.raises(ValueError, match=r"piecewise: .* decided while it runs. distarray"):
        distarray.explain(np.piecewise, x, [x > 0], [1])
    assert distarray.explain(np.sort, x).steps == []
    with pytest.raises(ValueError, match="all on one mesh"):
        distarray.explain(np.add, numpy.ones(3), 1)
    with pytest.raises(ValueError, match="could not be broadcast"):
        distarray.explain(np.add, np.ones(5), np.ones(4))


def test_on_many_ranks_bytes_are_estimated_in_no_time():
    rows = Layout.chunked((1 << 17, 1 << 10), (65536,), [Shard(0)])
    whole = Layout.chunked((1 << 17, 1 << 10), (65536,), [Replicate()])
    step = explain_move(rows, whole, 8, "gather")
    assert step.total == pytest.approx(65535 * (1 << 30), rel=1e-6)
    assert step.memory == 1 << 30
    pending = Layout.chunked((100,), (65536,), [Partial()])
    assert explain_fold(pending, pending.settled(), 8, "sum").total == 65536 * 800
