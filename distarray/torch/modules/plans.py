"""`parallelize_module`: tensor parallelism by a plan that maps module names to styles."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch.nn import Module

from distarray.comm import DeviceMesh, default_mesh
from distarray.errors import MeshError
from distarray.torch.modules.agreeing import compare_gradients
from distarray.torch.modules.dropout import install_dropout, share_random_numbers
from distarray.torch.modules.handing import ParallelStyle
from distarray.torch.modules.heads import check_heads
from distarray.torch.parameters.checks import agree_on_parameters, check_parameters, owners
from distarray.torch.parameters.distribute import place_rest
from distarray.torch.parameters.placed import placed_as

__all__ = ["parallelize_module"]

Plan = ParallelStyle | Mapping[str, ParallelStyle]
#: A module's name, the module, and the style for it.
Matched = list[tuple[str, Module, ParallelStyle]]


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: Plan | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Make a model tensor-parallel according to a plan.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place. Its parameters stay the same objects, and share their memory with the
        arrays of `module_state`.
    device_mesh : DeviceMesh, optional
        One-dimensional: the default mesh, or a submesh like ``mesh["tp"]`` of a larger one. Ranks
        outside of it leave the module unchanged.
    parallelize_plan : ParallelStyle or mapping of str to ParallelStyle
        A style for the module itself, or styles by submodule name, as in `named_modules`. ``*``,
        ``?`` and ``[...]`` match within a name between two dots: "layers.*.linear".
    src_data_rank : int or None
        The rank of the mesh whose parameter values are used; None: they are equal already.

    Returns
    -------
    torch.nn.Module
        `module`.

    Raises
    ------
    ValueError
        If a name in the plan matches no submodule, on all ranks; nothing has been changed then.
    TypeError
        If a style does not fit its module.
    DivergenceError
        If the ranks pass different modules or plans.

    Notes
    -----
    A submodule that the plan does not name keeps its forward pass. Its parameters and buffers are
    replicated, with the values of rank `src_data_rank`, and its dropout is alike on all ranks.

    Cost
    ----
    One exchange for each parameter.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> plan = {"0": dt.ColwiseParallel(), "2": dt.RowwiseParallel()}
    >>> model = dt.parallelize_module(model, distarray.default_mesh(), plan)
    >>> model(torch.ones(5, 4)).shape
    torch.Size([5, 2])
    >>> dt.module_state(model)["0.weight"].shape
    (8, 4)
    """
    mesh = default_mesh() if device_mesh is None else device_mesh
    if mesh.ndim != 1:
        raise MeshError(
            f"parallelize_module works along one mesh dimension, and {mesh!r} has {mesh.ndim}: "
            f"pass one of them, as in mesh[{(mesh.mesh_dim_names or ('tp',))[-1]!r}]"
        )
    if mesh.coords is None:
        return module
    matched: Matched = []
    error: Exception | None = None
    try:
        matched = _matched(module, mesh, parallelize_plan)
    except (TypeError, ValueError) as caught:
        error = caught
    told = [(name, repr(style)) for name, _, style in matched]
    agree_on_parameters(module, mesh, error, told)
    for _, part, style in matched:
        style.apply(part, mesh, src_data_rank)
    left = [name for name, p in module.named_parameters() if placed_as(p) is None]
    place_rest(module, mesh, src_data_rank)
    compare_gradients(module, left, mesh)
    for part in module.modules():
        install_dropout(part, mesh)
    share_random_numbers(module, mesh)
    return module


def _matched(root: Module, mesh: DeviceMesh, plan: Plan | None) -> Matched:
    """Return the modules and their styles; raise if a style does not fit."""
    call = "parallelize_module"
    if not isinstance(root, torch.nn.Module):
        raise TypeError(f"{call} takes a Module, not {type(root).__name__}")
    if isinstance(plan, ParallelStyle):
        plan = {"": plan}
    if not isinstance(plan, Mapping) or not plan:
        raise TypeError(f"{call}: the plan is a style, or styles by module name, not {plan!r}")
    check_parameters(root, call)
    found: Matched = []
    for key, style in plan.items():
        if not isinstance(style, ParallelStyle):
            raise TypeError(f"{call}: plan[{key!r}] is a ParallelStyle, not {style!r}")
        parts = list(_named(root, key.split(".") if key else [], ""))
        if not parts:
            raise ValueError(_unmatched(root, key))
        for name, part in parts:
            style.check(part, mesh)
            found.append((name, part, style))
    _check_shares(root, found)
    check_heads(found, mesh)
    return found


def _named(module: Module, tokens: list[str], path: str) -> Iterator[tuple[str, Module]]:
    if not tokens:
        yield path, module
        return
    for name, child in module.named_children():
        if fnmatchcase(name, tokens[0]):
            yield from _named(child, tokens[1:], f"{path}.{name}" if path else name)


def _unmatched(root: Module, key: str) -> str:
    names = [name for name, _ in root.named_modules() if name]
    near = get_close_matches(key, names, 3, 0.5) or names[:8]
    return (
        f"parallelize_module: plan[{key!r}] matches no part of this {type(root).__name__}; it has "
        f"{', '.join(near)}{', ...' if len(near) < len(names) else ''}"
    )


def _check_shares(root: Module, matched: Matched) -> None:
    """Raise if two styles cut a module, or if a style cuts only some modules with a parameter."""
    cut: dict[int, str] = {}
    for name, part, style in matched:
        if style.shards:
            if id(part) in cut:
                raise ValueError(f"parallelize_module: two styles of the plan cut {name!r}")
            cut.update({id(inner): name for inner in part.modules()})
    for entries in owners(root).values():
        knowing = [path for path, part, _ in entries if id(part) in cut]
        ignorant = [path for path, part, _ in entries if id(part) not in cut]
        if knowing and ignorant:
            raise ValueError(
                f"parallelize_module: {knowing[0]!r} is cut, and {ignorant[0]!r}, which shares "
                f"its {entries[0][2]}, is not in the plan; give it a style that cuts it alike"
            )
