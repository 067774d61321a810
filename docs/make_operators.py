"""The table of torch's operators on distributed tensors, from the rules themselves."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from distarray.torch.tensor.table import families, row_of

__all__ = ["gathering", "operators"]


def operators() -> str:
    """What the page includes: the operators of each family, and those that gather."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 30 70", ""]
    lines += ["   * - what the rules say", "     - operators"]
    for family, names in families().items():
        said = (import_module(f"distarray.torch.tensor.rules.{family}").__doc__ or "").split("\n\n")
        lines += _row(" ".join(said[0].split()), [_short(name) for name in names])
    return "\n".join([*lines, "", *_rest()]) + "\n"


def _rest() -> list[str]:
    found = gathering()
    return [
        f"Of the {len(_core())} operators that torch counts as its core {len(found)} have no rule, "
        "and gather:",
        ", ".join([f"``{name}``" for name in found]) + ".",
        "",
    ]


def gathering() -> list[str]:
    """The operators of torch's core that have no rule, by name."""
    rows = [row_of(op) for op in _core()]
    return sorted(
        {_short(str(row.op)) for row in rows if row.rule is None and row.composed is None}
    )


def _core() -> list[Any]:
    """The operators of torch's core that take a tensor."""
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if space != "aten" or op is None or torch.Tag.core not in op.tags:
            continue
        if any("Tensor" in str(argument.type) for argument in op._schema.arguments):
            found.append(op)
    return found


def _short(name: str) -> str:
    return name.removeprefix("aten.").removesuffix(".default")


def _row(said: str, names: list[str]) -> list[str]:
    return [f"   * - {said}", f"     - {', '.join([f'``{name}``' for name in names])}"]
