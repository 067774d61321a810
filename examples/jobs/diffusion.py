"""A simulation that can be stopped at any step and go on later, on another number of ranks.

The job scripts beside this file run it: they start it again until ``result.npy`` is there. It stops
when the scheduler sends a signal, or when the job's time is nearly up; all ranks stop at the same
step, and what they were computing goes on from there, bit for bit as if nothing had happened.

    mpiexec -n 4 python diffusion.py --steps 2000
"""

import argparse
import contextlib
import sys
import time

import distarray
import distarray.numpy as np
from distarray import checkpoint, job


def step(heat):
    """One step of diffusion in a plate whose rim keeps its temperature."""
    new = heat.copy()
    new[1:-1, 1:-1] += 0.2 * (
        heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:] - 4 * heat[1:-1, 1:-1]
    )
    return new


def main():
    """Run from the last checkpoint, or from the beginning, to the end or to the next stop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--margin", type=float, default=60, help="seconds to leave for saving")
    mesh = distarray.default_mesh()
    with contextlib.redirect_stderr(None if mesh.rank else sys.stderr):  # rank 0 tells of mistakes
        try:
            options = parser.parse_args()
            if options.steps < 0 or options.size < 3:
                parser.error("steps cannot be negative, and a plate has 3 x 3 points or more")
        finally:
            mesh.group.barrier()  # before any rank ends

    first = 0
    heat = np.random.default_rng(7).random((options.size, options.size))
    heat = heat.redistribute(placements=[distarray.Shard(0)])
    if checkpoint.steps("state"):
        state = checkpoint.load("state", {"heat": heat, "step": 0})
        first, heat = state["step"], state["heat"]

    with job.preemption(margin=options.margin) as stop:
        mesh.group.barrier()  # from here on all ranks take signals
        if mesh.rank == 0:
            left = job.time_left()
            left = "unknown" if left is None else f"{left:.0f} s"
            print(f"from step {first} on {mesh.size()} ranks; time left: {left}", flush=True)
        began = time.perf_counter()
        for number in range(first, options.steps):
            if stop.requested:
                checkpoint.save("state", {"heat": heat, "step": number}, step=number, keep=2)
                if mesh.rank == 0:
                    why = stop.signal.name if stop.signal else "the time is up"
                    print(f"stopped before step {number}: {why}", flush=True)
                return
            heat = step(heat)
    np.save("result.npy", heat)
    if mesh.rank == 0:
        seconds = time.perf_counter() - began
        print(f"finished {options.steps - first} steps in {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
