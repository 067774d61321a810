"""The programs that the manual's pages about torch show, run as they stand there."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import distarray
import distarray.torch as dt
from distarray import DeviceMesh, Replicate, Shard
from tests.torch.models import Attention, close, drawn, filled, same_gradients

DOCS = Path(__file__).resolve().parents[2] / "docs"
CROSS_ENTROPY = nn.functional.cross_entropy


def block(page, holding):
    """The code block of a page that has these words in it."""
    found = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", (DOCS / page).read_text())
    (text,) = [text for text in found if holding in text]
    return "\n".join(line[3:] for line in text.splitlines())


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Feed(), Feed()])
        self.out = nn.Linear(6, 4)
        filled(self)

    def forward(self, x):
        for part in self.blocks:
            x = part(x)
        return self.out(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(12), Attention(12, 3)

    def forward(self, x):
        return x + self.attention(self.norm(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 12)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(12, 11)

    def forward(self, text):
        x = self.words(text)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.mark.counts(lambda n: n == 4)
def test_first_program(world, ranks, tmp_path_factory):
    """A model on a mesh of (2, 2); the step on a batch of uneven parts; saved, and loaded again."""
    first = block("dtensor.rst", "fully_shard(block").replace('dt.start("cpu")', '"cpu"')
    step, saving = block("dtensor.rst", "tensor_split"), block("dtensor.rst", "checkpoint.save")
    batch = drawn(5, 6), torch.tensor([0, 3, 1, 1, 2])
    alone = Model()
    CROSS_ENTROPY(alone(batch[0]), batch[1]).backward()
    torch.optim.AdamW(alone.parameters()).step()
    where = tmp_path_factory.mktemp("guide")

    def program(group):
        names = {"Model": Model, "batch": batch, "cross_entropy": CROSS_ENTROPY}
        exec(first.replace(', "dp")', ', "dp", fold="sum")'), names)
        call, rest = step.split("\n", 1)
        assert call == 'dt.fully_shard(model, mesh, "dp", fold="sum")'
        exec(rest, names)
        names["loss"].backward()
        names["optimizer"].step()
        found = {n: torch.from_numpy(a.full()) for n, a in dt.module_state(names["model"]).items()}
        assert all(close(found[n], p.detach()) for n, p in alone.named_parameters())
        path = names["mesh"].group.broadcast_object(str(where / "run"))
        exec(saving.replace('"run"', repr(path)), names | {"distarray": distarray})

    world.run(ranks, program)


def test_plan(world, ranks):
    """The plan of the guide: sequence parallel norms, heads divided, a loss of cut classes."""
    text = torch.tensor([[0, 4, 2, 10, 6], [1, 1, 3, 7, 9]])
    alone, labels = filled(Words()), text.roll(1)
    start = copy.deepcopy(alone)
    wanted = CROSS_ENTROPY(alone(text).flatten(0, 1), labels.flatten())
    wanted.backward()

    def program(group):
        model, mesh = copy.deepcopy(start), DeviceMesh(group, (1, group.size), ("dp", "tp"))
        names = {"dt": dt, "Shard": Shard, "Replicate": Replicate, "head_dim": 4, "mesh": mesh}
        names |= {"model": model, "text": text, "labels": labels, "cross_entropy": CROSS_ENTROPY}
        exec(block("dtensor.rst", "multiple_of"), names)
        assert close(names["loss"], wanted.detach())
        names["loss"].backward()
        assert same_gradients(model, alone)

    world.run(ranks, program)
