"""A small transformer that learns to write, trained on a grid of ranks.

    mpiexec -n 4 python torch_transformer.py [--steps 60] [--tp 2] [--device cpu|cuda|hpu]

The text is the language reference that comes with Python (`pydoc_data.topics`). The ranks form a
grid of ("dp", "tp"): along "tp" the matrices of attention and of the feed-forward part are cut, so
that a rank computes some of the heads; along "dp" the batch is cut, and each rank keeps only a part
of the parameters and of the optimizer's state (`--replicate`: all of them).

Afterwards rank 0 trains the same model alone, without any of this, and the losses are compared and
drawn. Every rank runs these lines; what communicates, all ranks call; only rank 0 prints.
"""

import argparse
import pydoc_data.topics

import matplotlib.figure
import numpy as np
from tqdm import tqdm

import distarray as da
import distarray.torch as dt
from distarray import Replicate

CONTEXT, WIDTH, HEADS, BLOCKS = 64, 64, 4, 2


def arguments(argv=None):
    """The command line."""
    from arguments import parse, picture, positive

    def sharing(text):
        number, ranks = positive(text), da.default_mesh().size()
        if ranks % number or HEADS % number:
            problem = f"{number} does not divide both the {ranks} rank(s) and the {HEADS} heads"
            raise argparse.ArgumentTypeError(problem)
        return number

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=60, help="training steps (60)")
    parser.add_argument("--batch", type=positive, default=12, help="passages a step (12)")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate (0.002)")
    parser.add_argument("--tp", type=sharing, help="ranks that share a model (2, or 1 if odd)")
    parser.add_argument("--replicate", action="store_true", help="all parameters on all ranks")
    parser.add_argument("--double", action="store_true", help="compute in float64")
    parser.add_argument("--device", choices=("cpu", "cuda", "hpu"), default="cpu")
    parser.add_argument("--output", type=picture, default="transformer.png", help="the picture")
    return parse(parser, argv)


if __name__ == "__main__":
    from arguments import device as started

    # On a Gaudi, importing torch loads the device's software, which has to know its rank by then.
    chosen = arguments()
    device_here = started(chosen.device)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

PLAN = {
    "blocks.*.query": dt.ColwiseParallel(),
    "blocks.*.key": dt.ColwiseParallel(),
    "blocks.*.value": dt.ColwiseParallel(),
    "blocks.*.out": dt.RowwiseParallel(),
    "blocks.*.up": dt.ColwiseParallel(),
    "blocks.*.down": dt.RowwiseParallel(),
    "head": dt.ColwiseParallel(output_layouts=Replicate()),
}


class Block(nn.Module):
    """Attention to what came before, and a feed-forward part."""

    def __init__(self, width, heads):
        super().__init__()
        self.depth = width // heads  # of one head; how many there are here, the matrices say
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """Of shape (batch, context, width), as is the result."""
        y = self.norm1(x)
        q, k, v = (
            layer(y).unflatten(-1, (-1, self.depth)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Characters in, the odds of the next one out."""

    def __init__(self, characters, context=CONTEXT, width=WIDTH, heads=HEADS, blocks=BLOCKS):
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, text):
        """Of shape (batch, context); the result has one dimension more."""
        x = self.characters(text) + self.positions.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def load():
    """The text as numbers, and the characters that they stand for."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    return torch.tensor([number[letter] for letter in text]), letters


def batch_of(text, step, size, context=CONTEXT):
    """The same passages in every process, others at every step."""
    starts = np.random.default_rng(step).integers(0, len(text) - context - 1, size)
    passages = torch.stack([text[start : start + context + 1] for start in starts])
    return passages[:, :-1], passages[:, 1:]


def loss_of(model, given, wanted, count):
    """The sum over these passages, divided by the number of characters in all of them."""
    odds = model(given)
    return functional.cross_entropy(odds.flatten(0, 1), wanted.flatten(), reduction="sum") / count


def model_of(characters, seed, device, dtype):
    """An untrained model."""
    torch.manual_seed(seed)
    return Transformer(characters).to(dtype).to(device)


def parallel(model, mesh, replicate):
    """Cut the model along "tp", and keep its parts or replicas along "dp"."""
    dt.parallelize_module(model, mesh["tp"], PLAN)
    if replicate:
        return dt.data_parallel(model, mesh, "dp", fold="sum")
    for block in model.blocks:
        dt.fully_shard(block, mesh, "dp", fold="sum")
    return dt.fully_shard(model, mesh, "dp", fold="sum")


def train(model, text, options, device, mesh=None, context=CONTEXT):
    """Train, on this rank's part of each batch; the losses of the whole batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    losses = []
    for step in tqdm(range(options.steps), disable=mesh is not None and mesh.rank != 0):
        given, wanted = batch_of(text, step, options.batch, context)
        count = wanted.numel()
        if mesh is not None:
            ranks, mine = mesh.size("dp"), mesh.coords[mesh.mesh_dim("dp")]
            given, wanted = given.tensor_split(ranks)[mine], wanted.tensor_split(ranks)[mine]
        loss = loss_of(model, given.to(device), wanted.to(device), count)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        losses.append(float(loss if mesh is None else dt.all_reduce(loss, mesh, "dp")))
    return losses


def draw(path, spread, alone, title):
    """Both curves in one picture."""
    figure = matplotlib.figure.Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(spread, label=title)
    axes.plot(alone, "k.", markersize=3, label="one process")
    axes.set(xlabel="step", ylabel="loss (nats a character)")
    axes.legend()
    figure.savefig(path, dpi=120)


def main(device, options):
    """Train on all ranks, then on one; compare."""
    dtype = torch.float64 if options.double else torch.float32
    ranks = da.default_mesh().size()
    tp = options.tp or (1 if ranks % 2 else 2)
    mesh = da.init_device_mesh("cpu", (ranks // tp, tp), ("dp", "tp"))
    text, letters = load()

    model = parallel(model_of(len(letters), 0, device, dtype), mesh, options.replicate)
    spread = train(model, text, options, device, mesh)
    if mesh.rank == 0:
        alone = train(model_of(len(letters), 0, device, dtype), text, options, device)
        title = f"{mesh.shape[0]} x {mesh.shape[1]} ranks (dp x tp)"
        here = sum(p.to_local().numel() for p in model.parameters())
        apart = max(abs(a - b) / b for a, b in zip(spread, alone, strict=True))
        print(f"{len(text)} characters, {len(letters)} different ones; {title}")
        print(f"parameters on this rank: {here}")
        print(f"loss {spread[0]:.4f} at first, {spread[-1]:.4f} after {options.steps} steps")
        print(f"one process: {alone[0]:.4f} and {alone[-1]:.4f}")
        print(f"largest relative difference: {apart:.1e}")
        draw(options.output, spread, alone, title)
    da.default_mesh().group.barrier()


if __name__ == "__main__":
    main(device_here, chosen)
