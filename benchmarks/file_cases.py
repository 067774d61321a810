"""Files and checkpoints."""

from benchmarks.case import MILLION, Case, everywhere

__all__ = ["CASES"]

FILES = """
from benchmarks.plain import Plain, scratch
a = place(numpy.full(n, 0.5))
path = scratch() + "/a.npy"
plain = Plain(scratch() + "/a.raw", a)
"""
WRITTEN = (
    FILES
    + """
numpy.save(path, a)
plain.write()
"""
)
#: A GiB in arrays of 4 MiB. Few arrays are as large, lest ranks share a file.
STATE = """
from benchmarks.states import state
s = state(globals(), n, rows)
a = place(numpy.zeros(4))
"""
FORMAT = """
from distarray import io
from benchmarks.formats import READ, WRITE
from benchmarks.plain import scratch
a = place(numpy.full(n, 0.5))
path = f"{scratch()}/{type(a).__name__}.ENDING"
"""
LARGE_STATE, TINY_STATE = {"n": 256, "rows": 512}, {"n": 2, "rows": 768}


def formats(ending: str, writing: str, reading: str) -> list[Case]:
    """Writing and reading a format, beside the library whose format it is; messages of both."""
    setup = FORMAT.replace("ENDING", ending)
    sizes, tiny = {"n": 32 * MILLION}, {"n": 64}
    write = {
        "numpy": f"WRITE[{ending!r}](path, a)",
        "distarray": "io.write(path, {'x': a})",
    }
    read = {
        "numpy": f"READ[{ending!r}](path)",
        "distarray": "io.read(path, 'x', placements=[Shard(0)])",
    }
    made = f"{setup}(io.write(path, {{'x': a}}) if hasattr(a, 'mesh') else {write['numpy']})\n"
    return [
        Case(f"write .{ending} 256 MiB", setup, write, sizes, tiny, messages=writing),
        Case(f"read .{ending} 256 MiB", made, read, sizes, tiny, messages=reading),
    ]


CASES = [
    Case(
        "write .npy 1 GiB",
        FILES,
        {
            "numpy": "numpy.save(path, a)",
            "distarray": "numpy.save(path, a)",
            "local": "plain.write()",
        },
        {"n": 128 * MILLION},
        {"n": 64},
        messages="4",  # whether all bring the same; it is open; the values; all is well
    ),
    Case(
        "read .npy 1 GiB",
        WRITTEN,
        {
            "numpy": "numpy.load(path)",
            "distarray": "np.load(path, placements=[Shard(0)])",
            "local": "plain.read()",
        },
        {"n": 128 * MILLION},
        {"n": 64},
        messages="p + 3",  # whether the path is one; the header, well read; the values, well read
    ),
    Case(
        "checkpoint 1 GiB, save",
        STATE,
        everywhere("s.save()", dask="s.save()", heat=""),
        LARGE_STATE,
        TINY_STATE,
        messages="7",
    ),
    Case(
        "checkpoint 1 GiB, load",
        STATE,
        {
            "numpy": "s.load() and a",
            "distarray": "s.load() and a",
            "dtensor": "s.load()",
            "dask": "s.load()",
        },
        LARGE_STATE,
        TINY_STATE,
        messages="10",
    ),
    Case(
        "checkpoint 1 GiB, load columns",
        STATE,
        {"distarray": "s.load_columns() and a", "dtensor": "s.load_columns()"},
        LARGE_STATE,
        TINY_STATE,
        messages="11 + 2 * (p - 1) * -(-3 // p) if p > 1 else 0",  # in pieces of 2 MiB
    ),
    Case(
        "checkpoint 1 GiB, asynchronous",
        STATE,
        {"distarray": "s.save_behind()", "local": "s.copy()"},
        LARGE_STATE,
        TINY_STATE,
        messages="5",
        before="s.wait()",
        after="s.wait()",
    ),
]
CASES += formats("h5", "p + 9", "5")  # to rank 0, which writes alone
CASES += formats("safetensors", "4", "5")
CASES += formats("zarr", "10", "p + 5")
