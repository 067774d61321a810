"""A random program: drawn from a seed, run with NumPy and with distributed arrays side by side."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.explore import faults
from tests.explore.comparison import Comparison
from tests.explore.drawing import Drawing, Misfit
from tests.explore.grammar import draw_opening, draw_statement
from tests.explore.worlds import numpy_world, our_world
from tests.waiting import everything_is_kept, everything_waits

__all__ = ["THRESHOLDS", "Failure", "Program", "draw_program", "follow", "on_threads"]

#: Values of `config.replicate_below` that programs are run with.
THRESHOLDS = (1 << 18, 0, 64)
#: Arrays and lists longer than this are dropped: programs would become slow.
LARGEST = 400
#: After these the sign of a zero is undefined: contributions to a sum, products by BLAS or of
#: complex numbers in any order, sorts, which leave equal elements in any order, and extremes, which
#: are any of the equal elements.
UNSIGNED = re.compile(
    r", P\b|np\.(?:dot|inner|matmul|einsum|tensordot|kron|outer|vdot)\b| @ "
    r"|prod\(|multiply\.(?:reduce|accumulate)|sort\(|partition|unique"
    r"|intersect1d|union1d|setdiff1d|median|quantile"
    r"|\b(?:nan|a)?(?:max|min)\(|(?:max|min)imum\.|f(?:max|min)\.|ptp\("
)

#: What rounds each contribution to a sum.
DIVISION = re.compile(r"divide|reciprocal|mean| / | /= ")


@dataclass(frozen=True)
class Program:
    """Lines of Python, and where and how they are run."""

    lines: tuple[str, ...]
    ranks: int
    mesh: tuple[int, ...]
    replicate_below: int
    seed: int = 0
    #: Whether values are compared at the end alone, not after each line, and nothing may copy what
    #: NumPy gives a view of.
    aliases: bool = False
    #: Whether everything that can be put off is.
    waits: bool = False

    def with_lines(self, lines: tuple[str, ...]) -> Program:
        """The same with other lines."""
        return replace(self, lines=lines)


@dataclass(frozen=True)
class Failure:
    """What went otherwise than in NumPy: the line, the kind of difference, and words for it."""

    line: int
    kind: str
    text: str


def draw_program(
    seed: int,
    length: int = 14,
    ranks: int | None = None,
    below: int | None = None,
    chapters: list[str] | None = None,
    aliases: bool = False,
) -> Program:
    """The program of a seed; ranks and `config.replicate_below` are drawn unless they are given."""
    rng = random.Random(seed)
    numbers = [1, 2, 2, 3, 3, 3, 4, 5, 6] if aliases else [1, 2, 2, 3, 3, 3, 4]
    ranks = rng.choice(numbers) if ranks is None else ranks
    below = rng.choice(THRESHOLDS) if below is None else below
    meshes = [(ranks,)] * 4 + [(a, ranks // a) for a in range(1, ranks + 1) if ranks % a == 0]
    program = Program((), ranks, rng.choice(meshes), below, seed, aliases)
    if aliases:
        program = replace(program, waits=rng.random() < 0.3)
        length = rng.randrange(5, 20)
    env = numpy_world() | {"__mesh_ndim__": len(program.mesh), "__ranks__": ranks}
    return program.with_lines(tuple(_drawn(rng, env, length, chapters, aliases)))


def _drawn(
    rng: random.Random,
    env: dict[str, Any],
    length: int,
    chapters: list[str] | None,
    aliases: bool,
) -> Iterator[str]:
    drawing = Drawing(rng, env)
    count, pending = 0, False
    opening = rng.randrange(1, 3) if aliases else rng.randrange(2, 5)
    for number in range(length):
        line = None
        while line is None:
            if number < opening or drawing.plain.issuperset(drawing.arrays()):
                statement = draw_opening(rng, aliases)
            else:
                statement = draw_statement(rng, chapters, aliases)
            try:
                line = drawing.fill(statement)
            except Misfit:
                continue
            if faults.concern(line, env) or (pending and DIVISION.search(line)):
                line = None
        if line.startswith("v = "):
            count += 1
            line = f"v{count}{line[1:]}"
            if _is_plain(ast.parse(line).body[0].value, drawing.plain):
                drawing.plain.add(f"v{count}")
        pending = pending or ", P" in line
        notes = _Notes()
        try:
            with np.errstate(all="ignore", call=notes), np.errstate(invalid="log"):
                outcome(line, env)
        except SystemError:  # NumPy has not raised an error of its own, which comes up now
            return
        if notes.casts:
            return  # what becomes of a number beyond its type, C does not say
        yield line
        name = f"v{count}"
        if _has_records(env.get(name)):
            del env[name]
            yield f"del {name}"
        if _size(env.get(name)) > LARGEST:
            del env[name]
            yield f"del {name}"
        if len(drawing.arrays()) > 7:
            name = rng.choice(drawing.arrays())
            del env[name]
            yield f"del {name}"


def _is_plain(node: ast.AST, known: set[str]) -> bool:
    """Whether an expression gives an array of NumPy's, also where arrays are distributed."""
    if isinstance(node, ast.Name):
        return node.id in known or not node.id.startswith("v")
    if isinstance(node, (ast.Subscript, ast.Attribute)):
        return _is_plain(node.value, known)
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name == "lay" or re.fullmatch(rf"np\.(?:{CREATORS})", name):
            return False
        if name.startswith("numpy.") or name == "np.lexsort":  # which does not look into lists
            return True
        if not name.startswith("np."):
            return _is_plain(node.func, known)
        read = node.args[:1] if name == "np.take" else [*node.args, *node.keywords]
        return all(_is_plain(part, known) for part in read)
    return all(_is_plain(part, known) for part in ast.iter_child_nodes(node))


class _Notes:
    """What NumPy logs: whether numbers were cast that are none in the new type."""

    casts = False

    def write(self, text: str) -> None:
        self.casts = self.casts or re.search("in (cast|reduce|accumulate)", text) is not None


#: Functions that make arrays on the default mesh.
CREATORS = (
    "zeros|ones|full|arange|eye|tri|linspace|array|asarray|asanyarray|require|meshgrid|zeros_like|"
    "asfortranarray|ascontiguousarray|ones_like|full_like|vander|busday_offset|char.upper"
)


def _has_records(value: Any) -> bool:
    """Whether there are single records, which in NumPy are views of an array, and here copies."""
    if isinstance(value, (list, tuple)):
        return any(map(_has_records, value))
    return isinstance(value, np.void)


def _size(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum([_size(item) for item in value])
    return getattr(value, "size", 1) if not isinstance(value, (str, bytes)) else len(value)


def outcome(line: str, env: dict[str, Any]) -> Exception | None:
    """Execute a line; the exception that it raises."""
    try:
        exec(compile(line, "<line>", "exec"), env)
    except Exception as error:
        return error
    return None


def follow(program: Program, group: Any, at: list[int]) -> Failure | None:
    """Run a program on one rank of a group; the first difference, the same on all ranks.

    `at` is kept at the number of the line, for whoever has to say where a rank was.
    """
    from distarray.comm import DeviceMesh, default_mesh
    from distarray.config import config

    mesh = default_mesh()
    if program.mesh != mesh.shape:
        mesh = DeviceMesh(group, program.mesh)
    plain, ours = numpy_world(), our_world(mesh)
    unsigned = any(UNSIGNED.search(line) for line in program.lines)
    comparison = Comparison(group, plain, ours, signs=not unsigned, aliases=program.aliases)
    with config.override(replicate_below=program.replicate_below, fallback="allow"), mesh:
        for number, line in enumerate(program.lines):
            at[0] = number
            with np.errstate(all="ignore"):
                wanted = outcome(line, plain)
                found = outcome(line, ours)
            difference = comparison.after(line, found, wanted)
            if difference is not None:
                return Failure(number, *difference)
            if comparison.over:
                return None
        difference = comparison.at_end()
    return None if difference is None else Failure(len(program.lines) - 1, *difference)


def on_threads(program: Program, timeout: float = 60.0) -> Failure | None:
    """Run a program on thread ranks, which keep what they can."""
    from distarray.comm import run_threads

    places: list[list[int]] = []

    def body(group: Any) -> Failure | None:
        at = [0]
        places.append(at)
        return follow(program, group, at)

    try:
        with pytest.MonkeyPatch.context() as patch:
            (everything_waits if program.waits else everything_is_kept)(patch.setattr)
            return run_threads(program.ranks, body, timeout=timeout)[0]
    except Exception as error:  # ranks that wait for one another in vain, or meet at other calls
        lines = [at[0] for at in places]
        return Failure(min(lines, default=0), "ranks part", f"{type(error).__name__}: {error}")
