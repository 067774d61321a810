"""Text and dates, whose results are as wide as the longest element on any rank."""

import numpy as np
import pytest

import distarray
from distarray.comm import DeviceMesh
from distarray.layout import Shard
from distarray.testing import assert_matches, assert_same_error

pytestmark = pytest.mark.host  # a GPU holds no text and no dates
S = np.strings
WORDS = np.array(["ab c", "Xyz", "", "a\tb", "hello world", "ab", "ac ", "ab"])
DAYS = np.array(
    ["2011-07-01", "2011-07-02", "2011-01-31", "1999-12-31", "2024-02-29", "2020-01-01"], "M8[D]"
)
NUMBERS = np.array([3, 0, 12, 1, 7, 2, 2, 5])

#: Functions of the words `a`, numbers as many, and a function that makes text of their kind.
CALLS = {
    "capitalize": lambda a, n, t: S.capitalize(a),
    "lower": lambda a, n, t: S.lower(a),
    "swapcase": lambda a, n, t: S.swapcase(a),
    "title": lambda a, n, t: S.title(a),
    "upper": lambda a, n, t: S.upper(a),
    "expandtabs": lambda a, n, t: S.expandtabs(a, 3),
    "center": lambda a, n, t: S.center(a, n, t("*")),
    "ljust": lambda a, n, t: S.ljust(a, 9),
    "rjust": lambda a, n, t: S.rjust(a, n),
    "zfill": lambda a, n, t: S.zfill(a, n),
    "multiply": lambda a, n, t: S.multiply(a, n),
    "multiply by one number": lambda a, n, t: S.multiply(a, 3),
    "replace": lambda a, n, t: S.replace(a, np.array(t("b")), np.array(t("a long text"))),
    "replace by text": lambda a, n, t: S.replace(a, t("b"), t("a long text for it")),
    "partition": lambda a, n, t: S.partition(a, t(" ")),
    "rpartition": lambda a, n, t: S.rpartition(a, t("b")),
    "equal": lambda a, n, t: np.char.equal(a, a[::-1]),
    "less": lambda a, n, t: np.char.less(a, t("ab")),
    "not_equal": lambda a, n, t: np.char.not_equal(a, a[::-1]),
    "greater": lambda a, n, t: np.char.greater(a, t("ab")),
    "greater_equal": lambda a, n, t: np.char.greater_equal(a, t("ab")),
    "less_equal": lambda a, n, t: np.char.less_equal(a, t("ab")),
    "coded": lambda a, n, t: S.encode(a) if a.dtype.kind == "U" else S.decode(a),
    "add": lambda a, n, t: S.add(a, t("zz")),
    "str_len": lambda a, n, t: S.str_len(a),
    "find": lambda a, n, t: S.find(a, t("b")),
    "strip": lambda a, n, t: S.strip(a),
}


def zero_filled(a, n, t):
    """By Python: NumPy's zfill reads what is behind an empty text."""
    widths = np.broadcast_to(n, a.shape).ravel().tolist()
    texts = [text.zfill(width) for text, width in zip(a.ravel().tolist(), widths, strict=True)]
    return np.array(texts, a.dtype.char).reshape(a.shape)


#: What is wanted where NumPy's own function may be wrong.
RIGHT = {"zfill": zero_filled}


@pytest.mark.parametrize("name", CALLS)
def test_text(world, ranks, name):
    call = CALLS[name]
    right = RIGHT.get(name, call)

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        for kind, text in (("U", str), ("S", str.encode)):
            for count in (8, 2, 1):
                a, n = WORDS.astype(kind)[:count], NUMBERS[:count]
                x, m = (distarray.distribute(v, mesh, [Shard(0)], src=None) for v in (a, n))
                assert_matches(call(x, m, text), right(a, n, text))
            grid = WORDS.astype(kind).reshape(2, 4)
            x = distarray.distribute(grid, mesh, [Shard(1)], src=None)
            assert_matches(call(x, 4, text), right(grid, 4, text))

    world.run(ranks, program)


DATES = {
    "is_busday": lambda d, o: np.is_busday(d, "1010101"),
    "count": lambda d, o: np.busday_count(d, "2021-03-04", holidays=["2011-07-04"]),
    "count between": lambda d, o: np.busday_count(d, d[::-1]),
    "offset": lambda d, o: np.busday_offset(d, o, "forward"),
    "calendar": lambda d, o: np.busday_offset(d, 2, "backward", busdaycal=np.busdaycalendar("Tue")),
    "text": lambda d, o: np.datetime_as_string(d),
    "hours": lambda d, o: np.datetime_as_string(d, "h", casting="unsafe"),
    "auto": lambda d, o: np.datetime_as_string(d, "auto"),
    "one": lambda d, o: np.is_busday(d[2]),
}


@pytest.mark.parametrize("name", DATES)
def test_dates(world, ranks, name):
    offsets = NUMBERS[:6]

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, n = (distarray.distribute(v, mesh, [Shard(0)], src=None) for v in (DAYS, offsets))
        assert_matches(DATES[name](x, n), DATES[name](DAYS, offsets))

    world.run(ranks, program)


def test_distributed_weeks_and_holidays(world, ranks):
    week = np.array([1, 0, 1, 0, 1, 1, 1])

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, w = (distarray.distribute(v, mesh, [Shard(0)], src=None) for v in (DAYS, week))
        assert_matches(np.is_busday(x, w, x[1:3]), np.is_busday(DAYS, week, DAYS[1:3]))

    world.run(ranks, program)


def test_out(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x = distarray.distribute(DAYS, mesh, [Shard(0)], src=None)
        out = distarray.distribute(np.zeros(6, int), mesh, [Shard(0)], src=None)
        assert np.busday_count(x, "2021-03-04", out=out) is out
        assert_matches(out, np.busday_count(DAYS, "2021-03-04"))

    world.run(ranks, program)


BAD = {
    "no business day": lambda a, d: np.busday_offset(d, 1),
    "format": lambda a, d: S.mod(a, 3),
    "width": lambda a, d: S.center(a, 2.5),
    "fill": lambda a, d: S.ljust(a, 5, "ab"),
    "unit": lambda a, d: np.datetime_as_string(d, "no such"),
    "mask": lambda a, d: np.is_busday(d, "0000000"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_one_rank_finds_wrong_all_raise(world, ranks, what):
    words = np.array(["%d"] * 5 + ["%q"])

    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        x, d = (distarray.distribute(v, mesh, [Shard(0)], src=None) for v in (words, DAYS))
        assert_same_error(lambda: BAD[what](x, d), lambda: BAD[what](words, DAYS))

    world.run(ranks, program)


def test_empty_texts_in_records_are_gathered_as_such(world, ranks):
    """NumPy makes room for a character of each, which is in other memory's place."""
    made = np.array([(i, b"", 2 * i) for i in range(7)], [("a", "i4"), ("b", "S0"), ("c", "f8")])

    def run(group):
        x = distarray.distribute(made, DeviceMesh(group, (ranks,)), [Shard(0)], src=None)
        for _ in range(20):
            used = [np.full(7, 255, np.uint8) for _ in range(5)]
            del used
            assert x["b"].full().tolist() == [b""] * 7
            assert x["b"][::-1].redistribute().full().tolist() == [b""] * 7

    world.run(ranks, run)
