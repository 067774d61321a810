"""The small programs of DTensor's tutorials, each with a check of what it computes.

    mpiexec -n 4 python torch_dtensor_notes.py [--device cpu|cuda|hpu] [--rows 100000]

The tutorials' programs are for four GPUs and torch.distributed; these run on any number of ranks,
over MPI. `docs/dtensor.rst` says which of DTensor's names became what.
"""

import argparse

import distarray as da
import distarray.torch as dt
from distarray import Replicate, Shard


def arguments(argv=None):
    """The command line."""
    from arguments import count, parse

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda", "hpu"), default="cpu")
    parser.add_argument("--rows", type=count, default=100_000, help="of the big tensor (100000)")
    return parse(parser, argv)


if __name__ == "__main__":
    from arguments import device as started

    # On a Gaudi, importing torch loads the device's software, which has to know its rank by then.
    options = arguments()
    device_here = started(options.device)

import torch  # noqa: E402
from torch import nn  # noqa: E402


def random(*shape, dtype=torch.float32):
    """The same numbers in every process."""
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(41))


def gathered_rows(mesh, device, rows=888):
    """A big tensor cut into rows: the ranks' parts, gathered, are the tensor."""
    big = random(rows, 88)
    part = dt.distribute_tensor(big.to(device), mesh, [Shard(0)]).to_local()
    whole = dt.all_gather(part, mesh)
    return f"{tuple(part.shape)} here", torch.equal(whole.cpu(), big)


def placements(mesh, device):
    """Rows, columns, replicas; on a grid of ranks replicas of rows."""
    big = random(888, 12)
    ranks = mesh.size()
    grid = da.init_device_mesh("cpu", (2, ranks // 2) if ranks % 2 == 0 else (1, ranks))
    shapes, right = [], True
    for where, placed in (
        (mesh, [Shard(0)]),
        (mesh, [Shard(1)]),
        (mesh, [Replicate()]),
        (grid, [Replicate(), Shard(0)]),
    ):
        x = dt.distribute_tensor(big.to(device), where, placed)
        part, layout = x.to_local(), x.dist_layout
        section = tuple(slice(start, stop) for start, stop in layout.section(where.coords))
        right &= torch.equal(part.cpu(), big[section])
        shapes.append(str(tuple(part.shape)))
    return " ".join(shapes), right


def resharded(mesh, device):
    """Rows to columns to replicas; the gradient comes back whole, and once."""
    local = torch.randn(8, 8, device=device, requires_grad=True)
    rows = dt.DistTensor.from_local(local, mesh, [Shard(0)])
    columns = rows.redistribute([Shard(1)])
    replica = columns.redistribute([Replicate()])
    shapes = [tuple(rows.shape), tuple(columns.to_local().shape), tuple(replica.to_local().shape)]
    replica.to_local().sum().backward()
    right = torch.equal(local.grad.cpu(), torch.ones(8, 8))
    return " -> ".join(map(str, shapes)), right


class MyModule(nn.Module):
    """Two layers side by side."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 8), nn.Linear(8, 8)
        self.relu = nn.ReLU()

    def forward(self, x):
        """Of shape (rows, 8), as is the result."""
        return self.relu(self.fc1(x) + self.fc2(x))


def cut_rows(name, module, mesh):
    """Cut the parameters of linear layers along their first dimension."""
    if isinstance(module, nn.Linear):
        for parameter in ("weight", "bias"):
            dt.distribute_parameter(module, parameter, mesh, [Shard(0)])


def module_with_cut_layers(mesh, device):
    """A module whose parameters are cut computes what it computed whole."""
    cut = dt.distribute_module(MyModule().to(device), mesh, partition_fn=cut_rows)
    whole = {name: torch.from_numpy(x.full()) for name, x in dt.module_state(cut).items()}
    x = random(5, 8)
    wanted = torch.func.functional_call(MyModule(), whole, x)
    shape = tuple(cut.fc1.weight.to_local().shape)
    return f"fc1.weight {shape} here", torch.allclose(cut(x.to(device)).cpu(), wanted)


def squared(mesh, device):
    """Chunks of a matrix become one distributed matrix; times itself."""
    x = random(4, 4, dtype=torch.float64)
    chunk = x.tensor_split(mesh.size())[mesh.rank]
    part = dt.from_torch(chunk, mesh=mesh, placements=[Shard(0)])
    product = part @ part
    right = torch.allclose(torch.from_numpy(product.full()), x @ x)
    return f"{tuple(product.shape)} as {list(product.placements)}", right


def rows_times_columns(mesh, device):
    """A matrix cut into rows times one cut into columns; the rows of one made columns."""
    a, b = random(2, 4, 4).to(device)
    rows = dt.distribute_tensor(a, mesh, [Shard(0)])
    columns = dt.distribute_tensor(b, mesh, [Shard(1)])
    product = rows @ columns
    right = torch.allclose(product.full_tensor().cpu(), (a @ b).cpu())
    moved = rows.redistribute([Shard(1)])
    right &= torch.equal(moved.full_tensor(), a)
    return f"{tuple(product.shape)} as {list(product.placements)}", right


PROGRAMS = {
    "rows, gathered again": gathered_rows,
    "placements": placements,
    "rows to columns to replicas": resharded,
    "a module with cut layers": module_with_cut_layers,
    "chunks of a matrix, squared": squared,
    "rows times columns": rows_times_columns,
}


def main(device, rows):
    """Run them all."""
    mesh = da.init_device_mesh("cpu", (da.default_mesh().size(),))
    for name, program in PROGRAMS.items():
        more = {"rows": rows} if program is gathered_rows else {}
        text, right = program(mesh, device, **more)
        right = mesh.group.allgather_object(bool(right))
        if mesh.rank == 0:
            verdict = "right" if all(right) else f"WRONG on {right.count(False)} rank(s)"
            print(f"{name:28} {text:56} {verdict}")


if __name__ == "__main__":
    main(device_here, options.rows)
