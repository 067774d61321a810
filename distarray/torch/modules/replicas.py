"""Data parallel: replicas of a module whose gradients are averaged while they are computed.

Every rank along a mesh dimension runs the same module on its own part of the batch. During the
backward pass the gradients are packed into buckets in the order in which they come, last layers
first; a bucket that is full is averaged by an allreduce that goes on while the pass goes on. At
the end of the pass every rank has the same gradients, bit for bit, and so every optimizer makes
the same step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.nn import Module

from distarray.array.divergence import verify_among
from distarray.comm.mesh import DeviceMesh
from distarray.config import config
from distarray.torch.bridge.plain import plainly
from distarray.torch.collectives.functions import Work, all_reduce_
from distarray.torch.collectives.passes import (
    at_end_of_backward,
    in_backward,
    tensors_in,
    uncompiled,
)
from distarray.torch.parameters.alike import agree_alike, line_of, take_over
from distarray.torch.parameters.buffers import Buffers
from distarray.torch.parameters.checks import check_apart, check_parameters, check_replicas
from distarray.torch.parameters.distribute import place_rest, surround
from distarray.torch.parameters.placed import AVERAGED

__all__ = ["data_parallel", "no_sync"]


#: The bucket that is full first is small, so that the first allreduce begins early.
FIRST_BUCKET = 1 << 20


def data_parallel(
    module: Module,
    mesh: DeviceMesh | None = None,
    mesh_dim: int | str | None = None,
    *,
    fold: str = "avg",
    bucket_bytes: int = 25 << 20,
    src_data_rank: int | None = 0,
    broadcast_buffers: bool = True,
) -> Module:
    """Average a module's gradients over a dimension of a mesh, from now on.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place. It may be tensor-parallel already, along another mesh dimension.
    mesh : DeviceMesh, optional
        By default all ranks.
    mesh_dim : int or str, optional
        The dimension along which the ranks have different parts of the batch; it can be left out
        where the mesh has one dimension.
    fold : {"avg", "sum"}
        The mean of the ranks' gradients, for losses that are means over equal parts of the batch;
        or their sum, for losses that are divided by the size of the whole batch, as they should
        be where the parts differ in size.
    bucket_bytes : int
        Bytes of gradients that are averaged at once.
    src_data_rank : int or None
        Coordinate along `mesh_dim` whose parameters and buffers the others take over. None says
        that they are equal already; nothing is sent then.
    broadcast_buffers : bool
        Take buffers (running statistics) over from coordinate 0 at the end of each backward pass
        that follows a forward in training, and before the next forward where none did.

    Returns
    -------
    torch.nn.Module
        `module`.

    Raises
    ------
    ValueError
        If `fold` is another one, `bucket_bytes` is not positive, or the module is data-parallel
        already, or cut over the same ranks; on every rank.

    Cost
    ----
    One broadcast for each parameter and buffer now; then one allreduce a bucket and one broadcast
    a buffer in each backward pass. Gradients are copied once, into their bucket, and are views of
    it afterwards.

    Notes
    -----
    All ranks must run the backward pass. A parameter that no rank used keeps its gradient (None,
    in general); one that some ranks used gets the average, zero counting for the others.
    ``torch.autograd.grad`` returns the rank's own gradients. A deep copy is a module of this rank
    alone, as averages of a model over its steps are; to be trained, it is given to this again.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> model = dt.data_parallel(torch.nn.Linear(2, 1, bias=False), mesh)
    >>> model(torch.full((1, 2), float(mesh.rank))).sum().backward()
    >>> bool((model.weight.grad == (mesh.size() - 1) / 2).all())  # the mean of all ranks
    True
    """
    mesh, _, line = line_of("data_parallel", mesh, mesh_dim)
    if mesh.coords is None:
        return module
    group, error = line.group, None
    try:
        _check(module, fold, bucket_bytes)
        check_apart(module, "data_parallel", set(group.world_ranks), True)
    except (TypeError, ValueError) as caught:
        error = caught
    parameters = [] if error else list(module.parameters())
    agree_alike("data_parallel", group, error, parameters, (fold, bucket_bytes, src_data_rank))
    if src_data_rank is not None:
        take_over([*parameters, *module.buffers()], group, src_data_rank)
    place_rest(module, mesh, None)
    surround(module, mesh)
    for parameter in parameters:
        setattr(parameter, AVERAGED, set(group.world_ranks))
    averager = _Averager(module, line, fold, bucket_bytes, broadcast_buffers)
    _AVERAGERS[module] = averager
    if group.size > 1:
        averager.attach(module)
    return module


@contextmanager
def no_sync(module: Module) -> Iterator[None]:
    """Backward passes inside the block accumulate this rank's own gradients.

    The next pass outside averages what has accumulated, so that several small batches cost one
    allreduce.

    Parameters
    ----------
    module : torch.nn.Module
        One given to :func:`data_parallel`.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> model = dt.data_parallel(torch.nn.Linear(2, 1, bias=False), mesh)
    >>> batch = torch.full((1, 2), float(mesh.rank))
    >>> with dt.no_sync(model):
    ...     model(batch).sum().backward()
    >>> model(batch).sum().backward()
    >>> bool((model.weight.grad == mesh.size() - 1).all())  # the mean of both passes' sums
    True
    """
    averager = _AVERAGERS.get(module)
    if averager is None:
        raise ValueError(f"no_sync: {type(module).__name__} is not data-parallel: data_parallel it")
    averager.paused += 1
    try:
        yield
    finally:
        averager.paused -= 1


def _check(module: Module, fold: str, bucket_bytes: int) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"data_parallel takes a torch.nn.Module, not {type(module).__name__}")
    if fold not in ("avg", "sum"):
        raise ValueError(f"data_parallel: fold is 'avg' or 'sum', not {fold!r}")
    if bucket_bytes <= 0:
        raise ValueError(f"data_parallel: bucket_bytes is a positive number, not {bucket_bytes}")
    check_parameters(module, "data_parallel")
    check_replicas(module, "data_parallel")
    for name, part in module.named_modules():
        if part in _AVERAGERS:
            raise ValueError(
                f"data_parallel: {name or 'the module'} is data-parallel already; its gradients "
                "would be averaged twice"
            )


class _Bucket:
    """Gradients of one dtype and device that are averaged together."""

    __slots__ = ("awaited", "flat", "parameters", "size", "work")

    def __init__(self) -> None:
        self.parameters: list[Tensor] = []
        self.size = 0
        self.awaited: set[int] = set()
        self.flat: Tensor = None
        self.work: Work | None = None

    def add(self, parameter: Tensor) -> None:
        """Take a parameter into the bucket."""
        self.parameters.append(parameter)
        self.size += parameter.numel() * parameter.element_size()
        self.awaited.add(id(parameter))

    def begin(self, mesh: DeviceMesh) -> None:
        """Pack the gradients and flags of which are there, and begin to sum them up."""
        grads = [p.grad for p in self.parameters]
        first = self.parameters[0]
        have = first.new_tensor([grad is not None for grad in grads])
        parts = [
            parameter.new_zeros(parameter.numel()) if grad is None else grad.reshape(-1)
            for parameter, grad in zip(self.parameters, grads)
        ]
        self.flat = torch.cat([*parts, have])
        self.work = all_reduce_(self.flat, mesh, async_op=True)

    def take(self, ranks: int) -> None:
        """Wait for the sums; the gradients are views of their mean."""
        assert self.work is not None
        self.work.wait()
        count = len(self.parameters)
        have = self.flat[-count:].tolist()
        sums = self.flat[:-count].div_(ranks).split([p.numel() for p in self.parameters])
        for parameter, owners, part in zip(self.parameters, have, sums):
            if owners:
                parameter.grad = part.view(parameter.shape)
        self.flat = self.work = None
        self.awaited = set(map(id, self.parameters))


class _Averager:
    """The buckets, hooks and state of one data-parallel module."""

    def __init__(
        self,
        module: Module,
        mesh: DeviceMesh,
        fold: str,
        bucket_bytes: int,
        broadcast_buffers: bool,
    ) -> None:
        self.mesh, self.group = mesh, mesh.group
        self.fold, self.bucket_bytes = fold, bucket_bytes
        self.buffers = Buffers(module, mesh.group, every=True) if broadcast_buffers else None
        self.module = ref(module)
        self.find()
        self.watched: dict[int, Tensor] = {}
        self.buckets: list[_Bucket] = []
        self.bucket_of: dict[int, _Bucket] = {}
        self.paused = 0
        self.begun = 0
        #: Of each parameter whose gradient has arrived, by its id, its version then.
        self.versions: dict[int, int] = {}
        self.passing = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Averager":
        return self  # its hooks do nothing in a copy of the module, which is no replica

    def find(self) -> None:
        """Find the module's parameters, and the places where they stand."""
        module = self.module()
        assert module is not None
        self.parameters = list(module.parameters())
        self.places = [
            (part._parameters, name, parameter)
            for part in module.modules()
            for name, parameter in part._parameters.items()
        ]

    def attach(self, module: Module) -> None:
        """Hang hooks on the module and on its parameters."""
        self.watch()
        module.register_forward_pre_hook(self.before_forward)
        module.register_forward_hook(self.after_forward)

    def watch(self) -> None:
        """Put hooks on parameters that have become trainable, and fill the buckets anew."""
        with plainly():
            for parameter in self.parameters:
                if parameter.requires_grad and id(parameter) not in self.watched:
                    self.watched[id(parameter)] = parameter
                    if self.fold == "sum":  # the mean of these is the sum
                        parameter.register_hook(self._scaled)
                    parameter.register_post_accumulate_grad_hook(self.arrived)
            self._fill_buckets()

    def _scaled(self, grad: Tensor | None) -> Tensor | None:
        return None if grad is None else grad * self.group.size

    def _fill_buckets(self) -> None:
        self.buckets, self.bucket_of = [], {}
        latest: dict[Any, _Bucket] = {}
        for parameter in reversed(self.parameters):
            if id(parameter) not in self.watched:
                continue
            kind = parameter.dtype, parameter.device
            bucket = latest.get(kind)
            limit = self.bucket_bytes if len(self.buckets) > 1 else FIRST_BUCKET
            if bucket is None or bucket.size >= min(limit, self.bucket_bytes):
                bucket = latest[kind] = _Bucket()
                self.buckets.append(bucket)
            bucket.add(parameter)
            self.bucket_of[id(parameter)] = bucket

    # -- hooks --------------------------------------------------------------------------------

    @uncompiled
    def before_forward(self, module: Module, args: tuple[Any, ...]) -> None:
        """Look for parameters that are trainable now, and equalize buffers."""
        if _AVERAGERS.get(module) is not self or in_backward():
            return  # a copy of the module, or a forward repeated within a backward pass
        if self.passing:
            self.versions.clear()
            self.finish()  # a pass that ended in an error
        if self._are_replaced():
            self.find()
        if any(p.requires_grad and id(p) not in self.watched for p in self.parameters):
            self.watch()
        if self.buffers is not None and not self.paused:
            self.buffers.equalize()

    def _are_replaced(self) -> bool:
        """Whether the module has other parameters now.

        What stands in their place for one call, as in ``torch.func.functional_call``, and has been
        computed, passes its gradient on to what it was computed from.
        """
        found = [where.get(name) for where, name, _ in self.places]
        others = [x for x, (_, _, p) in zip(found, self.places, strict=True) if x is not p]
        return bool(others) and all(x is None or x.is_leaf for x in others)

    @uncompiled
    def after_forward(self, module: Module, args: tuple[Any, ...], output: Any) -> None:
        """Hang hooks on the output, which learn of the backward pass before the first gradient."""
        if self.buffers is not None and _AVERAGERS.get(module) is self and not in_backward():
            self.buffers.forward_ends()
        if torch.is_grad_enabled() and _AVERAGERS.get(module) is self:
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self.begin)

    def begin(self, *_: Any) -> None:
        """Begin a pass, unless it has begun."""
        if not self.passing and not self.paused:
            self.passing, self.begun = True, 0
            at_end_of_backward(self.finish)

    def arrived(self, parameter: Tensor) -> None:
        """A parameter has its gradient: begin with the buckets that are full."""
        with plainly():
            self._arrived(parameter)

    def _arrived(self, parameter: Tensor) -> None:
        if self.paused or parameter.grad is None:
            return
        self.begin()
        if parameter.grad.layout is not torch.strided:
            raise TypeError(
                f"data_parallel: a gradient has layout {parameter.grad.layout}; sparse ones are "
                "not averaged: make the embedding with sparse=False"
            )
        bucket = self.bucket_of[id(parameter)]
        if bucket.work is not None:
            raise RuntimeError(
                "data_parallel: a parameter got a second gradient in one backward pass, after the "
                "first was sent; checkpoint with use_reentrant=False, and call backward() once"
            )
        bucket.awaited.discard(id(parameter))
        self.versions[id(parameter)] = parameter._version
        while self.begun < len(self.buckets) and not self.buckets[self.begun].awaited:
            self._begin_next()
        for under_way in self.buckets[: self.begun]:
            if under_way.work is not None:
                under_way.work.poke()

    def _begin_next(self) -> None:
        if config.settings.check:
            verify_among(self.group, f"data_parallel: gradients, bucket {self.begun}")
        self.buckets[self.begun].begin(self.mesh)
        self.begun += 1

    def finish(self) -> None:
        """The pass is over: begin what is left, wait for all."""
        with plainly():
            while self.begun < len(self.buckets):
                self._begin_next()
            for bucket in self.buckets:
                bucket.take(self.group.size)
            self._check_unchanged()
        self.passing = False
        if self.buffers is not None:
            self.buffers.equalize()

    def _check_unchanged(self) -> None:
        """Refuse steps within the pass, which are made with this rank's own gradients."""
        changed = [p for p in self.parameters if self.versions.get(id(p), p._version) != p._version]
        self.versions.clear()
        if changed:
            raise RuntimeError(
                "data_parallel: a parameter was changed within the backward pass, before its "
                "gradient was averaged, so that replicas differ from now on: step the optimizer "
                "after backward(), or divide the model (fully_shard), whose gradients arrive "
                "averaged"
            )


_AVERAGERS: "WeakKeyDictionary[Module, _Averager]" = WeakKeyDictionary()
