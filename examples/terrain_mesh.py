"""The terrain model with the distribution in the program's own hands.

    mpiexec -n 4 python terrain_mesh.py [--steps 100] [--output relief.png]

`terrain.py` says nothing of ranks and lets the runner decide. Here the same model runs on a mesh
that the program lays out: the ranks form a grid, the map is cut into strips of rows or into blocks
of rows and columns, and `distarray.trace` shows what either costs, as rank 0 sees it. A step of
diffusion needs the neighbours' outermost nodes; a block has less edge than a strip, but more
neighbours.

Every rank runs these lines. What communicates, all ranks call; only rank 0 prints.
"""

import argparse
import time

import matplotlib.image
import numpy as np

import arguments
import distarray as da
import terrain
from distarray import Replicate, Shard


def grid_of(ranks):
    """The most nearly square grid: (rows, columns) with rows * columns == ranks."""
    rows = next(r for r in range(int(ranks**0.5), 0, -1) if ranks % r == 0)
    return ranks // rows, rows


def compare_cuts(z, dx, dy, steps, cuts, say):
    """Run the model once for each way to cut the map; return the last result."""
    say(f"{'placements':24} {'messages a step':>16} {'KiB a step':>11} {'ms a step':>10}")
    result = z
    for placements in cuts:
        cut = z.redistribute(placements=placements)
        terrain.diffuse(cut, dx, dy, 1)  # lays the plans, which later steps find in a cache
        with da.trace() as book:
            start = time.perf_counter()
            result, _ = terrain.diffuse(cut, dx, dy, steps)
            seconds = time.perf_counter() - start
        say(
            f"{placements!s:24} {book.messages / steps:16.1f}"
            f" {book.bytes / steps / 1024:11.1f} {1000 * seconds / steps:10.2f}"
        )
    return result


def main():
    """Lay out the mesh, cut the map, step it, look at it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    positive = arguments.positive
    parser.add_argument("--steps", type=positive, default=100, help="time steps (100)")
    parser.add_argument(
        "--refine", type=positive, default=1, help="make the grid k times finer (1)"
    )
    parser.add_argument(
        "--output", type=arguments.picture, default="relief.png", help="the picture"
    )
    options = arguments.parse(parser)

    ranks = da.default_mesh().size()
    mesh = da.init_device_mesh("cpu", grid_of(ranks), ("down", "across"))

    def say(*words):
        if mesh.rank == 0:
            print(*words)

    # Every rank has read the same file: nothing needs to be sent.
    heights, dx, dy = terrain.load()
    heights = terrain.refine(heights, options.refine)
    dx, dy = dx / options.refine, dy / options.refine
    z = da.distribute(heights, mesh, [Shard(0), Shard(1)], src=None)
    say(f"{z.shape[0]} x {z.shape[1]} nodes on a mesh of {mesh.shape[0]} x {mesh.shape[1]} ranks")

    cuts = ([Shard(0), Shard(0)], [Shard(1), Shard(1)], [Shard(0), Shard(1)])
    z = compare_cuts(z, dx, dy, options.steps, cuts, say)

    # Each rank sums its part of a row; the sum over the ranks across is pending until it is read.
    with da.trace() as book:
        profile = z.mean(axis=1).redistribute(placements=[Replicate(), Replicate()])
    highest = int(np.argmax(profile))
    say(f"highest row on average: {highest}, {float(profile[highest]):.2f} m; it took:")
    say(book)

    # A picture is drawn by one rank, from the whole relief gathered there.
    relief = terrain.shaded_relief(*terrain.slope_and_aspect(z, dx, dy)).gather(root=0)
    if relief is not None:
        matplotlib.image.imsave(options.output, relief, cmap="gray", vmin=0, vmax=1)


if __name__ == "__main__":
    main()
