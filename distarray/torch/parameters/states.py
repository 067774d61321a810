"""The state of a distributed module as arrays over the memory of its parameters."""

from collections.abc import Iterator

from torch import Tensor
from torch.nn import Module

from distarray.array import DistArray, wrap
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.comm.group import Group
from distarray.errors import LayoutError, MeshError
from distarray.torch.parameters.buffers import equalize_buffers
from distarray.torch.parameters.distribute import names_of, owned
from distarray.torch.parameters.placed import Placed, placed_of

__all__ = ["module_state"]


def module_state(module: Module, mesh: DeviceMesh | None = None) -> dict[str, DistArray]:
    """Return a module's parameters and persistent buffers as distributed arrays over their memory.

    Parameters
    ----------
    module : torch.nn.Module
        A module that `distribute_module` or `parallelize_module` has distributed.
    mesh : DeviceMesh, optional
        A larger mesh with named dimensions, which contains the parameters' meshes; for example, the
        mesh of a model that is parallel on ``mesh["tp"]``. The arrays are then on this mesh,
        replicated along its other dimensions.

    Returns
    -------
    dict of str to DistArray
        The keys are those of ``module.state_dict()``. On the CPU nothing is copied: a change of the
        parameter also changes the array, and vice versa. From a device each call copies once.

    Raises
    ------
    ValueError
        If the module is not distributed.
    RuntimeError
        If an array from an earlier call is still in use and its parameter has other memory by now
        (``p.data = ...``); on all ranks.

    Cost
    ----
    One allreduce of an integer, to agree that no rank has an error; one broadcast of each buffer
    that a forward in training has changed since the last backward pass.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> model = dt.distribute_module(torch.nn.Linear(3, 2))
    >>> state = dt.module_state(model)
    >>> state["weight"].shape
    (2, 3)
    >>> state["bias"][...] = 1  # in the parameter's memory
    >>> bool((model.bias == 1).all())
    True
    """
    equalize_buffers(module)
    found: dict[str, DistArray] = {}
    error: Exception | None = None
    group: Group | None = None
    for name, tensor, placed in _placed_tensors(module):
        group = placed.mesh.group if group is None else group
        try:
            array = placed.array(name, tensor)
            found[name] = array if mesh is None else wrap(array.block, placed.lifted(mesh), mesh)
        except (LayoutError, MeshError, RuntimeError) as caught:
            error = error or caught
    if group is None:
        raise ValueError(
            f"module_state: this {type(module).__name__} is not distributed; call "
            "distribute_module or parallelize_module first"
        )
    agree(group if mesh is None else mesh.group, error)
    return found


def _placed_tensors(module: Module) -> Iterator[tuple[str, Tensor, Placed]]:
    """Yield name in ``state_dict``, tensor and layout of each distributed parameter and buffer."""
    for path, part in module.named_modules():
        for name in names_of(part):
            placed = placed_of(part).get(name)
            if placed is not None and name not in part._non_persistent_buffers_set:
                yield f"{path}.{name}" if path else name, owned(part, name), placed.around
