"""Cross entropy of logits whose classes are divided among the ranks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import _reduction, functional
from torch.overrides import TorchFunctionMode

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.layout import Cut, Fold, Layout, Shard
from distarray.torch.collectives import conversations as talk
from distarray.torch.collectives.borders import reduce_from
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.parameters.functions import Args, Func, Kwargs
from distarray.torch.tensor.activations import Activation, laid_out
from distarray.torch.tensor.between_modules import given, is_distributed, taken
from distarray.torch.tensor.dist_tensor import DistTensor

__all__ = ["loss_parallel", "parallel_cross_entropy"]


_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


class _Logits(NamedTuple):
    """This rank's logits, with their position in the whole.

    Attributes
    ----------
    values : Tensor
        In float32 or wider.
    dim : int
        The dimension of the classes.
    classes : int
        Number of classes on all ranks together.
    start, stop : int
        The range of classes on this rank.
    mesh : DeviceMesh
        The ranks.
    across, along : tuple of int
        Mesh dimensions that cut the classes, and those that cut the samples.
    samples : Layout
        The layout of a tensor with one number per sample.
    """

    values: Tensor
    dim: int
    classes: int
    start: int
    stop: int
    mesh: DeviceMesh
    across: tuple[int, ...]
    along: tuple[int, ...]
    samples: Layout


@uncompiled
def parallel_cross_entropy(
    logits: Any,
    target: Any,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Compute :func:`torch.nn.functional.cross_entropy` without gathering the logits.

    In a `loss_parallel` block, ``torch.nn.functional.cross_entropy`` and
    ``torch.nn.CrossEntropyLoss`` call this function for plain logits of this rank's classes.

    Parameters
    ----------
    logits : DistTensor
        (samples, classes, ...) or (classes,), with any dimensions sharded.
    target : torch.Tensor or DistTensor
        Class indices, or probabilities. A plain tensor is this rank's part of the samples: all
        samples if only the classes are sharded. Probabilities include all classes.
    weight : torch.Tensor, optional
        Weights of all classes; equal on all ranks.
    ignore_index, reduction, label_smoothing
        See :func:`torch.nn.functional.cross_entropy`.

    Returns
    -------
    torch.Tensor
        Equal on every rank; with ``reduction="none"`` a DistTensor if samples are sharded.

    Raises
    ------
    IndexError
        On all ranks, if a target is out of range.

    Cost
    ----
    Two allreduces, of one and of two numbers per sample (three with label smoothing); none in the
    gradient. If samples are sharded, two more allreduces of a few numbers.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> mine = torch.zeros(5, 2)  # 5 samples, 2 classes on this rank
    >>> logits = dt.DistTensor.from_local(mine, mesh, [distarray.Shard(1)])
    >>> loss = dt.parallel_cross_entropy(logits, torch.tensor([0, 1, 0, 1, 1]))
    >>> round(float(loss.exp())) == 2 * mesh.size()
    True
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    logits, target = taken(logits), taken(target)
    found = _logits(logits)
    wanted = logits.layout.shape if _is_inexact(target) else found.samples.shape
    if isinstance(target, Activation) and target.layout.shape != wanted:
        raise ValueError(f"target has shape {target.layout.shape}; {wanted} is wanted")
    highest = _highest(found)
    if _is_inexact(target):
        if weight is not None:
            weight = weight.to(found.values.dtype)
        losses = _of_probabilities(found, highest, target, weight, label_smoothing)
        shares = torch.ones_like(losses)
    else:
        labels = _labels(found, target, ignore_index)
        losses, shares = _of_labels(found, highest, labels, weight, ignore_index, label_smoothing)
    return _reduced(found, losses, shares, reduction, _dtype_of_loss(logits))


def _dtype_of_loss(logits: Activation) -> Any:
    """Return the dtype of the logits; float32 in place of half precision under autocast."""
    wide = torch.is_autocast_enabled(logits.device.type)
    return _WIDE.get(logits.dtype, logits.dtype) if wide else logits.dtype


def _is_inexact(target: Tensor | Activation) -> bool:
    return bool(target.dtype.is_floating_point)


def _logits(logits: Activation) -> _Logits:
    layout = logits.layout.settled()
    values = logits.to_plain(layout)
    dim = 1 if layout.ndim > 1 else 0
    cuts = layout.cuts
    start, stop = layout.section(logits.mesh.coords)[dim]
    samples = Layout.from_cuts([*cuts[:dim], *cuts[dim + 1 :]], layout.mesh_shape)
    along = tuple([m for m, p in enumerate(samples.placements) if isinstance(p, Shard)])
    values = values.to(_WIDE.get(values.dtype, values.dtype))
    return _Logits(
        values, dim, cuts[dim].extent, start, stop, logits.mesh, cuts[dim].mesh_dims, along, samples
    )


def _highest(x: _Logits) -> Tensor:
    """Return the highest logit of each sample, which keeps the exponentials finite."""
    values = x.values.detach()
    if x.stop > x.start:
        highest = values.amax(x.dim)
    else:
        shape = [n for d, n in enumerate(values.shape) if d != x.dim]
        highest = values.new_full(shape, float("-inf"))
    if x.across:
        highest = talk.folded(highest, x.mesh.subgroup(x.across), Fold.MAX)
    return highest


def _summed(x: _Logits, parts: Sequence[Tensor]) -> Sequence[Tensor]:
    """Sum over the classes of all ranks, in one allreduce."""
    if not x.across:
        return parts
    total = reduce_from(torch.stack(list(parts)), x.mesh, x.across)
    return [total[position] for position in range(len(parts))]


def _exponentials(x: _Logits, highest: Tensor) -> Tensor:
    return torch.exp(x.values - highest.unsqueeze(x.dim)).sum(x.dim)


# -- class indices -----------------------------------------------------------------------------


def _labels(x: _Logits, target: Tensor | Activation, ignore_index: int) -> Tensor:
    """Return this rank's targets; raise if one is out of range."""
    if isinstance(target, Activation):
        target = target.placed(x.samples).local
    expected = tuple([n for d, n in enumerate(x.values.shape) if d != x.dim])
    error: Exception | None = None
    if tuple(target.shape) != expected:
        error = ValueError(
            f"cross_entropy: this rank has logits of {expected} samples and targets of shape "
            f"{tuple(target.shape)}"
        )
    else:
        bad = target[(target != ignore_index) & ((target < 0) | (target >= x.classes))]
        if bad.numel():
            error = IndexError(f"Target {int(bad[0])} is out of bounds.")
    if x.along:
        agree(x.mesh.group, error)
    elif error is not None:
        raise error
    return target


def _of_labels(
    x: _Logits,
    highest: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Return the loss of each sample, and the sample's weight."""
    here = (labels >= x.start) & (labels < x.stop)
    parts = [_exponentials(x, highest), _picked(x, labels, here)]
    own = None if weight is None else weight.to(x.values.dtype)[x.start : x.stop]
    if smoothing:
        parts.append(_weighted(x, own).sum(x.dim))
    total, picked, *rest = _summed(x, parts)
    logarithm = highest + torch.log(total)
    counts = labels != ignore_index
    shares = counts.to(logarithm.dtype)
    if weight is not None:
        shares = shares * weight.to(logarithm.dtype)[torch.where(counts, labels, 0)]
    losses = (logarithm - picked) * shares
    if smoothing:
        mass = x.classes if weight is None else weight.to(logarithm.dtype).sum()
        smooth = (logarithm * mass - rest[0]) * (smoothing / x.classes)
        losses = losses * (1 - smoothing) + torch.where(counts, smooth, 0)
    return torch.where(counts, losses, 0), shares


def _weighted(x: _Logits, weight: Tensor | None) -> Tensor:
    if weight is None:
        return x.values
    return x.values * weight.view(-1, *(1,) * (x.values.ndim - 1 - x.dim))


def _picked(x: _Logits, labels: Tensor, here: Tensor) -> Tensor:
    """Return the logit of each sample's target if this rank has it, else 0."""
    if x.start == x.stop:  # a rank without classes still takes part in the gradient
        return torch.zeros_like(labels, dtype=x.values.dtype) + x.values.sum() * 0
    index = torch.where(here, labels - x.start, 0).long()
    found = x.values.gather(x.dim, index.unsqueeze(x.dim)).squeeze(x.dim)
    return torch.where(here, found, 0)


# -- probabilities -----------------------------------------------------------------------------


def _of_probabilities(
    x: _Logits,
    highest: Tensor,
    target: Tensor | Activation,
    weight: Tensor | None,
    smoothing: float,
) -> Tensor:
    chances = _own_chances(x, target)
    if smoothing:
        chances = chances * (1 - smoothing) + smoothing / x.classes
    if weight is not None:
        view = (-1, *(1,) * (x.values.ndim - 1 - x.dim))
        chances = chances * weight[x.start : x.stop].view(view)
    product = torch.where(chances == 0, 0, chances * x.values)
    parts = [_exponentials(x, highest), chances.sum(x.dim), product.sum(x.dim)]
    total, mass, products = _summed(x, parts)
    return (highest + torch.log(total)) * mass - products


def _own_chances(x: _Logits, target: Tensor | Activation) -> Tensor:
    """Return the target probabilities for this rank's classes and samples."""
    if isinstance(target, Activation):
        cuts = list(x.samples.cuts)
        cuts.insert(x.dim, Cut.whole(x.classes))
        target = target.placed(Layout.from_cuts(cuts, x.samples.mesh_shape)).local
    expected = list(x.values.shape)
    expected[x.dim] = x.classes
    if list(target.shape) != expected:
        raise ValueError(
            f"cross_entropy: probabilities of all classes have shape {tuple(expected)} on this "
            f"rank, not {tuple(target.shape)}"
        )
    return target.narrow(x.dim, x.start, x.stop - x.start).to(x.values.dtype)


# -- reduction and entry points ----------------------------------------------------------------


def _reduced(x: _Logits, losses: Tensor, shares: Tensor, reduction: str, dtype: torch.dtype) -> Any:
    if reduction == "none":
        losses = losses.to(dtype)
        return given(laid_out(losses, x.mesh, x.samples)) if x.along else losses
    total = torch.stack([losses.sum(), shares.sum()])
    if x.along:
        total = reduce_from(total, x.mesh, x.along)
    return (total[0] if reduction == "sum" else total[0] / total[1]).to(dtype)


@uncompiled
def _cross_entropy(func: Func, args: Args, kwargs: Kwargs) -> Any:
    def bound(
        input: Any,
        target: Tensor | Activation,
        weight: Any = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Any:
        if size_average is not None or reduce is not None:
            reduction = _reduction.legacy_get_string(size_average, reduce)
        return parallel_cross_entropy(
            input,
            target,
            weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )

    return bound(*args, **kwargs)


_Mode: Any = TorchFunctionMode


class _SplitClasses(_Mode):  # type: ignore[misc]
    """Mode in which `cross_entropy` accepts logits of this rank's classes only."""

    def __init__(self, mesh: DeviceMesh | None) -> None:
        super().__init__()
        self._mesh = mesh

    def __torch_function__(
        self, func: Func, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is functional.cross_entropy:
            logits = kwargs.pop("input") if "input" in kwargs else args[0]
            if is_distributed(logits):
                return _cross_entropy(func, (logits, *args[1:]), kwargs)
            if self._mesh is not None:
                dim = 1 if logits.ndim > 1 else 0
                logits = DistTensor.from_local(logits, self._mesh, [Shard(dim)])
                return _cross_entropy(func, (logits, *args[1:]), kwargs)
        return func(*args, **kwargs)


@contextmanager
def loss_parallel(mesh: DeviceMesh | None = None) -> Iterator[None]:
    """Compute cross entropy from logits whose classes are sharded, without gathering them.

    In the block, cross entropy of a `DistTensor` also calls `parallel_cross_entropy`.

    Parameters
    ----------
    mesh : DeviceMesh, optional
        One-dimensional. If given, plain logits passed to ``torch.nn.functional.cross_entropy`` in
        the block count as those of this rank's classes, as a last layer under `ColwiseParallel`
        returns them.

    Cost
    ----
    Equal to that of `parallel_cross_entropy`; for plain logits also an allgather of a few integers.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> head = dt.parallelize_module(torch.nn.Linear(4, 6), mesh, dt.ColwiseParallel())
    >>> with dt.loss_parallel(mesh):
    ...     logits, target = head(torch.ones(2, 4)), torch.tensor([0, 5])
    ...     loss = torch.nn.functional.cross_entropy(logits, target)
    >>> loss.backward()
    >>> bool(loss > 0)
    True
    """
    with _SplitClasses(mesh):
        yield
