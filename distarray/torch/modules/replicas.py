"""Data parallel: replicas of a module whose gradients are averaged while they are computed.

Every rank along a mesh dimension runs the same module on its own part of the batch. During the
backward pass the gradients are packed into buckets in the order in which they are computed, last
layers first. The allreduce that averages a full bucket overlaps with the rest of the pass. At the
end of the pass every rank has the same gradients, bit for bit, and so every optimizer makes the
same step.
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


#: Bytes of the first bucket, which is small so that the first allreduce begins early.
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
    """Average a module's gradients over a dimension of a mesh in every later backward pass.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place. It may be tensor-parallel already, along another mesh dimension.
    mesh : DeviceMesh, optional
        By default all ranks.
    mesh_dim : int or str, optional
        The dimension along which the ranks have different parts of the batch. It may be omitted if
        the mesh has one dimension.
    fold : {"avg", "sum"}
        "avg": the mean of the ranks' gradients, for losses that are means over equal parts of the
        batch. "sum": their sum, for losses divided by the size of the whole batch, as is necessary
        if the parts differ in size.
    bucket_bytes : int
        Bytes of gradients that are averaged by one allreduce.
    src_data_rank : int or None
        Coordinate along `mesh_dim` whose parameters and buffers the other ranks copy. None: they
        are equal already; nothing is sent.
    broadcast_buffers : bool
        Broadcast buffers (running statistics) from coordinate 0 at the end of each backward pass
        that follows a forward in training, and otherwise before the next forward.

    Returns
    -------
    torch.nn.Module
        `module`.

    Raises
    ------
    ValueError
        If `fold` is any other string, `bucket_bytes` is not positive, or the module is
        data-parallel already, or cut over the same ranks; on every rank.

    Cost
    ----
    One broadcast for each parameter and buffer now. Then one allreduce per bucket and one broadcast
    per buffer in each backward pass. Gradients are copied once, into their bucket, and are views of
    the bucket afterwards.

    Notes
    -----
    All ranks must run the backward pass. A parameter that no rank used keeps its gradient (None,
    in general). A parameter that some ranks used gets the average, with zero for the other ranks.
    ``torch.autograd.grad`` returns the rank's own gradients. A deep copy is an ordinary module of
    this rank alone, as used for averages of a model over its steps; to train it in parallel, pass
    it to this function, too.

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
    """Accumulate this rank's own gradients in the backward passes inside the block.

    The next pass outside averages the accumulated gradients, so that several small batches cost one
    allreduce.

    Parameters
    ----------
    module : torch.nn.Module
        A module passed to :func:`data_parallel` before.

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
        """Add a parameter to the bucket."""
        self.parameters.append(parameter)
        self.size += parameter.numel() * parameter.element_size()
        self.awaited.add(id(parameter))

    def begin(self, mesh: DeviceMesh) -> None:
        """Pack the gradients, with a flag for each that exists, and begin to sum them."""
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
        """Wait for the sums, and set the gradients to views of their mean."""
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
    """Buckets, hooks and state of one data-parallel module."""

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
        #: Versions of parameters when their gradients arrived, by the parameter's id.
        self.versions: dict[int, int] = {}
        self.passing = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Averager":
        return self  # the hooks ignore a copy of the module, which is no replica

    def find(self) -> None:
        """Find the module's parameters, and the dictionaries that contain them."""
        module = self.module()
        assert module is not None
        self.parameters = list(module.parameters())
        self.places = [
            (part._parameters, name, parameter)
            for part in module.modules()
            for name, parameter in part._parameters.items()
        ]

    def attach(self, module: Module) -> None:
        """Attach hooks to the module and to its parameters."""
        self.watch()
        module.register_forward_pre_hook(self.before_forward)
        module.register_forward_hook(self.after_forward)

    def watch(self) -> None:
        """Attach hooks to parameters that have become trainable, and assign the buckets again."""
        with plainly():
            for parameter in self.parameters:
                if parameter.requires_grad and id(parameter) not in self.watched:
                    self.watched[id(parameter)] = parameter
                    if self.fold == "sum":  # the mean of scaled gradients is the sum
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
            self.finish()  # the previous pass ended in an error
        if self._are_replaced():
            self.find()
        if any(p.requires_grad and id(p) not in self.watched for p in self.parameters):
            self.watch()
        if self.buffers is not None and not self.paused:
            self.buffers.equalize()

    def _are_replaced(self) -> bool:
        """Return True if the module has other parameters now.

        A computed tensor that replaces a parameter for one call, as in
        ``torch.func.functional_call``, does not count: its gradient flows on to its operands.
        """
        found = [where.get(name) for where, name, _ in self.places]
        others = [x for x, (_, _, p) in zip(found, self.places, strict=True) if x is not p]
        return bool(others) and all(x is None or x.is_leaf for x in others)

    @uncompiled
    def after_forward(self, module: Module, args: tuple[Any, ...], output: Any) -> None:
        """Attach hooks to the output, which detect the backward pass before the first gradient."""
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
        """Record that a parameter has its gradient, and begin the allreduce of full buckets."""
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
        """End the pass: begin the remaining allreduces, and wait for all."""
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
        """Refuse optimizer steps during the pass, which use gradients of this rank alone."""
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
