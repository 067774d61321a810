"""Styles that redistribute a module's inputs and outputs, and cut no weights."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn import Module

from distarray.comm import DeviceMesh
from distarray.layout import Placement
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.modules.forwards import InputHook, OutputHook
from distarray.torch.modules.handing import ParallelStyle, annotated, handed_out
from distarray.torch.tensor.activations import Activation
from distarray.torch.tensor.between_modules import given as handed
from distarray.torch.tensor.between_modules import is_distributed

__all__ = ["PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput"]

#: A placement for each argument or result; a single Placement if there is only one.
PerArgument = Sequence[Placement | None] | Placement | None


def _each(value: PerArgument) -> tuple[Placement | None, ...]:
    return (value,) if value is None or isinstance(value, Placement) else tuple(value)


def _moved(
    x: Any, mesh: DeviceMesh, given: Placement | None, wanted: Placement | None, local: bool
) -> Any:
    if given is None and not is_distributed(x):
        return x
    x = annotated(x, mesh, given)
    if not isinstance(x, Activation):
        return x
    if wanted is None:
        return x.to_local() if local else handed(x)
    return handed_out(x, wanted, local)


def _all_moved(
    module: Module,
    said: str,
    values: tuple[Any, ...],
    mesh: DeviceMesh,
    layouts: tuple[Sequence[Placement | None], Sequence[Placement | None]],
    local: bool,
) -> tuple[Any, ...]:
    """Redistribute values from the first layouts to the second; `said` is for an error message."""
    if len(values) != len(layouts[0]):
        count = said.format(len(values))
        raise ValueError(f"{type(module).__name__} {count} has layouts for {len(layouts[0])}")
    triples = zip(values, *layouts, strict=True)
    return tuple([_moved(x, mesh, a, b, local) for x, a, b in triples])


class PrepareModuleInput(ParallelStyle):
    """Style that declares placements of a module's inputs, and redistributes them as required.

    Parameters
    ----------
    input_layouts : Placement or sequence of (Placement or None)
        One for each positional argument; None for arguments that are left unchanged.
    desired_input_layouts : Placement or sequence of (Placement or None)
        The placements that the module requires; equally many.
    input_kwarg_layouts, desired_input_kwarg_layouts : mapping of str to Placement
        The same for keyword arguments.
    use_local_output : bool
        Pass plain tensors to the module, or `DistTensor` (default). With `DistTensor` the gradients
        of several layers with the same input are summed before they are sent.

    Cost
    ----
    One redistribution of each tensor whose two placements differ, and one of its gradient.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> style = dt.PrepareModuleInput(
    ...     input_layouts=distarray.Shard(0),
    ...     desired_input_layouts=distarray.Replicate(),
    ...     use_local_output=True,
    ... )
    >>> total = dt.parallelize_module(torch.nn.Flatten(0), mesh, style)
    >>> total(torch.ones(2, 3)).shape == (6 * mesh.size(),)
    True
    """

    def __init__(
        self,
        *,
        input_layouts: PerArgument = None,
        desired_input_layouts: PerArgument = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = None if input_layouts is None else _each(input_layouts)
        wanted = None if desired_input_layouts is None else _each(desired_input_layouts)
        self.desired_input_layouts = wanted
        self.input_kwarg_layouts = dict(input_kwarg_layouts or {})
        self.desired_input_kwarg_layouts = dict(desired_input_kwarg_layouts or {})
        self.use_local_output = use_local_output
        if len(self.input_layouts or ()) != len(wanted or ()):
            raise ValueError(
                f"PrepareModuleInput: {len(self.input_layouts or ())} input_layouts and "
                f"{len(wanted or ())} desired_input_layouts; one of each an argument"
            )
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise ValueError(
                "PrepareModuleInput: input_kwarg_layouts and desired_input_kwarg_layouts name "
                "different arguments"
            )

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Attach a hook that redistributes the inputs."""
        module.register_forward_pre_hook(InputHook(_prepare, module, mesh, self), with_kwargs=True)


@uncompiled
def _prepare(
    module: Module,
    mesh: DeviceMesh,
    style: PrepareModuleInput,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if style.input_layouts is not None and style.desired_input_layouts is not None:
        said = "was called with {} positional arguments; PrepareModuleInput"
        layouts = style.input_layouts, style.desired_input_layouts
        args = _all_moved(module, said, args, mesh, layouts, style.use_local_output)
    kwargs = dict(kwargs)
    for name, given in style.input_kwarg_layouts.items():
        if name in kwargs:
            wanted = style.desired_input_kwarg_layouts[name]
            kwargs[name] = _moved(kwargs[name], mesh, given, wanted, style.use_local_output)
    return args, kwargs


class PrepareModuleOutput(ParallelStyle):
    """Style that declares placements of a module's outputs, and redistributes them as required.

    Parameters
    ----------
    output_layouts : Placement or sequence of (Placement or None)
        One for each output; None for outputs that are left unchanged.
    desired_output_layouts : Placement or sequence of (Placement or None)
        The required placements; equally many.
    use_local_output : bool
        Return plain tensors (default) or `DistTensor`.

    Cost
    ----
    Equal to that of `PrepareModuleInput`.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> style = dt.PrepareModuleOutput(
    ...     output_layouts=distarray.Shard(0), desired_output_layouts=distarray.Replicate()
    ... )
    >>> model = dt.parallelize_module(torch.nn.ReLU(), mesh, style)
    >>> model(torch.ones(2, 3)).shape == (2 * mesh.size(), 3)
    True
    """

    def __init__(
        self,
        *,
        output_layouts: PerArgument,
        desired_output_layouts: PerArgument,
        use_local_output: bool = True,
    ) -> None:
        self.output_layouts = _each(output_layouts)
        self.desired_output_layouts = _each(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise ValueError(
                f"PrepareModuleOutput: {len(self.output_layouts)} output_layouts and "
                f"{len(self.desired_output_layouts)} desired_output_layouts; one of each an output"
            )

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Attach a hook that redistributes the outputs."""
        module.register_forward_hook(OutputHook(_finish, module, mesh, self))


@uncompiled
def _finish(module: Module, mesh: DeviceMesh, style: PrepareModuleOutput, output: Any) -> Any:
    several = isinstance(output, tuple)
    outputs = output if several else (output,)
    said = "has {} outputs; PrepareModuleOutput"
    layouts = style.output_layouts, style.desired_output_layouts
    moved = _all_moved(module, said, outputs, mesh, layouts, style.use_local_output)
    return moved if several else moved[0]


class PrepareModuleInputOutput(ParallelStyle):
    """Combination of `PrepareModuleInput` and `PrepareModuleOutput`, with the parameters of both.

    `use_local_input` is the `use_local_output` of `PrepareModuleInput`.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> rows, whole = distarray.Shard(0), distarray.Replicate()
    >>> style = dt.PrepareModuleInputOutput(
    ...     input_layouts=rows, desired_input_layouts=whole, use_local_input=True,
    ...     output_layouts=whole, desired_output_layouts=rows,
    ... )
    >>> softmax = dt.parallelize_module(torch.nn.Softmax(0), mesh, style)  # over all ranks' rows
    >>> part = softmax(torch.ones(2, 3))
    >>> torch.allclose(part, torch.full((2, 3), 0.5 / mesh.size()))
    True
    """

    def __init__(
        self,
        *,
        input_layouts: PerArgument = None,
        desired_input_layouts: PerArgument = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: PerArgument,
        desired_output_layouts: PerArgument,
        use_local_output: bool = True,
    ) -> None:
        self._inputs = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self._outputs = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None) -> None:
        """Attach both hooks."""
        self._inputs.apply(module, mesh, src_data_rank)
        self._outputs.apply(module, mesh, src_data_rank)
