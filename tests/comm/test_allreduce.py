"""Folds and broadcasts begun and finished later; of much data among the ranks of a node."""

from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest

from distarray.comm.folding import UFUNCS
from distarray.layout.placement import Fold


def rows(count, length, dtype):
    return [np.random.default_rng(k).integers(0, 5, length).astype(dtype) for k in range(count)]


def folded(rows, fold):
    total = rows[0]
    with np.errstate(all="ignore"):
        for row in rows[1:]:
            total = UFUNCS[fold](total, row)
    return total


@pytest.mark.parametrize("fold", [Fold.SUM, Fold.MAX, Fold.PROD, Fold.BXOR])
def test_in_place(world, ranks, fold):
    def program(group):
        for dtype in ("i8", "u1", "f8", "f2", "?"):
            if fold is Fold.BXOR and dtype.startswith("f"):
                continue
            given = rows(ranks, 6, dtype)
            block = given[group.rank].reshape(2, 3).copy()
            group.allreduce_in_place(block, fold)
            np.testing.assert_array_equal(block.ravel(), folded(given, fold))

    world.run(ranks, program)


def test_begun_and_finished_later(world, ranks):
    """Several under way, poked and waited for in any order, other conversations in between."""

    def program(group):
        blocks = [np.full(n, group.rank + n, "f4") for n in (1, 5, 1000, 70_000)]
        pending = [group.begin_allreduce(block, Fold.SUM) for block in blocks]
        assert group.allreduce(np.array(1), Fold.SUM) == ranks
        for one in pending[::-1]:
            one.poke()
            one.wait()
            assert one.poke()
            one.wait()
        for block in blocks:
            assert (block == sum(r + block.size for r in range(ranks))).all()

    world.run(ranks, program)


def test_broadcasts_begun_and_finished_later(world, ranks):
    """From every rank in turn, all under way at once; also of what MPI does not know."""

    def program(group):
        for dtype in ("f8", "M8[s]", "O"):
            given = [np.arange(k + 1, dtype="i8").astype(dtype) for k in range(ranks)]
            blocks = [g if group.rank == k else g[::-1].copy() for k, g in enumerate(given)]
            wanted = [g.copy() for g in given]
            pending = [group.begin_broadcast(block, root) for root, block in enumerate(blocks)]
            for one in pending[::-1]:
                one.poke()
                one.wait()
                assert one.poke()
            for block, want in zip(blocks, wanted, strict=True):
                np.testing.assert_array_equal(block, want)

    world.run(ranks, program)


@pytest.mark.mpi
def test_a_broadcast_goes_on_while_its_root_computes(world, ranks, tmp_path):
    """Wherever messages do: root, the last rank, does not ask for it until it is over."""

    def program(group):
        place = Path(group.broadcast_object(str(tmp_path), 0))
        root, block = ranks - 1, np.full(1 << 17, group.rank)

        def arrives(kind, pending):
            if group.rank != root:
                pending.wait()
                (place / f"{kind} {group.rank}").touch()
            late = monotonic() + 4
            while (there := len(list(place.glob(f"{kind}*")))) < root and monotonic() < late:
                sleep(0.01)
            pending.wait()
            return group.broadcast_object(there == root, root)

        sends = [(rank, block) for rank in range(root)] if group.rank == root else []
        receives = [] if group.rank == root else [(root, block)]
        by_itself = arrives("message", group.begin_exchange(sends, receives))
        if by_itself and group._on_one_node:
            assert arrives("broadcast", group.begin_broadcast(block, root))
        assert (block == root).all()

    world.run(ranks, program)


@pytest.mark.mpi
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "f2", "?", "D", "M8[s]", "u1"])
def test_much_data(world, ranks, dtype, monkeypatch):
    """The segments of large blocks, with few elements; NaN wins; the operand stays as it is."""
    from distarray.comm import shared_memory as large

    monkeypatch.setattr(large, "FROM", 64 * ranks)
    monkeypatch.setattr(large, "SEGMENT", 64 * ranks)
    monkeypatch.setattr(large, "LEAST", 64)

    def program(group):
        shared = large.shared_by(group.comm) if ranks > 1 else None
        monkeypatch.setattr(group, "_memory", shared, raising=False)
        for length in (64 * ranks, 1001):
            given = rows(ranks, length, dtype)
            if dtype in ("f4", "f8"):
                given[-1][3] = np.nan
            for fold in (Fold.SUM, Fold.MAX, Fold.MIN):
                if dtype == "M8[s]" and fold is Fold.SUM:
                    continue
                mine = given[group.rank].copy()
                total = group.allreduce(mine, fold)
                assert total.dtype == mine.dtype
                np.testing.assert_array_equal(total, folded(given, fold))
                np.testing.assert_array_equal(mine, given[group.rank])
                group.allreduce_in_place(mine, fold)
                np.testing.assert_array_equal(mine, total)
            turned = np.asfortranarray(given[group.rank][: 64 * ranks].reshape(8, -1))
            total = group.allreduce(turned, Fold.MAX)
            wanted = folded([row[: 64 * ranks] for row in given], Fold.MAX)
            np.testing.assert_array_equal(total.ravel(), wanted)
        if shared:
            shared.free()

    world.run(ranks, program)


@pytest.mark.mpi
def test_much_data_that_is_not_alike(world, ranks, monkeypatch):
    """Blocks of other lengths or data types on one rank: all ranks raise, and go on together."""
    from distarray.comm import shared_memory as large
    from distarray.errors import DivergenceError

    def program(group):
        shared = large.shared_by(group.comm) if ranks > 1 else None
        if ranks > 1 and shared is None:
            return  # ranks of several nodes share no memory, and leave it to MPI
        monkeypatch.setattr(group, "_memory", shared, raising=False)
        last = group.rank == ranks - 1
        mine = np.ones(large.FROM // 8, "f8")
        for other in (np.ones(large.FROM, "f8"), mine.view("i8")):
            if ranks > 1:
                with pytest.raises(DivergenceError, match="different lengths or data types"):
                    group.allreduce(other if last else mine, Fold.SUM)
            assert (group.allreduce(mine, Fold.SUM) == ranks).all()
        if shared:
            shared.free()

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["f8", "f2", "i8", "M8[s]"])
def test_gathering_and_scattering_much(world, ranks, dtype):
    """Above what MPI's own collectives are left: even and uneven parts, strided ones as well."""

    def program(group):
        for uneven in (0, 1):
            counts = [9000 + 7 * rank * uneven for rank in range(ranks)]
            wanted = [np.arange(2 * n).reshape(n, 2).astype(dtype) for n in counts]
            given = np.asfortranarray(wanted[group.rank])
            for found in (group.allgather_varied(given), group.allgather_varied(given, counts)):
                for part, whole in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(part, whole)
                assert found[0].base is found[-1].base
            mine = [np.full(n, group.rank + 1).astype(dtype) for n in counts]
            total = group.reduce_scatter(mine, Fold.MAX)
            np.testing.assert_array_equal(total, np.full(counts[group.rank], ranks).astype(dtype))

    world.run(ranks, program)
