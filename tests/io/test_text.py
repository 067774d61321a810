"""Text files: byte for byte NumPy's, and read as NumPy reads them, each rank some of the lines."""

from __future__ import annotations

import gzip
import io

import numpy
import pytest

import distarray
import distarray.numpy as np
from distarray import Shard
from distarray.io import text_lines
from distarray.io.input_files import Origin
from tests.io.helpers import VALUES, chosen, common, content, meshes, placements, reference, tiny

__all__ = ["tiny"]

WRITING = {
    "plain": ("matrix", {}),
    "one dimension": ("line", {"fmt": "%d"}),
    "words": ("matrix", {"fmt": "%8.3f", "delimiter": ", ", "header": "a\nb", "footer": "end"}),
    "each column": ("deep columns", {"fmt": ["%d", "%5.1f", "%e"], "newline": "\r\n"}),
    "complex": ("complex", {"fmt": "%.3g"}),
    "records": ("records", {"fmt": "%d;%g;%s", "comments": "; ", "header": "\u00e9"}),
    "utf-8": ("text", {"fmt": "%s", "encoding": "utf-8"}),
    "utf-16": ("text", {"fmt": "%s", "encoding": "utf-16"}),
    "no rows": ("nothing", {"header": "x"}),
}
ALL = VALUES | {"deep columns": VALUES["matrix"][:, :3] * 100}


@pytest.mark.parametrize("name", WRITING)
def test_text_is_written_as_numpy_does(world, ranks, tmp_path, tiny, name):
    chosen(world, name, "words", "one dimension", "utf-16")
    key, words = WRITING[name]
    values = ALL[key]

    def program(group):
        directory = common(group, tmp_path)
        path = directory / "x.txt"
        wanted = reference(group, directory / "n.txt", lambda p: numpy.savetxt(p, values, **words))
        for mesh in meshes(group):
            for placed in placements(mesh, values.ndim):
                x = distarray.distribute(values, mesh, placed, src=None)
                numpy.savetxt(path, x, **words)
                assert content(group, path) == wanted, placed
        if words.get("encoding") != "utf-16":
            memory, other = io.BytesIO(), io.BytesIO()
            numpy.savetxt(memory, x, **words)
            numpy.savetxt(other, values, **words)
            assert memory.getvalue() == other.getvalue()
        text, other_text = io.StringIO(), io.StringIO()
        numpy.savetxt(text, x, **words)
        numpy.savetxt(other_text, values, **words)
        assert text.getvalue() == other_text.getvalue()

    world.run(ranks, program)


def test_mistakes_in_writing(world, ranks, tmp_path, tiny):
    def program(group):
        directory = common(group, tmp_path)
        mesh = distarray.DeviceMesh(group, (group.size,))
        x = distarray.distribute(VALUES["matrix"], mesh, [Shard(0)], src=None)
        for act, kind in (
            (lambda: numpy.savetxt(directory / "a", VALUES_3D(mesh)), ValueError),
            (lambda: numpy.savetxt(directory / "a", x, fmt="%d %d"), ValueError),
            (lambda: numpy.savetxt(directory / "a", x, fmt=["%d"]), AttributeError),
            (lambda: numpy.savetxt(directory / "no" / "a", x), FileNotFoundError),
            (
                lambda: numpy.savetxt(directory / "b", x, fmt="\u4e2d%d", encoding="ascii"),
                UnicodeEncodeError,
            ),
        ):
            with pytest.raises(kind):
                act()
        assert not (directory / "a").exists()

    world.run(ranks, program)


def VALUES_3D(mesh):
    return distarray.distribute(VALUES["deep"], mesh, src=None)


def test_compressed_text(world, ranks, tmp_path, tiny):
    def program(group):
        directory = common(group, tmp_path)
        path = directory / "x.txt.gz"
        mesh = distarray.DeviceMesh(group, (group.size,))
        x = distarray.distribute(VALUES["matrix"], mesh, [Shard(1)], src=None)
        numpy.savetxt(path, x)
        text = io.StringIO()
        numpy.savetxt(text, VALUES["matrix"])
        with gzip.open(path, "rt") as file:
            assert file.read() == text.getvalue()
        found = np.loadtxt(path, mesh=mesh, placements=[Shard(0)])
        numpy.testing.assert_array_equal(found.full(), VALUES["matrix"])

    world.run(ranks, program)


TABLE = "\n".join([f"{i} {i * 0.5}  # row {i}" for i in range(50)])
READING = {
    "numbers": (TABLE, {}),
    "no end of the last line": ("\n".join([f"{i} {i * 11}" for i in range(40)]), {}),
    "long lines": ("1 " * 30 + "\n" + "2 " * 29 + "345", {}),
    "columns": (TABLE, {"usecols": 1}),
    "by columns": (TABLE, {"unpack": True}),
    "two dimensions": (TABLE, {"usecols": (1,), "ndmin": 2}),
    "left out": ("# head\nname\n\n" + TABLE + "\n\n# end\n", {"skiprows": 2}),
    "all but one left out": (TABLE, {"skiprows": 49}),
    "windows": (TABLE.replace("\n", "\r\n"), {"dtype": "f4"}),
    "records": ("1,a\n2,bc\n" * 20, {"dtype": [("n", "i4"), ("s", "U3")], "delimiter": ","}),
    "record columns": (TABLE, {"dtype": [("n", "i8"), ("x", "f8")], "unpack": True}),
    "text": ("ab cde\nf g\n" * 20, {"dtype": str}),
    "converted": ("1;2\n3;4\n" * 30, {"delimiter": ";", "converters": {0: lambda s: float(s) + 1}}),
    "comments": (TABLE.replace("#", "//"), {"comments": ["//", "%%"]}),
    "few": (TABLE, {"max_rows": 7}),
    "quoted": ('"1\n" 2\n' * 9, {"quotechar": '"', "dtype": "U3"}),
    "a single row": ("1 2 3", {}),
    "latin": ("1 # \u00e9\n2\n" * 20, {"encoding": "latin1"}),
    "old macintosh": ("1 2\r3 4\r5 6\r" * 9, {}),
    "mistake": (TABLE + "\n1 2 3\n4 5 6", {}),
    "ragged": ("1 2\n" * 30 + "1 2 3\n" * 30, {}),
}


@pytest.mark.parametrize("name", READING)
def test_text_is_read_as_numpy_does(world, ranks, tmp_path, tiny, name):
    chosen(
        world,
        name,
        "by columns",
        "left out",
        "no end of the last line",
        "records",
        "few",
        "mistake",
        "ragged",
    )
    text, words = READING[name]
    compare(world, ranks, tmp_path, text, numpy.loadtxt, np.loadtxt, words)


VALUED = {
    "numbers": (TABLE, {}),
    "missing": ("1,,3\n4,x,6\n" * 20, {"delimiter": ",", "filling_values": -1}),
    "left out": ("head\nhead\n" + TABLE + "\n", {"skip_header": 2}),
    "columns": (TABLE, {"unpack": True, "usecols": (1, 0)}),
    "named": ("1,2\n" * 30, {"delimiter": ",", "names": ["a", "b b"]}),
    "names there": ("# a, b\n" + "1,2\n" * 30, {"delimiter": ",", "names": True}),
    "types there": ("1,2.5,x\n" * 30, {"delimiter": ",", "dtype": None, "encoding": "utf-8"}),
    "widths": ("12345\n67890\n" * 20, {"delimiter": (2, 3), "dtype": int}),
    "without the end": (TABLE, {"skip_footer": 3}),
    "few": (TABLE, {"max_rows": 7}),
    "one column": ("1\n2\n" * 20, {}),
    "ragged": ("1 2\n" * 30 + "1 2 3\n" * 30, {}),
    "ragged, by the last column": ("1 2\n" * 30 + "1 2 3\n" * 20, {"usecols": -1}),
    "ragged behind the fields": (
        "1 2\n" * 30 + "1 2 3\n" * 30,
        {"dtype": [("a", int), ("b", float)]},
    ),
    "fields": (TABLE, {"dtype": [("a", float), ("b", "f4")], "usecols": (0, 1)}),
}


@pytest.mark.parametrize("name", VALUED)
def test_text_with_holes_is_read_as_numpy_does(world, ranks, tmp_path, tiny, name):
    chosen(world, name, "missing", "named", "ragged")
    text, words = VALUED[name]
    compare(world, ranks, tmp_path, text, numpy.genfromtxt, np.genfromtxt, words)


def compare(world, ranks, tmp_path, text, theirs, ours, words):
    def program(group):
        path = common(group, tmp_path) / "x.txt"
        if group.rank == 0:
            path.write_bytes(text.encode("latin1"))
        group.barrier()
        error, wanted = None, None
        try:
            wanted = theirs(path, **words)
        except Exception as caught:
            error = caught
        for mesh in meshes(group)[-1:]:
            if error is not None:
                with pytest.raises(type(error)) as found:
                    ours(path, mesh=mesh, **words)
                assert str(found.value) == str(error)
                continue
            found = ours(path, mesh=mesh, **words)
            assert type(found) is list or type(wanted) is not list
            for one, other in zip(*[v if isinstance(v, list) else [v] for v in (found, wanted)]):
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                numpy.testing.assert_array_equal(one.full(), other)

    world.run(ranks, program)


def test_text_that_is_not_there(world, ranks, tmp_path, tiny):
    def program(group):
        path = common(group, tmp_path) / "no.txt"
        for function in (np.loadtxt, np.genfromtxt):
            with pytest.raises(FileNotFoundError):
                function(path, mesh=distarray.DeviceMesh(group, (group.size,)))
        lines = ["1 2", "3 4"]
        found = np.loadtxt(lines, mesh=distarray.DeviceMesh(group, (group.size,)))
        numpy.testing.assert_array_equal(found.full(), [[1, 2], [3, 4]])

    world.run(ranks, program)


def test_every_rank_parses_the_lines_in_its_share(world, ranks, tmp_path, tiny):
    def program(group):
        path = common(group, tmp_path) / "x.txt"
        if group.rank == 0:
            path.write_text(TABLE)
        group.barrier()
        mesh = distarray.DeviceMesh(group, (group.size,))
        words = {"comments": "#", "ndmin": 2}
        origin = Origin(str(path), True)
        found = text_lines.parsed(origin, numpy.loadtxt, words, 0, mesh)
        if group.size == 1:
            return found is None
        shares = [
            text_lines.share_of(io.BytesIO(TABLE.encode()), len(TABLE), rank, group.size)
            for rank in range(group.size)
        ]
        assert [stop for _, stop in shares[:-1]] == [start for start, _ in shares[1:]]
        assert (shares[0][0], shares[-1][1]) == (0, len(TABLE))
        start, stop = shares[group.rank]
        return found.to_local().shape == (len(TABLE[start:stop].splitlines()), 2)

    assert all(world.run(ranks, program))
