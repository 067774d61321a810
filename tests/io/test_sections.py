"""The engine that all formats share: who touches which part, and what a failing disk does."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.array.keys import basic_entries
from distarray.comm import DeviceMesh, trace
from distarray.errors import DistArrayError
from distarray.io import storage_layout as division
from distarray.io import two_phase
from distarray.io.box_pieces import pieces_of
from distarray.io.hyperslabs import Hyperslab
from distarray.io.sections import read_array, write_array
from distarray.io.storage_layout import storage_layout
from distarray.layout import Layout, Replicate, Shard
from distarray.testing import assert_matches, mesh_shapes, recipes, shapes


class Store:
    """An array as a file would hold it, which counts how often each element is touched."""

    def __init__(self, values: Any, chunks: Any = None, writers: str = "all") -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.chunks, self.writers = chunks, writers
        self.touched: list[Any] = []

    def _key(self, section: Any) -> Any:
        assert all(0 <= a < b <= n for (a, b), n in zip(section, self.shape, strict=True))
        key = tuple([slice(a, b) for a, b in section])
        self.touched.append(key)
        return key

    def read(self, section: Any, out: Any) -> None:
        out[...] = self.values[self._key(section)]

    def write(self, section: Any, block: Any) -> None:
        self.values[self._key(section)] = block

    def counts(self, group: Any) -> Any:
        """How often all ranks together touched each element."""
        times = np.zeros(self.shape, int)
        for keys in group.allgather_object([repr(key) for key in self.touched]):
            for key in keys:
                times[eval(key)] += 1
        return times


def chunk_shapes(shape: tuple[int, ...]) -> Any:
    return st.none() | st.tuples(*[st.integers(1, max(1, n)) for n in shape])


@settings(max_examples=120)
@given(data=st.data())
def test_any_layout_is_written_and_read_once(world: Any, data: Any) -> None:
    ranks = data.draw(st.sampled_from(world.ranks))
    mesh_shape = data.draw(mesh_shapes(ranks))
    shape = data.draw(shapes())
    recipe = data.draw(recipes(shape, mesh_shape))
    wanted = data.draw(recipes(shape, mesh_shape, kinds=("plain",))).placements
    chunks = data.draw(chunk_shapes(shape))
    writers = data.draw(st.sampled_from(["all", "one"]))
    values = np.arange(float(prod(shape))).reshape(shape)
    room = data.draw(st.sampled_from([8, 40, 1 << 24]))  # few bytes: many rounds

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, mesh_shape)
        x = recipe.build(values, mesh)
        sink = Store(np.full(shape, -1.0), chunks, writers)
        write_array(sink, x)
        source = Store(values, chunks)
        y = read_array(source, mesh, wanted)
        written, read = sink.counts(group), source.counts(group)
        whole = sum(group.allgather_object(sink.values + 1.0)) - 1.0  # disjoint parts
        assert (written == 1).all(), written
        assert (read == 1).all(), read
        np.testing.assert_array_equal(whole, values)
        assert_matches(y, values)
        assert y.layout == Layout.chunked(shape, mesh_shape, wanted)

    with patch.object(two_phase, "_ROUND", room), patch.object(division, "_GRAIN", room // 4):
        storage_layout.cache_clear()
        world.run(ranks, program)
    storage_layout.cache_clear()


@settings(max_examples=60)
@given(data=st.data())
def test_parts_are_what_indexing_selects(world: Any, data: Any) -> None:
    ranks = data.draw(st.sampled_from(world.ranks))
    values = np.arange(7 * 5 * 6).reshape(7, 5, 6)
    chunks = data.draw(chunk_shapes(values.shape))
    entry = st.slices(7) | st.integers(-5, 4) | st.just(slice(None))
    key = tuple(data.draw(st.lists(entry, max_size=3)))
    if data.draw(st.booleans()):
        key = (*key[:1], None, *key[1:])

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        part = Hyperslab.of(Store(values, chunks), basic_entries(key, values.shape))
        x = read_array(part or Store(values, chunks), mesh, [Replicate()])
        assert_matches(x, np.asarray(values[key]))

    world.run(ranks, program)


def test_parts_read_no_more_than_they_need() -> None:
    store = Store(np.zeros((8, 9, 10)))
    part = Hyperslab.of(store, ((1, 3, 3), 4, (9, -1, 5)))
    part.read(((0, 3), (0, 5)), np.empty((3, 5)))
    assert sum(store.values[key].size for key in store.touched) == 3 * 5


@pytest.mark.parametrize("writers", ["all", "one"])
def test_a_failing_disk_is_every_ranks_error(world: Any, ranks: int, writers: str) -> None:
    values = np.zeros((ranks * 3, 5))

    class Failing(Store):
        def read(self, section: Any, out: Any) -> None:
            self.write(section, out)

        def write(self, section: Any, block: Any) -> None:
            if section[0][1] == ranks * 3:  # the last rank's part
                raise OSError(28, "No space left on device")

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        x = read_array(Store(values), mesh, [Shard(0)])
        for act in (
            lambda: read_array(Failing(values), mesh, [Shard(0)]),
            lambda: write_array(Failing(values, None, writers), x),
        ):
            with pytest.raises(OSError, match="No space left"):
                act()

    world.run(ranks, program)


def test_ranks_that_see_other_files_are_told(world: Any, ranks: int) -> None:
    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        seen = Store(np.zeros(5 if group.rank < 2 else 6))
        if group.size < 3:
            return
        with pytest.raises(DistArrayError, match="do not see the same file"):
            read_array(seen, mesh)

    world.run(ranks, program)


def test_blocks_that_end_with_chunks_send_nothing(world: Any, ranks: int) -> None:
    values = np.zeros((ranks * 4, 50_000))

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        with trace() as t:
            x = read_array(Store(values, (4, 1000)), mesh, [Shard(0)])
            write_array(Store(values, (2, 50_000)), x)
        assert t.count("exchange") == 0

    world.run(ranks, program)


def test_shares_stay_even_where_chunks_are_long() -> None:
    # A chunk holds all times of some places; the program wants some times of all places.
    layout = Layout.chunked((1000, 64, 64), (4,), [Shard(0)])
    found = storage_layout(layout, (1000, 8, 8), 4)
    sizes = [prod(b - a for a, b in found.section((rank,))) for rank in range(4)]
    assert sizes == [1000 * 16 * 64] * 4


def test_one_chunk_for_all_is_not_one_ranks_burden() -> None:
    layout = Layout.chunked((4000, 100), (4,), [Shard(0)])
    strict = storage_layout(layout, (4000, 100), 8, strict=True)
    assert sorted(prod(b - a for a, b in strict.section((r,))) for r in range(4))[-1] == 400_000
    for mesh_shape in product([1, 2, 5], [1, 3]):
        layout = Layout.chunked((10, 20), mesh_shape, [Shard(1), Replicate()])
        seen = np.zeros((10, 20), int)
        for coords in np.ndindex(mesh_shape):
            part = storage_layout(layout, (3, 7), 8, strict=True)
            if part.holds(coords):
                seen[tuple([slice(*span) for span in part.section(coords)])] += 1
        assert (seen == 1).all()


def test_pieces_cover_a_box() -> None:
    seen = np.zeros((5, 4, 3), int)
    for piece in pieces_of(((1, 5), (0, 4), (1, 3)), 8, limit=40):
        seen[tuple([slice(*span) for span in piece])] += 1
    assert seen.sum() == seen[1:, :, 1:].sum() == 4 * 4 * 2
    assert list(pieces_of((), 8, limit=40)) == [()]
