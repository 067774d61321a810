"""Parallel styles: the cut of one module of a tensor-parallel model, and its input's placement."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import Tensor
from torch.nn import Module

from distarray.comm import DeviceMesh
from distarray.errors import LayoutError
from distarray.layout import Cut, Layout, Placement, Replicate, Shard
from distarray.torch.bridge.plain import plainly
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.modules.dropout import is_dropout, parallel_dropout
from distarray.torch.modules.forwards import Forward, end_before_unread
from distarray.torch.modules.handing import ParallelStyle, annotated, handed_out
from distarray.torch.modules.layers import (
    Rule,
    conv1d,
    cut_in_units,
    embedding,
    linear,
    mark,
    rule_of,
    take_over,
    whole_parameters,
)
from distarray.torch.parameters.distribute import place, whole_shape
from distarray.torch.parameters.placed import placed_of
from distarray.torch.tensor.activations import Activation
from distarray.torch.tensor.between_modules import given, is_distributed

__all__ = ["ColwiseParallel", "DropoutParallel", "RowwiseParallel", "SequenceParallel"]


# -- weights cut -------------------------------------------------------------------------------


class _Weights(ParallelStyle):
    """Common base of ColwiseParallel and RowwiseParallel."""

    shards = True

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
        multiple_of: int = 1,
    ) -> None:
        if multiple_of < 1:
            raise ValueError(f"multiple_of is at least 1, not {multiple_of}")
        self.input_layouts, self.output_layouts = input_layouts, output_layouts
        self.use_local_output, self.multiple_of = use_local_output, multiple_of

    #: Dimension of the weight to cut: of a Linear; of an Embedding or of GPT-2's Conv1D.
    _dims: tuple[int, int]
    #: True if this is the dimension of the outputs, which a bias has as well.
    _cuts_outputs: bool
    _default_input: Placement
    _default_output: Placement

    def check(self, module: Module, mesh: DeviceMesh) -> None:
        """Raise TypeError for modules other than Linear, Conv1D of transformers and Embedding."""
        rule = rule_of(module)
        if rule not in (linear, conv1d, embedding):
            raise TypeError(
                f"{self!r} is for torch.nn.Linear and torch.nn.Embedding, not for "
                f"{type(module).__name__}; a plan names the layers inside of it"
            )
        if rule is embedding:
            odd = [n for n in ("max_norm", "scale_grad_by_freq", "sparse") if getattr(module, n)]
            if odd:
                raise TypeError(f"{self!r}: an Embedding with {odd[0]}= cannot be cut")
        if module._parameters.get("weight") is None:
            raise TypeError(
                f"{self!r}: this {type(module).__name__} computes its weight (a parametrization, "
                "pruning); torch.nn.utils.parametrize.remove_parametrizations makes it a parameter"
            )
        extent = module.weight.shape[self.dim_of(module)]
        known = placed_of(module).get("weight")
        if known is None and extent % self.multiple_of:
            raise LayoutError(
                f"{self!r}: {extent} is no multiple of multiple_of={self.multiple_of}"
            )

    def dim_of(self, module: Module) -> int:
        """Return the dimension of a module's weight to cut."""
        return self._dims[rule_of(module) is not linear]

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Cut the weight (and a bias along the same dimension) and replace the forward."""
        dim = self.dim_of(module)
        for name in ("weight", "bias"):
            tensor = module._parameters.get(name)
            if tensor is None:
                continue
            layout = Layout.replicated(whole_shape(module, name), mesh.shape)
            if name == "weight" or self._cuts_outputs:
                at = dim if name == "weight" else 0
                units = layout.shape[at] // self.multiple_of
                layout = layout.replace(at, cut_in_units(units, self.multiple_of, mesh))
            place(module, name, mesh, layout, src_data_rank)
        mark(module)
        rule = rule_of(module) or embedding
        given = Replicate() if rule is embedding else self._default_input
        given = self.input_layouts or given
        given_out = self.output_layouts or self._default_output
        columns = _columns(module, rule, mesh)
        module.forward = Forward(
            _weighted, module, mesh, rule, given, given_out, columns, self.use_local_output
        )


def _columns(module: Module, rule: Rule, mesh: DeviceMesh) -> Cut | None:
    """Return the cut that the last dimension of a layer's input has if it is cut."""
    if rule is embedding:
        return None
    columns = placed_of(module)["weight"].layout.cuts[rule is linear]
    return columns if columns.mesh_dims else Cut.chunked(columns.extent, (0,), mesh.shape)


@uncompiled
def _weighted(
    module: Module,
    mesh: DeviceMesh,
    rule: Rule,
    given: Placement,
    wanted: Placement,
    columns: Cut | None,
    local: bool,
    input: Tensor | Activation,
) -> Any:
    with plainly():
        x = annotated(input, mesh, given, columns)
        return handed_out(rule(module, x, (wanted,)), wanted, local)


class ColwiseParallel(_Weights):
    """Style that cuts a layer's output: rows of a Linear's weight, columns of an Embedding's.

    Parameters
    ----------
    input_layouts : Placement, optional
        Placement of a plain input; ``Replicate()`` by default.
    output_layouts : Placement, optional
        Placement of the output; by default ``Shard(-1)``, as it is computed.
    use_local_output : bool
        Return this rank's part as a plain tensor (default) or a `DistTensor`.
    multiple_of : int
        Cut only between multiples of this number of features. With the size of an attention head,
        ranks have whole heads, also if the ranks do not divide the number of heads.

    Cost
    ----
    Forward none, backward one allreduce of the input's gradient, if it has one; plus the
    redistribution of the input and the output.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> layer = dt.parallelize_module(torch.nn.Linear(4, 6), mesh, dt.ColwiseParallel())
    >>> part = layer(torch.ones(5, 4))  # this rank's columns of the output
    >>> dt.gather_from(part, mesh, dim=-1).shape
    torch.Size([5, 6])
    """

    _dims = (0, 1)
    _cuts_outputs = True
    _default_input: Placement = Replicate()
    _default_output: Placement = Shard(-1)


class RowwiseParallel(_Weights):
    """Style that cuts a layer's input: columns of a Linear's weight, rows of an Embedding's.

    Parameters
    ----------
    input_layouts : Placement, optional
        Placement of a plain input; ``Shard(-1)`` by default, for an Embedding ``Replicate()``.
    output_layouts : Placement, optional
        Placement of the output; ``Replicate()`` by default. With ``Shard(1)`` each rank gets a part
        of the sequence.
    use_local_output : bool
        Return this rank's part as a plain tensor (default) or a `DistTensor`.
    multiple_of : int
        See `ColwiseParallel`.

    Cost
    ----
    Forward one allreduce of the output (a reduce-scatter, if the output is to be cut), backward
    none (an allgather); plus the redistribution of the input.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> table = dt.parallelize_module(torch.nn.Embedding(10, 4), mesh, dt.RowwiseParallel())
    >>> table(torch.tensor([1, 7])).shape
    torch.Size([2, 4])
    >>> dt.module_state(table)["weight"].placements
    (Shard(0),)
    """

    _dims = (1, 0)
    _cuts_outputs = False
    _default_input: Placement = Shard(-1)
    _default_output: Placement = Replicate()


# -- activations cut ---------------------------------------------------------------------------


class SequenceParallel(ParallelStyle):
    """Style that runs a norm, dropout or other token-by-token module on a part of the sequence.

    Parameters
    ----------
    sequence_dim : int
        The dimension of the activations to cut; 1 by default.
    use_local_output : bool
        Return a plain tensor, or a `DistTensor` (default).

    Notes
    -----
    The parameters are replicated, with rank `src_data_rank`'s values.

    Cost
    ----
    Forward none if the input is a `DistTensor`; backward one allreduce of each parameter's
    gradient.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> norm = dt.parallelize_module(torch.nn.LayerNorm(4), mesh, dt.SequenceParallel())
    >>> tokens = torch.ones(2, 3, 4)  # this rank's 3 tokens of 2 texts
    >>> norm(tokens).shape == (2, 3 * mesh.size(), 4)
    True
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_dim, self.use_local_output = sequence_dim, use_local_output

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Replicate the parameters and replace the forward."""
        for part in module.modules():
            for name, tensor in part._parameters.items():
                if tensor is not None:
                    layout = Layout.replicated(whole_shape(part, name), mesh.shape)
                    place(part, name, mesh, layout, src_data_rank)
        take_over(module, _by_token, mesh, self)

    def __repr__(self) -> str:
        return f"SequenceParallel(sequence_dim={self.sequence_dim})"


@uncompiled
def _by_token(
    module: Module,
    mesh: DeviceMesh,
    style: SequenceParallel,
    forward: Callable[..., Any],
    input: Tensor | Activation,
) -> Any:
    placement = Shard(style.sequence_dim)
    x = annotated(input, mesh, placement)
    x = x.redistribute([placement])
    rule = rule_of(module)
    if is_dropout(module):
        x = parallel_dropout(module, x)
    elif rule is not None and rule is not linear and rule is not embedding:
        with plainly():
            x = rule(module, x)
    else:
        return _apart(module, forward, x, style.use_local_output)
    return x.to_local() if style.use_local_output else given(x)


def _apart(module: Module, forward: Callable[..., Any], x: Activation, local: bool) -> Any:
    """Run any module on this rank's part; the gradients of its parameters are summed."""
    end_before_unread(module)
    with ExitStack() as stack:
        for part in module.modules():
            stack.enter_context(whole_parameters(part, apart=(0,)))
        result = forward(x.to_local())
    if local:
        return result
    if isinstance(result, (list, tuple)):
        return type(result)([given(_along(x, y)) for y in result])
    return given(_along(x, result))


def _along(x: Activation, result: Tensor) -> Activation:
    """Return a result for this rank's part as a distributed tensor, cut like the input."""
    if tuple(result.shape) == tuple(x.local.shape):
        return x.like(result)
    return Activation.from_local(result, x.mesh, x.placements)


class DropoutParallel(ParallelStyle):
    """Style for dropout on activations of a given placement, with results independent of the ranks.

    The global index of an element decides whether it is dropped, not the rank that holds it.
    Dropout modules that no plan names treat plain activations as replicated.

    Parameters
    ----------
    input_layouts : Placement
        Placement of a plain input; ``Shard(-1)`` between a `ColwiseParallel` and a
        `RowwiseParallel` layer.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> style = dt.DropoutParallel(distarray.Shard(0))
    >>> dropout = dt.parallelize_module(torch.nn.Dropout(0.5), mesh, style)
    >>> dt.manual_seed(7, mesh)
    >>> part = dropout(dt.scatter_to(torch.ones(8), mesh))
    >>> dt.gather_from(part, mesh)
    tensor([0., 0., 2., 0., 0., 0., 2., 0.])
    """

    def __init__(self, input_layouts: Placement = Shard(-1)) -> None:  # noqa: B008  immutable
        self.input_layouts = input_layouts

    def check(self, module: Module, mesh: DeviceMesh) -> None:
        """Raise TypeError for anything but dropout."""
        if not is_dropout(module):
            raise TypeError(f"DropoutParallel is for torch.nn.Dropout, not {type(module).__name__}")

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Replace the forward."""
        module.forward = Forward(_dropped, module, mesh, self.input_layouts)


@uncompiled
def _dropped(
    module: Module, mesh: DeviceMesh, placement: Placement, input: Tensor | Activation
) -> Any:
    if not module.training or module.p == 0:
        return input
    x = parallel_dropout(module, annotated(input, mesh, placement))
    return given(x) if is_distributed(input) else x.to_local()
