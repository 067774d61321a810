"""The size sweep: operations on arrays from 16 KiB to 64 MiB, made as a program makes them.

Nothing is cut by hand here: small arrays are whole on every rank, as in any program.
"""

from benchmarks.case import Case

__all__ = ["CASES", "SIZES", "SWEPT"]

#: KiB in the array that is worked on.
SIZES = (16, 64, 256, 1024, 4096, 16384, 65536)
#: What is done with it.
SWEPT = {
    "a + b": "a + b",
    "sum": "float(a.sum())",
    "exp": "np.exp(a)",
    "sort": "np.sort(a)",
    "difference of neighbours": "a[1:] - a[:-1]",
}
_MADE = "a = np.sin(np.arange(0.0, n))\nb = a + 1.0"


def size(kib: int) -> str:
    """A size in words."""
    return f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"


CASES = [
    Case(
        f"sizes: {name}, {size(kib)}",
        _MADE,
        {"numpy": statement, "distarray": statement},
        {"n": kib * 128},
        {"n": 64},
    )
    for name, statement in SWEPT.items()
    for kib in SIZES
]
