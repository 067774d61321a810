"""Layers of experts, each stored whole on one rank: tokens are sent to the expert and back."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn import Module

from distarray.comm import DeviceMesh
from distarray.layout import Cut, Layout, Placement, Replicate, Shard
from distarray.torch.bridge.plain import plainly
from distarray.torch.bridge.transforms import compilation
from distarray.torch.collectives.borders import copy_to, reduce_from
from distarray.torch.collectives.functions import all_to_all
from distarray.torch.collectives.graphs import leave_out
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.modules.handing import ParallelStyle, annotated
from distarray.torch.modules.layers import take_over
from distarray.torch.parameters.distribute import place, whole_shape
from distarray.torch.parameters.placed import placed_of
from distarray.torch.tensor.activations import Activation
from distarray.torch.tensor.between_modules import given, taken

__all__ = ["ExpertParallel"]

Forward = Callable[..., Tensor]


class ExpertParallel(ParallelStyle):
    """Style that divides the experts of a layer, of any number, among the ranks.

    The module has the weights of all its experts in parameters whose first dimension is the number
    of experts. Its forward takes three tensors: the tokens (count, features), for each token the
    indices of its experts (count, k), and their weights (count, k). The layers ``experts`` in the
    models of the library transformers are of this form.

    Parameters
    ----------
    input_layouts : Placement
        ``Replicate()`` (default): every rank has all tokens. Each rank computes those of its own
        experts, and the results are summed. ``Shard(0)``: every rank has its own tokens, any number
        of them. Each token is sent to the ranks of its experts, and the result is sent back.
    use_local_output : bool
        Return a plain tensor (default) or a `DistTensor`. Either has the placement of the tokens.

    Notes
    -----
    An expert index equal to the number of experts means "no expert", as in transformers. Calls with
    other arguments than the three tensors are refused. So are modules that have a buffer with a row
    for each expert: each rank would read the rows of other experts.

    Cost
    ----
    ``Replicate()``: forward one allreduce of the result, backward one of the tokens' gradient and
    one of the weights'. ``Shard(0)``: forward five exchanges (of counts, of expert indices, of
    tokens, of weights, and of results, which are sent back), backward three. A token is sent once
    for each of its experts on other ranks.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> class Experts(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.ones(5, 2, 2))
    ...     def forward(self, tokens, experts, weights):
    ...         each = torch.einsum("tf,tkfg->tkg", tokens, self.weight[experts])
    ...         return (each * weights[..., None]).sum(1)
    >>> layer = dt.parallelize_module(Experts(), distarray.default_mesh(), dt.ExpertParallel())
    >>> layer(torch.ones(1, 2), torch.tensor([[0, 4]]), torch.tensor([[0.25, 0.75]]))
    tensor([[2., 2.]], grad_fn=<ReduceFromBackward>)
    """

    shards = True

    def __init__(
        self, *, input_layouts: Placement | None = None, use_local_output: bool = True
    ) -> None:
        self.input_layouts = Replicate() if input_layouts is None else input_layouts
        if self.input_layouts not in (Replicate(), Shard(0)):
            raise ValueError(
                f"input_layouts is Replicate() or Shard(0), by tokens, not {input_layouts}"
            )
        self.use_local_output = use_local_output

    def check(self, module: Module, mesh: DeviceMesh) -> None:
        """Raise TypeError unless parameters, and no buffers, have a row for each expert."""
        own = _names(module)
        counts = {whole_shape(module, name)[:1] for name in own}
        alone = {*map(id, module.parameters())} == {id(module._parameters[name]) for name in own}
        if len(counts) != 1 or counts == {()} or not alone:
            raise TypeError(
                f"{self!r} is for a module that has the weights of all experts in parameters of "
                f"its own, whose first dimension counts them; {type(module).__name__} has not"
            )
        if any(buffer.shape[:1] in counts for buffer in module.buffers()):
            raise TypeError(
                f"{self!r} cuts parameters between experts, and {type(module).__name__} has a "
                "buffer with a row for each expert; make it a parameter (requires_grad=False)"
            )
        if len(inspect.signature(module.forward).parameters) < 3:
            raise TypeError(
                f"{self!r} is for a module whose forward takes tokens, the numbers of their "
                f"experts, and weights; that of {type(module).__name__} takes fewer"
            )

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Cut the parameters between experts and replace the forward."""
        for name in _names(module):
            layout = Layout.chunked(whole_shape(module, name), mesh.shape, [Shard(0)])
            place(module, name, mesh, layout, src_data_rank)
        take_over(module, _routed, mesh, self)

    def __repr__(self) -> str:
        return f"ExpertParallel(input_layouts={self.input_layouts})"


def _names(module: Module) -> list[str]:
    return [name for name, tensor in module._parameters.items() if tensor is not None]


@uncompiled
def _routed(
    module: Module,
    mesh: DeviceMesh,
    style: ExpertParallel,
    forward: Forward,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if compilation() is not None:
        leave_out(f"{type(module).__name__}, whose experts' numbers say what goes to which rank")
    inputs = args
    if kwargs or len(args) != 3:
        inputs = _three_of(module, inspect.signature(forward).bind(*args, **kwargs))
    tokens, experts, weights = [_local(x, mesh, style.input_layouts) for x in inputs]
    layer = _Layer(module, mesh, forward, placed_of(module)[_names(module)[0]].layout.cuts[0])
    pairs = _paired(experts, weights, layer.cut.extent)
    if isinstance(style.input_layouts, Replicate):
        result = _of_own_experts(layer, tokens, pairs)
    else:
        result = _of_own_tokens(layer, tokens, pairs)
    if style.use_local_output:
        return result
    return given(annotated(result, mesh, style.input_layouts))


def _three_of(module: Module, bound: inspect.BoundArguments) -> tuple[Any, ...]:
    """Return the tokens, the expert indices and the weights; TypeError for other arguments."""
    if len(bound.arguments) != 3 or bound.kwargs:
        raise TypeError(
            f"{type(module).__name__} with divided experts takes tokens, the numbers of their "
            f"experts, and weights, not {', '.join(bound.arguments)}"
        )
    return bound.args


def _local(x: Any, mesh: DeviceMesh, placement: Placement) -> Tensor:
    """Return this rank's part of a distributed input; a plain input unchanged."""
    x = taken(x)
    return x.redistribute([placement]).to_local() if isinstance(x, Activation) else x


# -- tokens and experts ------------------------------------------------------------------------


class _Pairs(NamedTuple):
    """Pairs of a token and one of its experts, sorted by expert.

    Attributes
    ----------
    tokens : Tensor
        Row index of the token.
    experts : Tensor
        Index of the expert.
    weights : Tensor
        Factor for the expert's result.
    """

    tokens: Tensor
    experts: Tensor
    weights: Tensor


def _paired(experts: Tensor, weights: Tensor, count: int) -> _Pairs:
    """Return all pairs, sorted by expert, without those of index `count`, "no expert"."""
    numbers, order = experts.reshape(-1).sort(stable=True)
    order = order[numbers != count]
    tokens = order // max(1, experts.shape[-1])
    return _Pairs(tokens, numbers[numbers != count], weights.reshape(-1)[order])


class _Layer(NamedTuple):
    """Layer with its experts divided among the ranks.

    Attributes
    ----------
    module : Module
        Module with the weights of this rank's experts.
    mesh : DeviceMesh
        One-dimensional.
    forward : callable
        The module's own forward.
    cut : Cut
        Division of the experts among the ranks.
    """

    module: Module
    mesh: DeviceMesh
    forward: Forward
    cut: Cut

    def sizes(self, experts: Tensor) -> list[int] | None:
        """Return the number of pairs for each rank; None if an expert index is out of range.

        ``experts`` are sorted.
        """
        if len(experts) and not 0 <= int(experts[0]) <= int(experts[-1]) < self.cut.extent:
            return None
        starts = [self.cut.interval(rank)[0] for rank in range(self.cut.parts)]
        bounds = torch.tensor(starts[1:], dtype=experts.dtype, device=experts.device)
        ends = [0, *torch.searchsorted(experts, bounds).tolist(), len(experts)]
        return [stop - start for start, stop in pairwise(ends)]

    def refuse(self) -> NoReturn:
        """Raise for expert indices out of range."""
        raise IndexError(
            f"{type(self.module).__name__}: a token's experts are numbered from 0 to "
            f"{self.cut.extent - 1}, and {self.cut.extent} stands for none; on one rank at least "
            "there are other numbers"
        )

    def computed(self, rows: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """Apply this rank's experts to rows, one expert per row."""
        with plainly():
            if not len(rows):  # the gradients of this rank's experts must be zeros, not None
                own = [getattr(self.module, name) for name in _names(self.module)]
                nothing = [x.reshape(-1)[:0].sum() for x in (weights, *own)]
                return rows + torch.stack([x.to(rows.dtype) for x in nothing]).sum()
            first, stop = self.cut.interval(self.mesh.rank)
            with _counting(self.module, stop - first):
                numbers = (experts - first).unsqueeze(1)
                return self.forward(rows, numbers, weights.unsqueeze(1)).to(rows.dtype)


@contextmanager
def _counting(module: Module, here: int) -> Iterator[None]:
    """Set the attribute ``num_experts``, if the module has it, to the number on this rank."""
    known = vars(module).get("num_experts")
    if known is None:
        yield
        return
    try:
        module.num_experts = here
        yield
    finally:
        module.num_experts = known


def _added(results: Tensor, pairs: _Pairs, like: Tensor) -> Tensor:
    """Sum the results of the pairs by token."""
    return torch.zeros_like(like).index_add(0, pairs.tokens, results)


# -- replicated tokens, and tokens of each rank ------------------------------------------------


def _of_own_experts(layer: _Layer, tokens: Tensor, pairs: _Pairs) -> Tensor:
    """Apply the experts to replicated tokens: each rank applies its own, the results are summed."""
    sizes = layer.sizes(pairs.experts)
    if sizes is None:
        layer.refuse()
    mesh = layer.mesh
    start = sum(sizes[: mesh.rank])
    here = slice(start, start + sizes[mesh.rank])
    mine = _Pairs(pairs.tokens[here], pairs.experts[here], copy_to(pairs.weights, mesh)[here])
    tokens = copy_to(tokens, mesh)
    results = layer.computed(tokens[mine.tokens], mine.experts, mine.weights)
    return reduce_from(_added(results, mine, tokens), mesh)


def _of_own_tokens(layer: _Layer, tokens: Tensor, pairs: _Pairs) -> Tensor:
    """Apply the experts of all ranks to this rank's tokens."""
    gone, come = _exchanged_sizes(layer, pairs.experts)
    there = partial(all_to_all, mesh=layer.mesh, split_sizes=gone, concat_sizes=come)
    back = partial(all_to_all, mesh=layer.mesh, split_sizes=come, concat_sizes=gone)
    rows = there(tokens[pairs.tokens])
    results = layer.computed(rows, there(pairs.experts), there(pairs.weights))
    return _added(back(results), pairs, tokens)


def _exchanged_sizes(layer: _Layer, experts: Tensor) -> tuple[list[int], list[int]]:
    """Return the numbers of pairs to send and to receive, by rank; raise on all ranks alike."""
    ranks = layer.mesh.size()
    sizes = layer.sizes(experts)
    gone = [-1] * ranks if sizes is None else sizes
    each = [1] * ranks
    come = all_to_all(torch.tensor(gone), layer.mesh, split_sizes=each, concat_sizes=each).tolist()
    if -1 in gone or -1 in come:
        layer.refuse()
    return gone, come
