"""What is done with a model: how it is cut, and what else is wanted, beside one process.

The name of a way is that of a cut (`CUTS`), or that and one of `EXTRAS`, as in "sharded+uneven".
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from mpi4py import MPI

import distarray.torch as dt
from distarray.comm import DeviceMesh
from tests.torch.models_table.zoo import MODELS, Entry

__all__ = ["CUTS", "EXTRAS", "Difference", "names", "run"]

#: How parameters and batch lie on the ranks.
CUTS = ("data", "sharded", "tensor", "spread", "sequence", "2-D")
#: What else is wanted. Generating is of models that have it.
EXTRAS = (
    "accumulate",
    "uneven",
    "checkpoint",
    "reentrant",
    "autocast",
    "dropout",
    "generate",
    "compile",
)
STEPS, ROWS, LAST = 5, 8, 5
SEED = 100

Batch = dict[str, torch.Tensor]


class Difference(Exception):
    """The ranks have something else than one process."""


def names(model: str) -> list[str]:
    """The ways of a model."""
    entry = MODELS[model]
    repeats = began(model, 0.0).supports_gradient_checkpointing
    cuts = [cut for cut in CUTS if cut != "sequence" or entry.sequence]
    found = list(cuts)
    for cut, extra in itertools.product(("data", "sharded", "tensor"), EXTRAS):
        if extra in ("checkpoint", "reentrant") and not repeats:
            continue
        if extra == "generate" and not entry.generates:
            continue
        if cut == "tensor" and extra == "uneven":
            continue  # every rank has the whole batch
        if extra == "dropout" and cut == "tensor" and entry.functional:
            continue  # functions draw for a part: see the note on random numbers in the docs
        found.append(f"{cut}+{extra}")
    if "sequence" in cuts:
        found += ["sequence+checkpoint", "sequence+autocast", "sequence+compile"]
    if entry.functional:
        found.append("spread+dropout")
    return [*found, "2-D+autocast", "spread+compile"]


class Way(NamedTuple):
    """One cell's work."""

    entry: Entry
    cut: str
    extra: str
    mesh: DeviceMesh

    @property
    def parts(self) -> int:
        """How many parts a batch is in."""
        return 1 if self.mesh.mesh_dim_names == ("tp",) else self.mesh.size("dp")

    @property
    def place(self) -> int:
        """This rank's part."""
        return 0 if self.parts == 1 else self.mesh["dp"].rank

    @property
    def dropout(self) -> float:
        return 0.3 if self.extra == "dropout" else 0.0


def run(model: str, name: str, group: Any) -> None:
    """Raise Difference unless the ranks have what one process has."""
    cut, _, extra = name.partition("+")
    mesh = DeviceMesh(group, (group.size,), ("dp" if cut in ("data", "sharded") else "tp",))
    if cut == "2-D":
        mesh = DeviceMesh(group, (group.size // 2, 2), ("dp", "tp"))
    way = Way(MODELS[model], cut, extra, mesh)
    start = began(model, way.dropout)
    alone = copy.deepcopy(start)
    found = distributed(copy.deepcopy(start), way)
    torch.manual_seed(SEED + way.place)
    if extra == "generate":
        _same("tokens", _generated(found, way), _generated(alone, way._replace(cut="plain")), 0)
        return
    losses = _trained(found, way)
    whole = _whole(found)
    learned = _reference(alone, way)
    loose = 3e-2 if extra == "autocast" else 1e-6
    _same("losses", torch.tensor(losses), torch.tensor(learned.losses), loose)
    for what, value in learned.values.items():
        _same(what, whole[what], value, loose)


class Learned(NamedTuple):
    """What five steps come to."""

    losses: list[float]
    values: dict[str, torch.Tensor]


def _whole(model: Any) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a distributed model; collective."""
    return {name: torch.from_numpy(a.full()) for name, a in dt.module_state(model).items()}


@functools.cache
def began(model: str, dropout: float) -> Any:
    """A model with random weights, the same on all ranks."""
    torch.manual_seed(3)
    found = MODELS[model].make(dropout)
    with torch.no_grad():
        for p in found.parameters():  # the library's initialization makes tiny ones and zeros
            if p.ndim > 1:
                p.copy_(torch.randn_like(p) * p.shape[-1] ** -0.5)
            elif p.ndim == 1:
                p.add_(0.1 * torch.randn_like(p))
    return found.train()


def distributed(model: Any, way: Way) -> Any:
    """The model in parallel."""
    entry, mesh = way.entry, way.mesh
    fold = "sum" if way.extra == "uneven" else "avg"
    if way.extra in ("checkpoint", "reentrant"):
        again = {"use_reentrant": way.extra == "reentrant"}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=again)
    if way.cut in ("tensor", "spread", "2-D"):
        plan = entry.plan(way.cut != "spread")
        model = dt.parallelize_module(model, mesh["tp"] if mesh.ndim > 1 else mesh, plan)
    elif way.cut == "sequence":
        assert entry.sequence is not None
        model = dt.parallelize_module(model, mesh, entry.sequence())
    if way.cut in ("sharded", "2-D"):
        for name in entry.blocks:
            for block in model.get_submodule(name):
                dt.fully_shard(block, mesh, "dp", fold=fold)
        dt.fully_shard(model, mesh, "dp", fold=fold)
    elif way.cut == "data":
        model = dt.data_parallel(model, mesh, "dp", fold=fold)
    return model


def batches(way: Way) -> list[Batch]:
    """Those of all steps; the last one may be shorter."""
    draw = torch.Generator().manual_seed(11)
    rows = [ROWS] * STEPS
    if way.extra == "uneven":
        rows[-1] = LAST
    return [way.entry.batch(n, draw) for n in rows]


def part(batch: Batch, parts: int, place: int) -> Batch:
    return {name: x.tensor_split(parts)[place] for name, x in batch.items()}


def loss_of(model: Any, batch: Batch, way: Way, count: int) -> torch.Tensor:
    """The library's own loss, or with uneven parts the sum over this part's share of all."""
    with _context(way):
        if way.extra != "uneven":
            return model(**batch).loss
        logits = model(**batch).logits
        labels = batch["labels"].flatten()
        sums = torch.nn.functional.cross_entropy(
            logits.reshape(len(labels), -1), labels, reduction="sum"
        )
        return sums / count


@contextlib.contextmanager
def _context(way: Way) -> Iterator[None]:
    """Where a forward runs: what the library makes itself is replicated beside distributed ones."""
    with contextlib.ExitStack() as stack:
        if way.extra == "autocast":
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        if way.cut in ("spread", "sequence") or (way.cut != "plain" and way.entry.mixed):
            stack.enter_context(dt.implicit_replication())
        yield


def _optimizer(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3, weight_decay=0.1)


def _trained(model: Any, way: Way) -> list[float]:
    """The losses of the whole batches, by the ranks together."""
    optimizer, losses = _optimizer(model), []
    if way.parts == 1:
        dt.manual_seed(SEED, way.mesh)
    forward = torch.compile(model, backend="aot_eager") if way.extra == "compile" else model
    for batch in batches(way):
        count = batch["labels"].numel()
        mine = part(batch, way.parts, way.place)
        halves = [mine]
        if way.extra == "accumulate":
            halves = [part(mine, 2, 0), part(mine, 2, 1)]
        total = 0.0
        for number, half in enumerate(halves):
            last = number == len(halves) - 1
            with _silent(way, model, last):
                loss = loss_of(forward, half, way, count) / len(halves)
                loss.backward()
                total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    if way.parts == 1:
        return losses
    mean = dt.all_reduce(torch.tensor(losses, dtype=torch.float64), way.mesh, "dp")
    return (mean if way.extra == "uneven" else mean / way.parts).tolist()


@contextlib.contextmanager
def _silent(way: Way, model: Any, last: bool) -> Iterator[None]:
    """Gradients of parts of a step are averaged at its end alone."""
    with dt.no_sync(model) if way.cut == "data" and not last else contextlib.nullcontext():
        yield


def _reference(model: Any, way: Way) -> Learned:
    """What one process learns, part by part where the parts make a difference."""
    if way.extra == "dropout" and way.parts == 1:
        return _on_one_rank(model, way)
    losses = _alone(model, way)
    kept = model.state_dict()  # tied parameters under each of their names
    names = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    return Learned(losses, {name: kept[name] for name in names & set(kept)})


def _alone(model: Any, way: Way) -> list[float]:
    optimizer, losses = _optimizer(model), []
    states = []
    for place in range(way.parts):
        torch.manual_seed(SEED + place)
        states.append(torch.get_rng_state())
    parts = way.parts if way.dropout or way.entry.by_batch else 1
    plain = way._replace(cut="plain")
    for batch in batches(way):
        count, total = batch["labels"].numel(), 0.0
        buffers: dict[str, torch.Tensor] = {}
        for place in range(parts):
            torch.set_rng_state(states[place])
            pieces = [part(batch, parts, place)]
            if way.extra == "accumulate" and way.entry.by_batch:
                pieces = [part(pieces[0], 2, half) for half in range(2)]
            for piece in pieces:
                loss = loss_of(model, piece, plain, count)
                share = 1 if way.extra == "uneven" else len(pieces) * parts
                (loss / share).backward()
                total += float(loss.detach()) / share
            states[place] = torch.get_rng_state()
            if place == 0:  # running statistics are those of the first rank
                buffers = {name: b.clone() for name, b in model.named_buffers()}
                before = buffers
            for name, b in model.named_buffers():
                b.copy_(before[name])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def _on_one_rank(model: Any, way: Way) -> Learned:
    """The same program on a mesh of rank 0 alone: what is dropped is not torch's choice."""
    found = None
    if way.mesh.rank == 0:
        alone = way._replace(mesh=DeviceMesh(MPI.COMM_SELF, (1,), ("tp",)))
        model = distributed(model, alone)
        torch.manual_seed(SEED)
        found = Learned(_trained(model, alone), _whole(model))
    return way.mesh.group.broadcast_object(found, 0, "what one rank learned")


def _generated(model: Any, way: Way) -> torch.Tensor:
    batch = part(batches(way)[0], way.parts, way.place)
    batch.pop("labels")
    model.eval()
    with torch.no_grad(), _context(way):
        return model.generate(**batch, max_new_tokens=6, do_sample=False, pad_token_id=0)


def _same(what: str, found: torch.Tensor, wanted: torch.Tensor, loose: float) -> None:
    found, wanted = found.double(), wanted.double().reshape(found.shape)
    off = float((found - wanted).abs().max()) if found.numel() else 0.0
    if not off <= loose * max(1.0, float(wanted.abs().max())):
        raise Difference(f"{what}: {off:.3g} off")
