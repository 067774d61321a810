"""Layers of torch with cut weights or operands.

A rule takes a module and a distributed tensor and returns a distributed tensor. It redistributes
the operand as the weights require, computes with the parts by torch's own function, and sets the
layout of the result. The global values are those of one process, whatever the layouts. Layers
without a rule but with cut parameters gather the whole parameters for the call.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, functional

from distarray.comm import DeviceMesh
from distarray.layout import Cut, Layout, Partial, Placement, Replicate, Shard
from distarray.torch.bridge.plain import plainly
from distarray.torch.collectives.conversations import verify_replicas
from distarray.torch.collectives.graphs import Like, conversation
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.modules.forwards import Forward, end_before_unread
from distarray.torch.parameters.distribute import used
from distarray.torch.parameters.placed import placed_of
from distarray.torch.tensor.activations import Activation, laid_out
from distarray.torch.tensor.between_modules import given, is_distributed, taken
from distarray.torch.tensor.dist_tensor import DistTensor

__all__ = [
    "alike",
    "conv1d",
    "cut_in_units",
    "embedding",
    "install",
    "linear",
    "mark",
    "rule_of",
    "take_over",
    "whole_parameters",
]

Rule = Callable[..., Activation]

_SUM = Partial()


def alike(x: Activation) -> list[int]:
    """Return mesh dimensions along which all ranks compute the same results from a tensor."""
    pending = x.pending
    return [m for m, p in enumerate(x.placements) if isinstance(p, Replicate) and m not in pending]


def cut_in_units(count: int, size: int, mesh: DeviceMesh) -> Cut:
    """Cut a dimension of `count` units of `size` between units, as ``torch.chunk`` cuts units."""
    units = Cut.chunked(count, (0,), mesh.shape)
    spans = map(units.interval, range(units.parts))
    return Cut.ragged([(stop - start) * size for start, stop in spans], (0,), mesh.shape)


# -- linear and embedding ---------------------------------------------------------------------


class _Product(NamedTuple):
    """Layouts for the computation of a layer with a weight (rows, columns) on an operand.

    Attributes
    ----------
    operand : Layout
        The required layout of the operand.
    spread : tuple of int
        Mesh dimensions along which the ranks compute different results from the operand.
    result : Layout
        The layout of the product, with pending sums along the mesh dimensions that cut the
        contracted dimension.
    """

    operand: Layout
    spread: tuple[int, ...]
    result: Layout


def _kept(cut: Cut, free: set[int]) -> Cut:
    """Restrict a dimension's cut to the mesh dimensions that the weight does not use."""
    if set(cut.mesh_dims) <= free:
        return cut
    left = tuple([m for m in cut.mesh_dims if m in free])
    radix = tuple([n for m, n in zip(cut.mesh_dims, cut.radix, strict=True) if m in free])
    return Cut.chunked(cut.extent, left, radix)


@lru_cache(maxsize=1024)
def _linear_product(x: Layout, w: Layout) -> _Product:
    """Plan the product of x (..., columns) and the transpose of w (rows, columns)."""
    rows, columns = w.cuts
    free = {m for m, p in enumerate(w.placements) if isinstance(p, Replicate)}
    batch = [_kept(cut, free) for cut in x.cuts[:-1]]
    operand = Layout.from_cuts([*batch, columns], x.mesh_shape)
    pending = dict.fromkeys(columns.mesh_dims, _SUM)
    return _Product(
        operand, rows.mesh_dims, Layout.from_cuts([*batch, rows], x.mesh_shape, pending)
    )


@lru_cache(maxsize=1024)
def _embedding_product(x: Layout, w: Layout) -> _Product:
    """Plan the selection of rows of w (rows, columns) by the indices x."""
    rows, columns = w.cuts
    free = {m for m, p in enumerate(w.placements) if isinstance(p, Replicate)}
    batch = [_kept(cut, free) for cut in x.cuts]
    operand = Layout.from_cuts(batch, x.mesh_shape)
    pending = dict.fromkeys(rows.mesh_dims, _SUM)
    return _Product(operand, (), Layout.from_cuts([*batch, columns], x.mesh_shape, pending))


@lru_cache(maxsize=1024)
def _transposed(layout: Layout) -> Layout:
    return Layout.from_cuts(layout.cuts[::-1], layout.mesh_shape)


def linear(module: Module, x: Activation, want: Sequence[Placement] | None = None) -> Activation:
    """Apply torch.nn.Linear with rows or columns of its weight cut."""
    product = _linear_product(x.layout, placed_of(module)["weight"].layout)
    x = x.placed(product.operand).pended(product.spread)
    return _multiplied(module, x, used(module, "weight", alike(x)), product, want)


def conv1d(module: Module, x: Activation, want: Sequence[Placement] | None = None) -> Activation:
    """Apply GPT-2's Conv1D, a Linear with a transposed weight, whose rows are the inputs."""
    product = _linear_product(x.layout, _transposed(placed_of(module)["weight"].layout))
    x = x.placed(product.operand).pended(product.spread)
    return _multiplied(module, x, used(module, "weight", alike(x)).t(), product, want)


def _multiplied(
    module: Module,
    x: Activation,
    weight: Tensor,
    product: _Product,
    want: Sequence[Placement] | None,
) -> Activation:
    """Multiply an operand in the required layout by a weight, and add the bias."""
    if not product.result.partials:
        bias = _bias(module, x, product.result)
        return x.like(functional.linear(x.local, weight, bias), product.result)
    result = _settled(x.like(functional.linear(x.local, weight), product.result), want)
    bias = _bias(module, result, result.layout)
    if bias is None:
        return result
    return result.like(result.local + bias.to(result.dtype))  # autocast: the dtypes may differ


def _bias(module: Module, x: Activation, result: Layout) -> Tensor:
    """Return the bias, cut like the last dimension of the result; None if the layer has no bias."""
    if module.bias is None:
        return None
    return used(module, "bias", alike(x), _last_dim(result))


@lru_cache(maxsize=1024)
def _last_dim(layout: Layout) -> Layout:
    """Return the layout of a tensor with the last dimension only."""
    return Layout.from_cuts([layout.cuts[-1]], layout.mesh_shape)


@lru_cache(maxsize=1024)
def _finished(layout: Layout) -> Layout:
    """Return the layout with its pending sums carried out."""
    return layout.settled()


def _settled(x: Activation, want: Sequence[Placement] | None) -> Activation:
    """Carry out pending sums: to `want` if it is one shard, else to a replicated result."""
    if want is not None and len(want) == 1 and isinstance(want[0], Shard):
        return x.redistribute(want)
    return x.placed(_finished(x.layout))


def embedding(module: Module, x: Activation, want: Sequence[Placement] | None = None) -> Activation:
    """Apply torch.nn.Embedding with rows or columns of its table cut."""
    table = placed_of(module)["weight"].layout
    product = _embedding_product(x.layout, table)
    x = x.placed(product.operand)
    weight = used(module, "weight", alike(x))
    if not product.result.partials:
        found = functional.embedding(x.local, weight, module.padding_idx)
        return x.like(found, product.result)
    start, stop = table.section(x.mesh.coords)[0]
    found = _rows_here(x.local, weight, module, start, stop)
    return _settled(x.like(found, product.result), want)


def _rows_here(index: Tensor, weight: Tensor, module: Module, start: int, stop: int) -> Tensor:
    """Look up the rows of this rank; the results for rows of other ranks are zeros."""
    index = _checked(index, module.num_embeddings)
    if start == stop:  # a rank without rows still takes part in later communication
        shape = (*index.shape, weight.shape[1])
        return weight.new_zeros(shape) + weight.sum() * 0
    padding = module.padding_idx
    here = (index >= start) & (index < stop)
    local = torch.where(here, index - start, 0)
    own = padding - start if padding is not None and start <= padding < stop else None
    found = functional.embedding(local, weight, own)
    return found.masked_fill(~here.unsqueeze(-1), 0)  # multiplication would compute 0 * inf


@conversation(lambda index, count: Like(index.shape, index.dtype))
def _checked(index: Tensor, count: int) -> Tensor:
    """Raise torch's IndexError for an index that no rank has, whose row would come out as zeros."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= count):
        raise IndexError(
            f"index out of range: the embedding has {count} rows, the indices lie between "
            f"{int(index.min())} and {int(index.max())}"
        )
    return index


# -- norms -------------------------------------------------------------------------------------


def _norm(function: Callable[..., Tensor], names: Sequence[str]) -> Rule:
    """Make the rule of a norm over the last dimensions, which must be whole."""

    def rule(module: Module, x: Activation, want: Sequence[Placement] | None = None) -> Activation:
        shape = module.normalized_shape
        over = range(x.ndim - len(shape), x.ndim)
        x = x.placed(_finished(x.layout).without_cut(over))
        parts = [used(module, name, alike(x), _whole(module, name)) for name in names]
        return x.like(function(x.local, shape, *parts, module.eps))

    return rule


def _whole(module: Module, name: str) -> Layout | None:
    placed = placed_of(module).get(name)
    if placed is None:
        return None
    return Layout.replicated(placed.layout.shape, placed.layout.mesh_shape)


_RULES: dict[type, Rule] = {
    torch.nn.Linear: linear,
    torch.nn.Embedding: embedding,
    torch.nn.LayerNorm: _norm(functional.layer_norm, ("weight", "bias")),
}
if hasattr(torch.nn, "RMSNorm"):
    _RULES[torch.nn.RMSNorm] = _norm(functional.rms_norm, ("weight",))


def rule_of(module: Module) -> Rule | None:
    """Return the rule of a module's class, or of the base class that defines its ``forward``."""
    if _is_conv1d(module):
        return conv1d
    for kind in type(module).__mro__:
        if kind in _RULES and type(module).forward is kind.forward:  # type: ignore[attr-defined]
            return _RULES[kind]
    return None


def _is_conv1d(module: Module) -> bool:
    """Return True for Conv1D of the library transformers, which need not be installed."""
    weight = getattr(module, "weight", None)
    named = type(module).__name__ == "Conv1D" and hasattr(module, "nf")
    return named and isinstance(weight, Tensor) and weight.ndim == 2


# -- installation of rules in modules ----------------------------------------------------------


def mark(module: Module) -> None:
    """Attach a hook that does nothing, so that torch takes no fused inference path.

    Fused paths read the weights without calling the modules that own them.
    """
    if not any(hook is _nothing for hook in module._forward_pre_hooks.values()):
        module.register_forward_pre_hook(_nothing)


def take_over(module: Module, call: Callable[..., Any], *how: Any) -> None:
    """Replace a module's forward by ``call(module, *how, forward, ...)``."""
    mark(module)
    forward = module.forward
    if isinstance(forward, Forward) and forward.function is call:
        forward = forward.how[-1]  # replace an earlier replacement, rather than wrapping it
    module.forward = Forward(call, module, *how, forward)


def _nothing(module: Module, args: tuple[Any, ...]) -> None:
    return None


def install(module: Module, mesh: DeviceMesh) -> None:
    """Make a module with placed parameters compute the same results as with whole ones."""
    read = [module, *_read_by(module)]
    cut = any(not how.layout.is_replicated for part in read for how in placed_of(part).values())
    rule = rule_of(module) if "weight" in module._parameters else None  # no computed weight
    if rule is not None:
        module.forward = Forward(_by_rule, module, rule, mesh, module.forward if not cut else None)
    elif cut:
        if isinstance(module, torch.nn.RNNBase):
            raise TypeError(
                f"{type(module).__name__} keeps its weights in one piece of memory; replicate them"
            )
        module.forward = Forward(_with_whole_parameters, module, module.forward)
    if cut:
        mark(module)


def _read_by(module: Module) -> list[Module]:
    """Return submodules whose parameters a module reads itself, without calling the submodule."""
    kind = torch.nn.MultiheadAttention
    if isinstance(module, kind) and type(module).forward is kind.forward:
        return [module.out_proj]
    return []


@uncompiled
def _by_rule(
    module: Module, rule: Rule, mesh: DeviceMesh, whole: Callable[..., Any] | None, input: Tensor
) -> Any:
    """Apply a layer's rule; a plain tensor counts as replicated, and the result is plain, too."""
    if whole is not None and not is_distributed(input):
        return whole(input)
    with plainly():
        if is_distributed(input):
            return given(rule(module, taken(input)))
        verify_replicas(mesh.group, input, type(module).__name__)
        layout = Layout.replicated(tuple(input.shape), mesh.shape)
        return rule(module, laid_out(input, mesh, layout)).full_tensor()


@uncompiled
def _with_whole_parameters(
    module: Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    end_before_unread(module)

    def plain(x: Any) -> Any:
        return x.full_tensor() if is_distributed(x) else x

    with ExitStack() as stack:
        for part in [module, *_read_by(module)]:
            stack.enter_context(whole_parameters(part))
        return forward(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})


@contextmanager
def whole_parameters(module: Module, apart: Sequence[int] = ()) -> Iterator[None]:
    """Return a context in which a module's own parameters are whole tensors.

    Parameters
    ----------
    module : torch.nn.Module
        The module.
    apart : sequence of int
        Mesh dimensions along which the ranks compute with different data, so that the gradients
        are summed along them.
    """
    names, computed = [], {n: x for n, x in vars(module).items() if type(x) is DistTensor}
    try:
        for name, x in computed.items():  # set by a hook that computes them from cut parameters
            grads = [_SUM if m in apart else Replicate() for m in range(x.mesh.ndim)]
            module.__dict__[name] = x.full_tensor(grad_placements=grads)
        for name, placed in placed_of(module).items():
            if module._parameters.get(name) is None:
                continue
            same = [m for m in range(len(placed.mesh.shape)) if m not in apart]
            with plainly():
                tensor = used(module, name, same, _whole(module, name))
            module.__dict__[name] = tensor  # looked up before the registered parameter
            names.append(name)
        yield
    finally:
        for name in names:
            del module.__dict__[name]
        module.__dict__.update(computed)
