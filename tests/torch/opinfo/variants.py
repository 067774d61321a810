"""Which of the database's operator variants are run, in which forms, and on which samples."""

from __future__ import annotations

import functools
import itertools
import random
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

__all__ = ["FORMS", "Unit", "all_units", "most_used", "samples", "seed", "tensors", "variants"]

#: How an operator is called; "gradient" is one more, for those who ask. Each is counted apart.
FORMS = ("function", "method", "inplace", "out")
#: Samples of a variant that are looked at, and the elements of one that is small.
SEEN, SMALL = 60, 5_000


class Unit(NamedTuple):
    """One verdict's worth: an operator variant in one of its forms."""

    name: str
    form: str


@functools.cache
def variants() -> dict[str, Any]:
    """The variants that are run, by name: those with float32 on the CPU whose results are fixed.

    Left out are those without float32 on the CPU (integers and booleans only, and what is for
    CUDA alone) and those that say that their results are memory as it was found. Those that draw
    random numbers set the seed themselves. Which ones take no tensor shows itself when their
    samples are made (`judging.LeftOut`). Of torch 2.13 these are 671 variants.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        op.full_name: op
        for op in op_db
        if op.supports_dtype(torch.float32, "cpu") and not op.has_nondeterministic_output
    }


def all_units(forms: tuple[str, ...] = FORMS) -> list[Unit]:
    """Every variant in every form that it has."""
    found = []
    for name, op in variants().items():
        there = {
            "function": True,
            "method": op.method_variant is not None,
            "inplace": op.inplace_variant is not None,
            "out": op.supports_out,
            "gradient": op.supports_autograd,
        }
        found += [Unit(name, form) for form in forms if there[form]]
    return found


def most_used() -> list[str]:
    """The names in ``most_used.txt``."""
    lines = Path(__file__).with_name("most_used.txt").read_text().splitlines()
    return [word for line in lines if not line.startswith("#") for word in line.split()]


def seed(name: str, again: int = 0) -> None:
    """Let everything that draws random numbers begin alike on every rank."""
    number = zlib.crc32(name.encode()) + again
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors anywhere in arguments."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def samples(op: Any, most: int, requires_grad: bool) -> list[Any]:
    """Some of a variant's samples, equal on all ranks: small ones, from its first to its last."""
    seed(op.full_name)
    given = op.sample_inputs("cpu", torch.float32, requires_grad=requires_grad)
    seen = list(itertools.islice(given, SEEN))
    small = [sample for sample in seen if _elements(sample) <= SMALL] or seen
    if len(small) <= most:
        return small
    return [small[k * (len(small) - 1) // max(most - 1, 1)] for k in range(most)]


def _elements(sample: Any) -> int:
    return sum(x.numel() for x in tensors((sample.input, sample.args, sample.kwargs)))
