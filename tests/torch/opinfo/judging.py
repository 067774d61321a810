"""One operator variant on distributed tensors beside plain torch: what comes of each case.

A case is a sample in one way to lay its operands out. Everything that communicates is done before
anything is compared, so that a wrong answer on one rank keeps no other rank waiting.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import distarray.torch as dt
from distarray.comm import DeviceMesh
from distarray.errors import PerformanceWarning
from tests.torch.opinfo.layouts import WAYS, Operands, gradients, is_distributed
from tests.torch.opinfo.variants import Unit, samples, seed, tensors

__all__ = ["Case", "LeftOut", "judge", "merged", "verdict"]

#: Characters of an exception's or a comparison's words that are kept.
WORDS = 240


class Case(NamedTuple):
    """What came of one case on one rank, or, merged, on all."""

    came: str  # "right", "refused", "wrong", "parted"
    words: str = ""
    where: str = ""
    gathered: bool = False


class LeftOut(Exception):
    """A variant that is not about distributed tensors after all: the verdict, and why."""


# -- calling -------------------------------------------------------------------------------------


def arguments(unit: Unit, op: Any, sample: Any) -> tuple[Any, ...]:
    """A sample's (input, args, kwargs), and for the form "out" tensors to write into."""
    given = (sample.input, sample.args, sample.kwargs)
    if unit.form != "out":
        return given
    first, args, kwargs = copied(given)
    example = op.op(first, *args, **kwargs)
    blank = pytree.tree_map(_blank, example)
    return (*given, blank if isinstance(blank, torch.Tensor) else tuple(blank))


def _blank(x: Any) -> Any:
    return torch.zeros_like(x) if isinstance(x, torch.Tensor) else x


def call(unit: Unit, op: Any, given: tuple[Any, ...]) -> Any:
    """Call an operator in a unit's form; what is compared is its result and what it wrote into."""
    first, args, kwargs = given[:3]
    if unit.form == "method":
        return op.method_variant(first, *args, **kwargs)
    if unit.form == "inplace":
        return op.inplace_variant(first, *args, **kwargs), first
    if unit.form == "out":
        return op.op(first, *args, **kwargs, out=given[3]), given[3]
    return op.op(first, *args, **kwargs)


def copied(tree: Any) -> Any:
    """Arguments whose tensors are copies: an operator may write into them."""

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.detach().clone().requires_grad_(x.requires_grad)

    return pytree.tree_map(copy, tree)


def functional(sample: Any, result: Any) -> torch.Tensor | None:
    """A linear functional, always the same one, of an operator's plain result.

    NumPy draws it: what torch draws would look like numbers that the operator draws.
    """
    generator = np.random.default_rng(7)
    total = None
    for x in tensors(sample.output_process_fn_grad(result)):
        if not x.requires_grad:
            continue
        x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        weights = torch.as_tensor(generator.standard_normal(tuple(x.shape)), dtype=x.dtype)
        term = (x * weights).sum()
        total = term if total is None else total + term
    return total


# -- plain torch, and distributed ----------------------------------------------------------------


class Drawing(TorchDispatchMode):
    """Notices whether an operator that draws random numbers is called."""

    drawn = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drawn = self.drawn or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


class Question(NamedTuple):
    """A sample in a unit's form, and what plain torch makes of it."""

    unit: Unit
    op: Any
    sample: Any
    given: tuple[Any, ...]
    wanted: list[Any]
    #: Where random numbers are drawn, which need not be plain torch's: None or, once there is one,
    #: the result of the first case, whose numbers those of all other cases must be.
    drawn: list[Any] | None


def asked(unit: Unit, op: Any, sample: Any) -> Question | None:
    """Ask plain torch; None if it does not take the sample, or has no gradient for it.

    Raises
    ------
    LeftOut
        If plain torch gives another result each time, though it draws no random numbers.
    """
    try:
        given = arguments(unit, op, sample)
        with Drawing() as drawing:
            wanted = expected(unit, op, sample, given)
        second = expected(unit, op, sample, given, again=1)
    except Exception:
        return None
    leaves = pytree.tree_leaves(wanted)
    if not drawing.drawn:
        try:
            compare([whole(x) for x in pytree.tree_leaves(second)], leaves, False)
        except AssertionError:
            raise LeftOut("left out", "plain torch gives another result each time") from None
    if wanted is None:
        return None
    return Question(unit, op, sample, given, leaves, [] if drawing.drawn else None)


def expected(unit: Unit, op: Any, sample: Any, given: tuple[Any, ...], again: int = 0) -> Any:
    """What plain torch gives; None if there is no gradient to compare."""
    given = copied(given)
    seed(unit.name, again)
    result = call(unit, op, given)
    if unit.form != "gradient":
        return result
    total = functional(sample, result)
    leaves = [x for x in tensors(given) if x.requires_grad]
    if total is None or not leaves:
        return None
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found)]


def computed(asked: Question, operands: Operands, mesh: DeviceMesh) -> list[Any]:
    """The leaves of what the operator gives for distributed operands, gathered."""
    unit, op, sample = asked.unit, asked.op, asked.sample
    given, made = operands.of(asked.given, mesh)
    seed(unit.name)
    dt.manual_seed(7, mesh)
    result = call(unit, op, given)
    if any(x is NotImplemented for x in pytree.tree_leaves(result)):
        raise TypeError("the operator is not implemented")
    if unit.form != "gradient":
        return [whole(x) for x in pytree.tree_leaves(result)]
    plain = pytree.tree_map(lambda x: x.full_tensor() if is_distributed(x) else x, result)
    total = functional(sample, plain)
    if total is None:
        raise RuntimeError("the result requires no gradient")
    return [whole(x) for x in gradients(total, [x for x in made if x.requires_grad])]


def whole(x: Any) -> Any:
    """A leaf of a result: a tensor as (values, what it said of itself), anything else as it is."""
    if not isinstance(x, torch.Tensor) and not is_distributed(x):
        return x
    said = (tuple(x.shape), x.dtype, bool(x.requires_grad))
    return (x.full_tensor() if is_distributed(x) else x).detach(), said


def compare(
    got: list[Any],
    wanted: list[Any],
    tracked: bool,
    values: bool = True,
    rounding: bool = False,
) -> None:
    """AssertionError if the leaves of two results differ.

    `tracked`: in requires_grad, too; without `values`, only in what they are; `rounding`: what is
    rounded is as large as the largest element, as in gradients, which are sums.
    """
    assert len(got) == len(wanted), f"{len(got)} results instead of {len(wanted)}"
    for one, other in zip(got, wanted):
        if not isinstance(other, torch.Tensor):
            if values:
                _compare_values(one, other)
            continue
        assert isinstance(one, tuple), f"{type(one).__name__} instead of a tensor"
        tensor, (shape, dtype, requires_grad) = one
        assert shape == tuple(other.shape), f"shape {shape} instead of {tuple(other.shape)}"
        assert dtype == other.dtype, f"dtype {dtype} instead of {other.dtype}"
        if values:
            _compare_tensors(tensor, other.detach(), rounding)
        if tracked:
            assert requires_grad == other.requires_grad, f"requires_grad is {requires_grad}"


def _compare_tensors(one: torch.Tensor, other: torch.Tensor, rounding: bool) -> None:
    if rounding and other.dtype == torch.float32 and other.layout is torch.strided:
        largest = max([1.0, *other[other.isfinite()].abs().tolist()])
        bounds = {"rtol": 1.3e-6, "atol": 1e-5 * largest}
        torch.testing.assert_close(one, other, equal_nan=True, **bounds)
    else:
        torch.testing.assert_close(one, other, equal_nan=True)


def _compare_values(one: Any, other: Any) -> None:
    if isinstance(other, Number):
        one = one[0].item() if isinstance(one, tuple) else one
        torch.testing.assert_close(one, other, equal_nan=True)
    else:
        assert one == other, f"{one!r} instead of {other!r}"


# -- cases ---------------------------------------------------------------------------------------


def judge(unit: Unit, op: Any, most: int) -> Iterator[tuple[str, Callable[[DeviceMesh], Case]]]:
    """The cases of a unit: where each is, and what runs it.

    Raises
    ------
    LeftOut
        If plain torch has no result for any sample, or another one each time, or if no sample has
        a tensor.
    """
    taken = 0
    for number, sample in enumerate(_samples(unit, op, most)):
        question = asked(unit, op, sample)
        if question is not None:
            taken += 1
            for way, operands in _ways(tensors(question.given)):
                where = f"sample {number}, {way} ({operands})"
                yield where, functools.partial(_case, question, operands, where)
    if not taken:
        raise LeftOut("left out", "no sample that plain torch takes in this form")


def _samples(unit: Unit, op: Any, most: int) -> list[Any]:
    tracked = unit.form in ("function", "method", "gradient") and op.supports_autograd
    found = samples(op, most, tracked)
    if unit.form == "inplace":
        found = [s for s in found if not s.broadcasts_input and isinstance(s.input, torch.Tensor)]
    having = [s for s in found if tensors((s.input, s.args, s.kwargs))]
    if found and not having:
        raise LeftOut("no tensor", "its samples have no tensor to lay out")
    return having


def _ways(found: list[torch.Tensor]) -> Iterator[tuple[str, Operands]]:
    """The ways to lay tensors out that differ for these."""
    known: list[Any] = []
    for way in WAYS:
        operands = Operands(way, found)
        if operands.placements not in known:
            known.append(operands.placements)
            yield way, operands


def _case(asked: Question, operands: Operands, where: str, mesh: DeviceMesh) -> Case:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            got = computed(asked, operands, mesh)
        except Exception as error:
            return Case("refused", first_line(error), where)
    gathered = any(issubclass(one.category, PerformanceWarning) for one in said)
    try:
        _compare(got, asked)
    except AssertionError as error:
        return Case("wrong", " ".join(str(error).split())[:WORDS], where, gathered)
    return Case("right", "", where, gathered)


def _compare(got: list[Any], asked: Question) -> None:
    tracked = asked.unit.form in ("function", "method")
    if asked.drawn is None:
        compare(got, asked.wanted, tracked, rounding=asked.unit.form == "gradient")
        return
    compare(got, asked.wanted, tracked, values=False)
    if not asked.drawn:
        asked.drawn.extend([x[0] if isinstance(x, tuple) else x for x in got])
    compare(got, asked.drawn, False)


def first_line(error: Exception) -> str:
    """An exception's name and the first line that it says."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:WORDS]


# -- verdicts ------------------------------------------------------------------------------------


def merged(ranks: list[list[Case]]) -> list[Case]:
    """What came of each case on all ranks together."""
    return [_together(list(found)) for found in zip(*ranks, strict=True)]


def _together(found: list[Case]) -> Case:
    refused = [rank for rank, case in enumerate(found) if case.came == "refused"]
    if refused and len(refused) < len(found):
        case = found[refused[0]]
        return case._replace(came="parted", words=f"only on ranks {refused}: {case.words}")
    worst = next((case for case in found if case.came == "wrong"), found[0])
    return worst._replace(gathered=any(case.gathered for case in found))


def verdict(found: list[Case]) -> tuple[str, Case]:
    """A unit's verdict, and the case that decided it."""
    for came in ("parted", "wrong"):
        for case in found:
            if case.came == came:
                return came, case
    refused = [case for case in found if case.came == "refused"]
    if refused:
        return ("refused" if len(refused) == len(found) else "part"), refused[0]
    gathered = [case for case in found if case.gathered]
    return ("gathered", gathered[0]) if gathered else ("right", found[0])
