"""A program as a script that a person can run, with NumPy and on ranks."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from tests.explore.program import Failure, Program, outcome
from tests.explore.worlds import laid, make, numpy_world

__all__ = ["script"]

_HEAD = """\
# Seed {seed}, line {line}. {text}
#
#   DISTARRAY_REPLICATE_BELOW={below} mpiexec -n {ranks} python found.py    # {mesh}
#   python found.py numpy
import sys
from math import prod
from typing import Any

import numpy

if "numpy" in sys.argv:
    import numpy as np

    rank, R, P = 0, None, None

    def S(dim):
        return None

    def lay(values, *placements):
        return values.copy()
else:
    import distarray
    import distarray.numpy as np

    S, R, P = distarray.Shard, distarray.Replicate(), distarray.Partial()
    mesh = {making}
    rank = mesh.rank

    def lay(values, *placements):
        return laid(values, mesh, placements or None)


{laid}

"""
_TAIL = """
for name, value in sorted(globals().items()):
    if name[0] == "v" and name[1:].isdigit():
        whole = value.full() if hasattr(value, "full") else value
        print(f"rank {rank}: {name} = {whole!r}", flush=True)
"""


def script(program: Program, failure: Failure) -> str:
    """The program with its arrays written out."""
    line = len(program.mesh) == 1
    head = _HEAD.format(
        seed=program.seed,
        line=failure.line + 1,
        text=failure.text.replace("\n", "\n# "),
        below=program.replicate_below,
        ranks=program.ranks,
        mesh=f"a mesh of shape {program.mesh}",
        making="distarray.default_mesh()"
        if line
        else f'distarray.init_device_mesh("cpu", {program.mesh})',
        laid=inspect.getsource(laid).rstrip(),
    )
    env = numpy_world()
    body = []
    for text in program.lines:
        raised = outcome(text, env) is not None
        text = _written_out(text)
        if raised or text is program.lines[-1]:
            text = f"try:\n    {text}\nexcept Exception as error:\n    print(rank, repr(error))"
        body.append(text)
    return head + "\n".join(body) + "\n" + _TAIL


class _Literals(ast.NodeTransformer):
    """Puts arrays in the place of the calls that make them."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "make":
            values = make(*[ast.literal_eval(arg) for arg in node.args])
            return ast.parse(_literal(values), mode="eval").body
        return node


def _literal(values: Any) -> str:
    dtype = values.dtype
    kind = repr(dtype.descr) if dtype.names else repr(dtype.str)
    plain = values.astype("i8") if dtype.kind in "mM" else values
    text = repr(plain.tolist()).replace("nan", "numpy.nan")
    if 0 in values.shape:
        return f"numpy.zeros({values.shape}, {kind})"
    made = f"numpy.array({text}, {kind if dtype.kind not in 'mM' else repr('i8')})"
    return made if dtype.kind not in "mM" else f"{made}.astype({kind})"


def _written_out(line: str) -> str:
    try:
        return ast.unparse(_Literals().visit(ast.parse(line)))
    except (ValueError, TypeError):  # of calls that make nothing
        return line
