"""Models and comparisons that several tests of tensor parallelism share."""

from __future__ import annotations

import copy

import torch
from torch import nn

import distarray.torch as dt
from distarray import DeviceMesh, Layout


def line(group):
    return DeviceMesh(group, (group.size,), ("tp",))


def drawn(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)


def filled(model, seed=1):
    """The model in float64 with values of its own, the same in every process and thread."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            parameter.copy_(0.3 * values)
    return model


def on(model, device):
    """A copy on a device; Gaudi has float32."""
    model = copy.deepcopy(model)
    return model if device == "cpu" else model.float().to(device)


def tolerance(device):
    return {"rtol": 1e-10, "atol": 1e-11} if device == "cpu" else {"rtol": 1e-4, "atol": 1e-4}


def close(found, wanted, device="cpu"):
    found = found.detach().cpu().double()
    return found.shape == wanted.shape and torch.allclose(found, wanted, **tolerance(device))


def local_of(tensor):
    """This rank's part as a plain tensor; plain ones as they are."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def same_gradients(model, reference, device="cpu"):
    """Whether every rank has its own part of the gradients that one process finds."""
    state = dt.module_state(model)
    mine = dict(model.named_parameters())
    for name, parameter in reference.named_parameters():
        layout, gradient = state[name].layout, local_of(mine[name].grad)
        section = tuple([slice(*s) for s in layout.section(state[name].mesh.coords)])
        wanted = parameter.grad.reshape(layout.shape)[section].reshape(local_of(mine[name]).shape)
        if gradient is None:
            gradient = torch.zeros_like(wanted)
            if wanted.numel():
                return False
        if not close(gradient, wanted, device):
            return False
    return True


def same_parameters(model, reference, device="cpu"):
    """Whether the arrays of a distributed model hold what one process has; collective."""
    found = {n: torch.from_numpy(a.full()) for n, a in dt.module_state(model).items()}
    return all(
        close(found[name].reshape(p.shape), p.detach(), device)
        for name, p in reference.named_parameters()
    )


class ToyModel(nn.Module):
    """The MLP of PyTorch's example of tensor parallelism."""

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


TOY_PLAN = {"in_proj": dt.ColwiseParallel(), "out_proj": dt.RowwiseParallel()}


class Norm(nn.Module):
    """RMSNorm as models write it themselves."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    """Attention of separate Linear layers that counts the heads it has."""

    def __init__(self, size, heads):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.wo = nn.Linear(size, size)
        self.head_size = size // heads

    def forward(self, x):
        q, k, v = (
            w(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        if not q.shape[1]:  # a rank with no heads
            return self.wo((q + (k + v).sum() * 0).transpose(1, 2).flatten(2))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """A gated MLP."""

    def __init__(self, size, hidden):
        super().__init__()
        self.w1, self.w3 = nn.Linear(size, hidden), nn.Linear(size, hidden)
        self.w2 = nn.Linear(hidden, size)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, size, heads, hidden):
        super().__init__()
        self.attention_norm, self.attention = Norm(size), Attention(size, heads)
        self.ffn_norm, self.feed_forward = nn.LayerNorm(size), FeedForward(size, hidden)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self, words=11, size=12, heads=3, hidden=20, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(words, size)
        self.layers = nn.ModuleList([Block(size, heads, hidden) for _ in range(layers)])
        self.norm = Norm(size)
        self.output = nn.Linear(size, words, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def part_of(whole, mesh, placements):
    """This rank's part of a tensor that every rank has."""
    layout = Layout.chunked(tuple(whole.shape), mesh.shape, placements)
    section = tuple([slice(*s) for s in layout.section(mesh.coords)])
    return whole[section].clone()


def spread(whole, mesh, placements):
    return dt.DistTensor.from_local(part_of(whole, mesh, placements), mesh, placements)
