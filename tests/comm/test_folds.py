"""Folds over a group, in both worlds, against NumPy."""

import numpy as np
import pytest

from distarray.comm.folding import UFUNCS
from distarray.layout.placement import Fold

from .samples import values

NUMBERS = ["i1", "u2", "i4", "u8", "i8", "f2", "f4", "f8", "g", "F", "D", ">f8", ">i4"]


def expected(fold, blocks):
    total = (
        blocks[0].copy()
        if blocks[0].dtype.isnative
        else blocks[0].astype(blocks[0].dtype.newbyteorder("="))
    )
    if fold in (Fold.ANY, Fold.ALL):
        total = total.astype(bool)
    for block in blocks[1:]:
        total = UFUNCS[fold](total, block.astype(total.dtype))
    return total


def bits_of(block):
    raw = np.ascontiguousarray(block).view(np.uint8).reshape(-1, block.itemsize)
    if block.dtype.char == "g":
        raw = raw[:, :10]  # what follows is padding
    return raw.tobytes()


def same_bits(everywhere):
    return all(bits == everywhere[0] for bits in everywhere)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("fold", [Fold.SUM, Fold.PROD, Fold.MIN, Fold.MAX])
def test_allreduce_numbers(world, ranks, fold, dtype):
    def program(group):
        block = values(group.rank, dtype)
        before = block.copy()
        total = group.allreduce(block, fold)
        bits = group.allgather_object(bits_of(total))
        want = expected(fold, [values(rank, dtype) for rank in range(group.size)])
        assert total.dtype == want.dtype
        assert np.array_equal(total, want)
        assert same_bits(bits)
        assert np.array_equal(block, before)
        assert total.flags.c_contiguous
        assert not np.shares_memory(total, block)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_sums_and_products_wrap_around(world, ranks, dtype):
    """As NumPy's do; the vectorised loops of an MPI may saturate, from some length on."""

    def program(group):
        limits = np.iinfo(dtype)
        for size in (1, 7, 300):
            draw = np.random.default_rng(size).integers
            rows = draw(limits.min, limits.max, (ranks, ranks, size), dtype, endpoint=True)
            for fold, ufunc in ((Fold.SUM, np.add), (Fold.PROD, np.multiply)):
                want = ufunc.reduce(rows, axis=0, dtype=dtype)
                assert (group.allreduce(rows[group.rank], fold) == want).all()
                mine = group.reduce_scatter(list(rows[group.rank]), fold)
                assert (mine == want[group.rank]).all()
                below = ufunc.reduce(rows[: group.rank], axis=0, dtype=dtype)
                neutral = np.array(ufunc.identity, dtype)
                assert (group.exscan(rows[group.rank], fold, neutral) == below).all()

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["?", "i8", "f8", "u1"])
@pytest.mark.parametrize("fold", [Fold.ANY, Fold.ALL])
def test_allreduce_logical(world, ranks, fold, dtype):
    def program(group):
        total = group.allreduce(values(group.rank, dtype), fold)
        assert total.dtype == bool
        want = expected(fold, [values(rank, dtype) for rank in range(group.size)])
        assert np.array_equal(total, want)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["?", "u1", "i8"])
@pytest.mark.parametrize("fold", [Fold.BAND, Fold.BOR, Fold.BXOR])
def test_allreduce_bits(world, ranks, fold, dtype):
    def program(group):
        total = group.allreduce(values(group.rank, dtype), fold)
        want = expected(fold, [values(rank, dtype) for rank in range(group.size)])
        assert total.dtype == want.dtype
        assert np.array_equal(total, want)

    world.run(ranks, program)


@pytest.mark.parametrize("size", [4, 5000])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", "D", "M8[s]", "m8[D]"])
@pytest.mark.parametrize("fold", [Fold.MIN, Fold.MAX])
def test_nan_wins(world, ranks, fold, dtype, size):
    nothing = np.array("NaT" if dtype[0] in "Mm" else np.nan, dtype)

    def mine(rank):
        block = np.arange(size).astype(dtype)
        if rank:
            block = block[::-1].copy()
        block[rank % 4] = nothing
        return block

    def program(group):
        total = group.allreduce(mine(group.rank), fold)
        bits = group.allgather_object(bits_of(total))
        want = expected(fold, [mine(rank) for rank in range(group.size)])
        assert np.array_equal(total, want, equal_nan=True)
        assert total.dtype == want.dtype
        assert same_bits(bits)

    world.run(ranks, program)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (4, 0, 2), (70000,)])
@pytest.mark.parametrize("dtype", ["f8", "f2"])
def test_allreduce_shapes(world, ranks, shape, dtype):
    def program(group):
        total = group.allreduce(np.full(shape, group.rank, dtype), Fold.SUM)
        assert isinstance(total, np.ndarray)
        assert total.shape == shape
        assert (total == sum(range(group.size))).all()

    world.run(ranks, program)


def test_allreduce_average_and_strided(world, ranks):
    def program(group):
        block = np.arange(12.0).reshape(3, 4).T[::-1] + group.rank
        mean = group.allreduce(block, Fold.AVG)
        total = group.allreduce(block, Fold.SUM)
        large = group.allreduce(np.full(30000, group.rank, "f4"), Fold.AVG)
        middle = (group.size - 1) / 2
        assert np.allclose(mean, np.arange(12.0).reshape(3, 4).T[::-1] + middle)
        assert np.allclose(total, mean * group.size)
        assert large.dtype == np.float32
        assert np.allclose(large, middle)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["f8", "f2", "D", "?", "i4", "M8[s]"])
def test_reduce_scatter(world, ranks, dtype):
    fold = Fold.MAX if dtype != "D" else Fold.SUM

    def mine(rank, size):
        return [values(10 * rank + part, dtype, (part, 3)) for part in range(size)]

    def program(group):
        total = group.reduce_scatter(mine(group.rank, group.size), fold)
        parts = [mine(rank, group.size)[group.rank] for rank in range(group.size)]
        assert np.array_equal(total, expected(fold, parts))
        assert total.shape == (group.rank, 3)

    world.run(ranks, program)


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "D"])
@pytest.mark.parametrize(("fold", "identity"), [(Fold.SUM, 0), (Fold.PROD, 1), (Fold.MAX, 7)])
def test_exscan(world, ranks, fold, identity, dtype):
    def program(group):
        block = values(group.rank, dtype)
        below = group.exscan(block, fold, identity)
        if group.rank == 0:
            want = np.full(block.shape, identity, dtype)
        else:
            want = expected(fold, [values(rank, dtype) for rank in range(group.rank)])
        assert below.dtype == want.dtype
        assert np.array_equal(below, want)

    world.run(ranks, program)
