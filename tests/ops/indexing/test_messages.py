"""Messages of indexing: how many, how large, and that all ranks hear of errors."""

import numpy as np
import pytest

import distarray.ops  # noqa: F401
from distarray import Replicate, Shard, distribute, forbid_communication, trace
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.testing import assert_matches

from .drawing import check_error, outcome

A = np.arange(240.0).reshape(24, 10)
INDEX = np.random.default_rng(0).integers(-24, 24, 50)


def rows(mesh, values=A, dim=0):
    return distribute(values, mesh, [Shard(dim)], src=None)


def kinds(book):
    return [event.kind for event in book]


def several(ranks):
    return ranks > 1


def run(world, ranks, program):
    world.run(ranks, lambda group: program(DeviceMesh(group, (ranks,))))


def test_a_mask_that_lies_as_the_array_is_counted(world, ranks):
    def program(mesh):
        x = rows(mesh)
        mask = x % 3 == 0
        with trace() as book:
            found = x[mask]
        assert kinds(book) == ["allgather"] * several(ranks)
        assert book.bytes <= 8
        assert_matches(found, A[A % 3 == 0])
        with trace() as book:
            along = x[:, distribute(A[0] > 3, mesh, [Replicate()], src=None)]
        assert not len(book)
        assert_matches(along, A[:, A[0] > 3])

    run(world, ranks, program)


def test_writing_one_value_by_mask_says_nothing(world, ranks):
    def program(mesh):
        x, expected = rows(mesh), A.copy()
        mask, plain = x % 3 == 0, A % 3 == 0
        with forbid_communication():
            x[mask] = -1
            x[A % 5 == 0] = -2
            x[1:-1][mask[1:-1]] = 7
            np.putmask(x, mask, 3)
            np.copyto(x, 4, where=mask)
            x[mask[:, 0]] = np.arange(10)
        expected[plain] = -1
        expected[A % 5 == 0] = -2
        expected[1:-1][plain[1:-1]] = 7
        np.putmask(expected, plain, 3)
        np.copyto(expected, 4, where=plain)
        expected[plain[:, 0]] = np.arange(10)
        assert_matches(x, expected)

    run(world, ranks, program)


def test_values_that_lie_as_what_the_mask_selects_stay(world, ranks):
    def program(mesh):
        x, expected = rows(mesh), A.copy()
        mask = x % 3 == 0
        values = x[mask] * 2
        with trace() as book:
            x[mask] = values
        assert kinds(book) == ["allgather"] * several(ranks)
        expected[A % 3 == 0] *= 2
        assert_matches(x, expected)

    run(world, ranks, program)


def test_a_known_index_is_one_exchange(world, ranks):
    def program(mesh):
        x = rows(mesh)
        with trace() as book, config.override(replicate_below=0):
            found = x[INDEX]
        assert kinds(book) in ([], ["exchange"])
        part = [INDEX[slice(*found.layout.cuts[0].interval(r))] % 24 for r in range(ranks)]
        own = x.layout.section(mesh.coords)[0]
        named = [np.count_nonzero((i >= own[0]) & (i < own[1])) for i in part]
        assert book.bytes == sum(named[: mesh.rank] + named[mesh.rank + 1 :]) * 10 * 8
        assert_matches(found, A[INDEX])
        with trace() as book:
            few = x[INDEX]
        assert kinds(book) == ["allgather"] * several(ranks)
        assert few.layout.is_replicated
        with forbid_communication():
            x[INDEX] = 3
            x[INDEX] = A[INDEX]
            x[:, [1, 2]] = x[:, [2, 1]]
            np.add.at(x, INDEX, 1)

    run(world, ranks, program)


def test_a_sharded_index_is_an_agreement_and_two_exchanges(world, ranks):
    def program(mesh):
        x, index = rows(mesh), rows(mesh, INDEX)
        with trace() as book:
            found = x[index]
        wanted = ["allreduce", "alltoall", "exchange"] if several(ranks) else []
        assert [k for k in kinds(book) if k != "exchange"] == [k for k in wanted if k != "exchange"]
        assert kinds(book).count("exchange") <= 1
        assert found.layout.cuts[0] == index.layout.cuts[0]
        assert_matches(found, A[INDEX])
        table = distribute(A, mesh, [Replicate()], src=None)
        labels = rows(mesh, (INDEX % 24).astype("u1"))
        with trace() as book:
            table[labels]
        assert kinds(book) == ["allreduce"] * several(ranks)  # 24 rows: a label may be 255
        many = distribute(np.arange(256.0), mesh, [Replicate()], src=None)
        with forbid_communication():
            found = many[labels]
        assert_matches(found, np.arange(256.0)[INDEX % 24])

    run(world, ranks, program)


def test_errors_in_data_are_every_ranks(world, ranks):
    def program(mesh):
        x = rows(mesh)
        wrong = INDEX.copy()
        wrong[-1] = 24
        index = rows(mesh, wrong)
        for call, reference in (
            (lambda: x[index], lambda: A[wrong]),
            (lambda: x.__setitem__(index, 1), lambda: A.copy().__setitem__(wrong, 1)),
            (lambda: np.take(x, index, axis=0), lambda: np.take(A, wrong, axis=0)),
            (lambda: np.choose(index % 3, [1, 2]), lambda: np.choose(wrong % 3, [1, 2])),
            (lambda: np.unravel_index(index + 9, (4, 6)), lambda: np.unravel_index([33], (4, 6))),
            (lambda: np.add.at(x, index, 1), lambda: np.add.at(A.copy(), wrong, 1)),
        ):
            found = outcome(call)
            expected = outcome(reference)
            if isinstance(expected, ValueError):
                assert isinstance(found, ValueError)
            else:
                check_error(found, expected)
        assert_matches(x, A)  # nothing was written

    run(world, ranks, program)


@pytest.mark.parametrize("dim", [0, 1])
def test_writing_to_a_row_writes_to_the_array(world, ranks, dim):
    """A row lives at one coordinate of the mesh; what writes to it must reach the array."""

    def program(mesh):
        x, expected = rows(mesh, dim=dim), A.copy()
        chosen = A[3] > 33
        for target in (x, expected):
            row = target[3]
            row[[1, 2, 1]] = [5, 6, 7]
            row[chosen if target is expected else rows(mesh, chosen)] = 0
            np.put(target[4], [0, -1], 9)
            np.put_along_axis(target[5], np.array([1, 0]), np.array([1.0, 2.0]), 0)
            np.place(target[6], chosen, [1, 2])
            np.putmask(target[7], chosen, [1, 2])
            np.copyto(target[8], np.arange(10.0), where=chosen)
            np.fill_diagonal(target[9:10], 4)
            np.add.at(target[10], [0, 0, 3], 1)
            np.negative.at(target[11], chosen)
        assert_matches(x, expected)
        assert_matches(x[3][[1, 5]], expected[3][[1, 5]])
        assert_matches(x[4][chosen], expected[4][chosen])

    run(world, ranks, program)


def test_views_are_written_through(world, ranks):
    def program(mesh):
        x, expected = rows(mesh), A.copy()
        for target in (x, expected):
            target[::-2][[0, 1, -1]] = 1
            target[1:9, ::3][target[1:9, ::3] > 40] = 2
            target.T[[3, 4]] = 3
            np.fill_diagonal(target[2:, 1:], 5)
        assert_matches(x, expected)

    run(world, ranks, program)


def test_ranks_outside_of_the_mesh_take_no_part(world, ranks):
    if ranks < 2:
        return

    def program(group):
        mesh = DeviceMesh(group, (ranks - 1,), ranks=range(ranks - 1))
        x = rows(mesh)
        mask = x % 3 == 0
        index = rows(mesh, INDEX)
        found = [x[mask], x[INDEX], x[index], np.take(x, index), *np.nonzero(x), np.diag(x)]
        x[mask] = 1
        x[index] = 2
        x[mask] = x[mask]
        np.add.at(x, index, 1)
        if mesh.coords is not None:
            expected = A[A % 3 == 0], A[INDEX], A[INDEX], np.take(A, INDEX), *np.nonzero(A)
            for one, other in zip(found, expected, strict=False):
                assert_matches(one, other)

    world.run(ranks, program)


def test_structured_arrays(world, ranks):
    kind = np.dtype([("a", "i4"), ("b", "f8", (2,))])
    values = np.zeros(9, kind)
    values["a"] = np.arange(9)

    def program(mesh):
        x, expected = rows(mesh, values), values.copy()
        for target in (x, expected):
            target["b"] = [1, 2]
            target["a"][[0, 3]] = 7
        assert_matches(x["a"], expected["a"])
        assert_matches(x["b"], expected["b"])
        assert_matches(x[[3, 1]]["a"], expected[[3, 1]]["a"])

    run(world, ranks, program)


@pytest.mark.parametrize("limit", [0, 1 << 18])
def test_values_come_from_another_mesh(world, ranks, limit):
    """As in `x[:] = values`; what they select is worked out where the array is."""

    def program(group):
        mesh, other = DeviceMesh(group, (ranks,)), DeviceMesh(group, (1, ranks))
        values = distribute(-A, other, [Replicate(), Shard(1)], src=None)
        for key in (np.arange(24)[::-1], np.arange(24) % 3 == 0, (slice(None), [1, 0]), slice(4)):
            x, expected = rows(mesh), A.copy()
            expected[key] = -A[key]
            with config.override(replicate_below=limit):
                x[key] = values[key]
            assert_matches(x, expected)
        with pytest.raises(ValueError, match="different meshes"):
            rows(mesh)[values < 0]

    world.run(ranks, program)
