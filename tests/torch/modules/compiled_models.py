"""The models that tests of ``torch.compile`` distribute."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import distarray.torch as dt
from tests.torch.models import Norm


class Block(nn.Module):
    """A norm, and two layers around a dropout."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm
        self.a, self.b = nn.Linear(8, 10), nn.Linear(10, 8)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        return x + self.b(self.dropout(torch.relu(self.a(self.norm(x)))))


class Mixing(nn.Module):
    """torch's attention between two layers."""

    def __init__(self, **how):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True, **how)

    def forward(self, x):
        x = self.norm(x)
        return self.out(self.attention(x, x, x, need_weights=False)[0])


class Tokens(nn.Module):
    """A table of tokens, and a layer with the same weight."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x):
        return self.out(self.table(x).tanh())


class Pictures(nn.Module):
    """Layers without a rule, and a norm that writes to its buffers."""

    def __init__(self):
        super().__init__()
        self.c, self.norm, self.out = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.c(x))).mean((2, 3)))


def plain(x):
    """A tensor whole, as programs of one process have it."""
    return x.full_tensor() if isinstance(x, dt.DistTensor) else x


class Weights(nn.Module):
    """A model that computes with the weights of its layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 9)

    def forward(self, x):
        weight = self.layer.weight
        pair = torch.stack([weight, weight * 2])
        total = pair.sum() + weight.t().norm() + torch.cat([weight, weight]).mean()
        total = total + weight.detach().clone().max() + len(weight) * weight.numel()
        return self.layer(x.to(weight.dtype)) * weight.shape[0] + plain(total)


class Checkpointed(Block):
    """A block whose inner values are computed once more for the gradient."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


class Experts(nn.Module):
    """As models have them: weights of all experts, tokens with the experts' numbers."""

    def __init__(self):
        super().__init__()
        self.weight, self.num_experts = nn.Parameter(torch.ones(4, 8, 8)), 4

    def forward(self, x, numbers, shares):
        result = torch.zeros_like(x)
        for n in range(self.num_experts):
            token, k = torch.where(numbers == n)
            rows = (x[token] @ self.weight[n]) * shares[token, k, None]
            result = result.index_add(0, token, rows)
        return result


class Choosing(Norm):
    """A norm that looks at an object, which may be changed without anybody's knowledge."""

    def __init__(self):
        super().__init__(8)
        self.choices = {"by": 2.0}

    def forward(self, x):
        return super().forward(x) * self.choices["by"]


class Routed(nn.Module):
    """Tokens to experts."""

    def __init__(self):
        super().__init__()
        self.a, self.experts = nn.Linear(8, 8), Experts()

    def forward(self, x):
        x = self.a(x).tanh()
        shares, numbers = torch.topk(x[:, :4].softmax(-1), 2)
        return self.experts(x, numbers, shares)
