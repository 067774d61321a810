"""A row of the table: what is measured, in the words of each library.

A statement is timed as :mod:`timeit` times it. What it may use:

* `np` (NumPy, or `distarray.numpy`, `jax.numpy`, `dask.array`), `ht` (Heat), `torch`, each in its
  own library's statements, and `numpy` in all; JAX's `ready(result)` waits for it;
* `rng`, a NumPy generator, equal on every rank; the sizes of the case, such as `n`;
* `place(values)`, which makes the library's array of NumPy values, cut along the first dimension
  (`place(values, 1)`: the second; `place(values, None)`: on every rank);
* `i`, the number of the repetition, in `before`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["GRID", "LINE", "MILLION", "Case", "everywhere"]

MILLION = 1 << 20


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    name : str
    setup : str
        Run once; `before` is run before each repetition, `after` after the last; not timed.
    statements : mapping of str to str
        What is timed. Keys: "numpy" (one process), "numpy-2" (two BLAS threads), "distarray",
        "heat", "dtensor", "jax", "dask", "mpi4py-fft", and "local": what each rank does by itself,
        for comparison.
    sizes, tiny : mapping of str to int
        The sizes measured, and those that the tests run.
    traffic : str
        Bytes that have to be read and written at the least, over all ranks; "" where time is not
        a matter of memory. `p` is the number of ranks.
    messages : str
        Messages that the busiest rank sends in one call, on `p` > 1 ranks; a collective is one.
    """

    name: str
    setup: str
    statements: Mapping[str, str]
    sizes: Mapping[str, int] = field(default_factory=dict)
    tiny: Mapping[str, int] = field(default_factory=dict)
    traffic: str = ""
    messages: str = "0"
    before: str = ""
    after: str = ""


def everywhere(statement: str, **others: str) -> dict[str, str]:
    """One statement for every library but those that spell it otherwise ("": not at all)."""
    spelled = dict.fromkeys(("numpy", "distarray", "heat", "dtensor"), statement) | others
    return {library: text for library, text in spelled.items() if text}


#: Set-ups that many rows begin with.
GRID = "a = place(rng.random((n, n)))"
LINE = "a = place(rng.random(n))"
