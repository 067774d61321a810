"""A tensor-parallel MLP: PyTorch's example of DTensor on four Gaudis, over MPI on any ranks.

    mpiexec -n 4 python torch_tensor_parallel.py [--device cpu|cuda|hpu] [--steps 10]

The first layer is cut along its columns and the second along its rows, so that a forward pass needs
one allreduce and a backward pass none, and no rank has the whole of either. The program trains the
model on all ranks together and, in each process, once more by itself, and prints how far apart the
two are and what the ranks sent.

Every rank runs these lines; only rank 0 prints.
"""

import argparse
import copy

import distarray as da
import distarray.torch as dt


def arguments():
    """What was asked for on the command line."""
    from arguments import parse, positive

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda", "hpu"), default="cpu")
    parser.add_argument("--steps", type=positive, default=10, help="of training (10)")
    return parse(parser)


if __name__ == "__main__":
    from arguments import device as started

    # On a Gaudi, importing torch loads the device's software, which has to know its rank by then.
    options = arguments()
    device_here = started(options.device)

import torch  # noqa: E402
from torch import nn  # noqa: E402


class ToyModel(nn.Module):
    """Two linear layers and a ReLU between them."""

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        """Of shape (samples, 10); the result (samples, 5)."""
        return self.out_proj(self.relu(self.in_proj(x)))


def batch(step):
    """The same samples in every process, others at every step."""
    return torch.rand(20, 10, generator=torch.Generator().manual_seed(step))


def train(model, steps, device):
    """Train with AdamW; the outputs of each step, and what was sent forward and backward."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    outputs, forward, backward = [], [], []
    for step in range(steps):
        optimizer.zero_grad()
        with da.trace() as book:
            output = model(batch(step).to(device))
        forward += [event.kind for event in book.events]
        with da.trace() as book:
            output.sum().backward()
        backward += [event.kind for event in book.events]
        optimizer.step()
        outputs.append(output.detach().cpu())
    return outputs, forward, backward


def compare(mesh, device, steps, say):
    """Train on the mesh and in this process alone; whether they agree within rounding."""
    torch.manual_seed(0)  # rank 0's parameters count, whatever the others have
    alone = ToyModel()
    model = copy.deepcopy(alone).to(device)
    plan = {"in_proj": dt.ColwiseParallel(), "out_proj": dt.RowwiseParallel()}
    dt.parallelize_module(model, mesh, plan)
    for name, parameter in model.named_parameters():
        placements = dt.module_state(model)[name].placements
        say(f"{name:16} {tuple(parameter.shape)!s:9} on rank 0, {list(placements)}")

    outputs, forward, backward = train(model, steps, device)
    wanted, _, _ = train(alone, steps, "cpu")
    off = [float((a - b).abs().max()) for a, b in zip(outputs, wanted, strict=True)]
    kinds = ", ".join(sorted(set(forward))) or "nothing"
    say(f"sent in {steps} steps: forward {len(forward)} ({kinds}), backward {len(backward)}")
    say(f"outputs differ from one process's by {off[0]:.1e} at first and {off[-1]:.1e} at last")
    state = dt.module_state(model)
    worst = max(
        float((torch.from_numpy(state[name].full()) - parameter.detach()).abs().max())
        for name, parameter in alone.named_parameters()
    )
    say(f"parameters differ by {worst:.1e}")
    counts = len(forward) == (steps if mesh.size() > 1 else 0) and not backward
    close = max(off) <= 1e-3 * max(float(w.abs().max()) for w in wanted) and worst <= 1e-4
    say("the same as one process" if counts and close else "NOT the same as one process")
    return counts and close


def main(device, steps):
    """Compare on a mesh of all ranks."""
    mesh = da.init_device_mesh("cpu", (da.default_mesh().size(),), ("tp",))

    def say(*words):
        if mesh.rank == 0:
            print(*words)

    say(f"{mesh.size()} rank(s), tensors on {device}")
    if not compare(mesh, device, steps, say):
        raise SystemExit(1)


if __name__ == "__main__":
    main(device_here, options.steps)
