"""Say whether two runs of the terrain program agree: ``python compare.py DIR DIR``.

Each directory holds what one run printed (``terrain.txt``) and drew (``terrain.png``). Exit status
1 when they differ.
"""

import sys
from pathlib import Path

import matplotlib.image
import numpy as np


def compare_text(a: Path, b: Path) -> bool:
    """Print the lines that differ; true when there are none."""
    ours, theirs = a.read_text().splitlines(), b.read_text().splitlines()
    differing = [pair for pair in zip(ours, theirs) if pair[0] != pair[1]]
    for left, right in differing:
        print(f"- {left}\n+ {right}")
    same = not differing and len(ours) == len(theirs)
    print(f"printed: {len(ours)} and {len(theirs)} lines, {len(differing)} differ")
    return same


def compare_pictures(a: Path, b: Path) -> bool:
    """Compare pixel by pixel; true when no channel differs by more than one step of 255."""
    ours, theirs = (np.rint(255 * matplotlib.image.imread(path)).astype(int) for path in (a, b))
    if ours.shape != theirs.shape:
        print(f"pictures: {ours.shape} and {theirs.shape} pixels")
        return False
    difference = np.abs(ours - theirs)
    share = 100 * np.count_nonzero(difference.max(axis=2)) / difference[..., 0].size
    print(f"pictures: {share:.3f} % of the pixels differ, by {difference.max()} of 255 at most")
    return bool(difference.max() <= 1)


def main() -> int:
    """Compare the two directories on the command line."""
    runs = [Path(argument) for argument in sys.argv[1:]]
    if len(runs) != 2 or not all((run / "terrain.txt").is_file() for run in runs):
        print("usage: compare.py DIR DIR, each with the terrain.txt of a run", file=sys.stderr)
        return 2
    a, b = runs
    same = compare_text(a / "terrain.txt", b / "terrain.txt")
    same &= compare_pictures(a / "terrain.png", b / "terrain.png")
    print("the same" if same else "NOT the same")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
