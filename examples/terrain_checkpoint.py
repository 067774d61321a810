"""The terrain model for longer than one job lasts: it saves itself, and goes on where it was.

    mpiexec -n 4 python terrain_checkpoint.py --checkpoint run [--steps 300] [--every 100]

The first start reads the landscape; every other one the last checkpoint, on any number of ranks,
and the heights in the end are the same, bit for bit, however often the job was stopped and started.
Saving goes on behind the computation, and when the batch system asks the job to stop, it saves
once more, at a step that all ranks agree on, and ends. ``--stop-after 120`` does so by itself.

`run/step-00000100/z` is a Zarr array: on a laptop, ``zarr.open("run/step-00000100")["z"][:100]``.

Every rank runs these lines. What communicates, all ranks call; only rank 0 prints.
"""

import argparse
import time

import matplotlib.image

import arguments
import distarray as da
import terrain
from distarray import Shard, checkpoint, job


def begin(path, mesh, refinement):
    """The state to go on from: that of the last checkpoint, or the landscape as it is today."""
    if checkpoint.latest(path, mesh=mesh) is not None:
        return checkpoint.load(path, mesh=mesh)
    heights, dx, dy = terrain.load()
    heights = terrain.refine(heights, refinement)
    # Every rank has read the same file: nothing needs to be sent.
    z = da.distribute(heights, mesh, [Shard(0)], src=None)
    return {"z": z, "dx": dx / refinement, "dy": dy / refinement, "step": 0, "years": 0.0}


def advance(state, steps):
    """The state some steps later."""
    z, years = terrain.diffuse(state["z"], state["dx"], state["dy"], steps)
    return state | {"z": z, "step": state["step"] + steps, "years": state["years"] + years}


def run(state, options, say):
    """Advance to the last step, or to where the job has to stop, and save."""
    last = options.steps
    if options.stop_after is not None:
        last = min(last, state["step"] + options.stop_after)
    saving, saved = None, None
    with job.preemption(margin=60) as stop:
        while state["step"] < last and not stop.requested:
            ahead = options.every - state["step"] % options.every  # until the next checkpoint
            state = advance(state, min(options.batch, ahead, last - state["step"]))
            if state["step"] % options.every == 0:
                start = time.perf_counter()
                saving, saved = save(state, options, asynchronous=True), state["step"]
                waited = 1000 * (time.perf_counter() - start)
                say(f"step {saved}: saving, which took {waited:.0f} ms of the program's time")
    if saved != state["step"]:
        saving = save(state, options)
    say(f"stopped at step {state['step']} of {options.steps}, saved in {saving.wait().name}")
    return state


def save(state, options, asynchronous=False):
    """Save, and keep the last two checkpoints."""
    return checkpoint.save(
        options.checkpoint, state, step=state["step"], keep=2, asynchronous=asynchronous
    )


def main():
    """Begin or go on; at the end of the last step, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count, positive = arguments.count, arguments.positive
    parser.add_argument(
        "--checkpoint", type=arguments.directory, default="run", help="where they are kept (run)"
    )
    parser.add_argument("--steps", type=count, default=300, help="time steps in all (300)")
    parser.add_argument("--every", type=positive, default=100, help="steps between checkpoints")
    parser.add_argument(
        "--batch", type=positive, default=10, help="steps between looks at the clock"
    )
    parser.add_argument("--stop-after", type=count, help="stop after so many steps of this job")
    parser.add_argument(
        "--refine", type=positive, default=1, help="make the grid k times finer (1)"
    )
    parser.add_argument(
        "--output", type=arguments.picture, default="relief.png", help="the picture"
    )
    options = arguments.parse(parser)
    mesh = da.default_mesh()

    def say(*words):
        if mesh.rank == 0:
            print(*words, flush=True)

    state = begin(options.checkpoint, mesh, options.refine)
    z = state["z"]
    say(f"{z.shape[0]} x {z.shape[1]} nodes on {mesh.size()} ranks, from step {state['step']} on")
    state = run(state, options, say)
    if state["step"] < options.steps:
        return
    z, dx, dy = state["z"], state["dx"], state["dy"]
    years, node = state["years"], float(z[100, 100])
    say(f"after {years:.4g} years: mean height {float(z.mean()):.3f} m, a node {node.hex()}")
    relief = terrain.shaded_relief(*terrain.slope_and_aspect(z, dx, dy)).gather(root=0)
    if relief is not None:
        matplotlib.image.imsave(options.output, relief, cmap="gray", vmin=0, vmax=1)


if __name__ == "__main__":
    main()
