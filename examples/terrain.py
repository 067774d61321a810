"""Twenty million years of soil creep on a real landscape.

The landscape is the Jacksboro fault in Tennessee, a 3 arc-second elevation model of the USGS that
matplotlib ships among its sample data. Its hills are lowered by linear hillslope diffusion, and the
landscape before and after is described by its slopes, its exposure and a shaded relief.

Model
-----
Soil creeps downhill at a rate proportional to the slope [1]_; with mass conserved the height
z (m) then obeys

    dz/dt = D (d2z/dx2 + d2z/dy2),

with the diffusivity D = 0.01 m2/yr, which is in the middle of what is measured on soil-mantled
hills [2]_. Heights are kept on the nodes of a regular grid (spacing dx, dy in m) and stepped
forward in time explicitly, with central differences in space. That is stable for

    dt <= 1 / (2 D (1/dx2 + 1/dy2));

a step here is 0.4 of it (years). No soil crosses the edge of the map: the outermost rows and
columns follow their inner neighbours.

Slope and aspect come from the third-order finite differences of Horn [3]_ over 3 x 3 nodes, the
shaded relief from Lambert's law with a light in the north-west, 45 degrees high.

Usage
-----
    python terrain.py [--steps 300] [--refine 1] [--output terrain.png]

``--refine k`` puts k - 1 nodes between neighbouring nodes, by linear interpolation; a refined
grid takes shorter steps, so more of them are needed for the same time.

References
----------
.. [1] W. E. H. Culling, Soil creep and the development of hillside slopes, J. Geol. 71 (1963), 127.
.. [2] N. F. Fernandes and W. E. Dietrich, Hillslope evolution by diffusive processes: the timescale
   for equilibrium adjustments, Water Resour. Res. 33 (1997), 1307.
.. [3] B. K. P. Horn, Hill shading and the reflectance map, Proc. IEEE 69 (1981), 14.
"""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.cbook as cbook
import matplotlib.pyplot as plt
import numpy as np

DIFFUSIVITY = 0.01  # m2/yr
STABILITY = 0.4  # of the longest stable step
METRES_PER_DEGREE = 111_200.0  # along a meridian
SUN_AZIMUTH, SUN_HEIGHT = np.radians(315.0), np.radians(45.0)
BINS = np.arange(200.0, 1101.0, 100.0)  # m


def load():
    """Heights (m, row 0 in the north) and the grid spacing dx, dy (m)."""
    with cbook.get_sample_data("jacksboro_fault_dem.npz") as dem:
        z = np.array(dem["elevation"], dtype=np.float64)
        latitude = np.radians(0.5 * float(dem["ymin"] + dem["ymax"]))
        dx = float(dem["dx"]) * METRES_PER_DEGREE * float(np.cos(latitude))
        dy = float(dem["dy"]) * METRES_PER_DEGREE
    return z, dx, dy


def refine(z, k):
    """Put k - 1 nodes between neighbours, by linear interpolation down and then across."""
    ny, nx = z.shape
    rows = np.empty((k * (ny - 1) + 1, nx))
    rows[::k] = z
    for i in range(1, k):
        rows[i::k] = (1 - i / k) * z[:-1] + (i / k) * z[1:]
    fine = np.empty((rows.shape[0], k * (nx - 1) + 1))
    fine[:, ::k] = rows
    for i in range(1, k):
        fine[:, i::k] = (1 - i / k) * rows[:, :-1] + (i / k) * rows[:, 1:]
    return fine


def diffuse(z, dx, dy, steps):
    """The heights after some steps, and the time that has passed (years)."""
    z = z.copy()
    dt = STABILITY / (2 * DIFFUSIVITY * (1 / dx**2 + 1 / dy**2))
    cx, cy = DIFFUSIVITY * dt / dx**2, DIFFUSIVITY * dt / dy**2
    for _ in range(steps):
        inner = z[1:-1, 1:-1]
        inner += cy * (z[:-2, 1:-1] - 2 * inner + z[2:, 1:-1]) + cx * (
            z[1:-1, :-2] - 2 * inner + z[1:-1, 2:]
        )
        z[0], z[-1] = z[1], z[-2]
        z[:, 0], z[:, -1] = z[:, 1], z[:, -2]
    return z, steps * dt


def gradient(z, dx, dy):
    """Rise per metre towards the east and towards the north, on the inner nodes."""
    north, middle, south = z[:-2], z[1:-1], z[2:]
    columns = north + 2 * middle + south
    to_east = (columns[:, 2:] - columns[:, :-2]) / (8 * dx)
    rise = north - south
    to_north = (rise[:, :-2] + 2 * rise[:, 1:-1] + rise[:, 2:]) / (8 * dy)
    return to_east, to_north


def slope_and_aspect(z, dx, dy):
    """Steepness (rad), and the compass bearing of the way down (rad, clockwise from north)."""
    to_east, to_north = gradient(z, dx, dy)
    slope = np.arctan(np.hypot(to_east, to_north))
    aspect = np.arctan2(-to_east, -to_north) % (2 * np.pi)
    return slope, aspect


def shaded_relief(slope, aspect):
    """Brightness from 0 to 1 of a dull surface in the sun."""
    lit = np.sin(SUN_HEIGHT) * np.cos(slope)
    lit += np.cos(SUN_HEIGHT) * np.sin(slope) * np.cos(SUN_AZIMUTH - aspect)
    return np.clip(lit, 0.0, 1.0)


def describe(title, z, slope, aspect):
    """Print what a geomorphologist asks first."""
    degrees = np.degrees(slope)
    bearing = np.degrees(aspect)
    inner = z[1:-1, 1:-1]
    print(title)
    for what, a in (("height (m)", z), ("slope (deg)", degrees)):
        print(
            f"  {what:12} min {a.min():8.3f}  max {a.max():8.3f}"
            f"  mean {a.mean():8.3f}  std {a.std():8.3f}"
        )
    steep = degrees > 15
    gentle = degrees < 5
    print(f"  above 15 deg {100 * steep.mean():6.2f} %   below 5 deg  {100 * gentle.mean():6.2f} %")
    sloping = slope > 0  # flat ground faces nowhere
    north = sloping & ((bearing < 45) | (bearing >= 315))
    south = sloping & (bearing >= 135) & (bearing < 225)
    print(f"  facing north {100 * north.mean():6.2f} %   facing south {100 * south.mean():6.2f} %")
    if steep.any():
        print(f"  mean height of the steep ground {inner[steep].mean():.3f} m")


def draw(path, before, after, shades, counts):
    """Relief before and after, what went and what came, and the two histograms."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 9), layout="constrained")
    for ax, shade, title in zip(axes[0], shades, ("before", "after")):
        ax.imshow(shade, cmap="gray", vmin=0, vmax=1)
        ax.set_title(title)
        ax.set_axis_off()
    change = after - before
    limit = float(np.abs(change).max())
    image = axes[1, 0].imshow(change, cmap="RdBu", vmin=-limit, vmax=limit)
    figure.colorbar(image, ax=axes[1, 0], label="change of height (m)", shrink=0.8)
    axes[1, 0].set_axis_off()
    middles = 0.5 * (BINS[:-1] + BINS[1:])
    for offset, count, label in zip((-20.0, 20.0), counts, ("before", "after")):
        axes[1, 1].bar(middles + offset, count / count.sum(), width=36.0, label=label)
    axes[1, 1].set_xlabel("height (m)")
    axes[1, 1].set_ylabel("share of the area")
    axes[1, 1].legend()
    figure.savefig(path, dpi=100, metadata={"Software": None})


def main():
    """Load, diffuse, describe, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="time steps (300)")
    parser.add_argument("--refine", type=int, default=1, help="make the grid k times finer (1)")
    parser.add_argument("--output", default="terrain.png", help="the picture (terrain.png)")
    options = parser.parse_args()
    if options.steps < 0 or options.refine < 1:
        parser.error("steps cannot be negative, and a grid is refined 1 time or more")

    before, dx, dy = load()
    if options.refine > 1:
        before = refine(before, options.refine)
        dx, dy = dx / options.refine, dy / options.refine
    after, years = diffuse(before, dx, dy, options.steps)

    rows, columns = before.shape
    print(f"{rows} x {columns} nodes, {dx:.1f} m by {dy:.1f} m")
    print(f"{options.steps} steps, {years / 1e6:.2f} million years")
    shades, counts = [], []
    for title, z in (("before", before), ("after", after)):
        slope, aspect = slope_and_aspect(z, dx, dy)
        describe(title, z, slope, aspect)
        shades.append(shaded_relief(slope, aspect))
        counts.append(np.histogram(z, bins=BINS)[0])

    change = (after - before) * dx * dy / 1e9
    print(
        f"eroded {-change[change < 0].sum():.4f} km3, deposited {change[change > 0].sum():.4f} km3"
    )
    print("height (m)     before     after")
    for low, high, old, new in zip(BINS[:-1], BINS[1:], *counts):
        print(f"{low:5.0f} - {high:4.0f} {old:10d} {new:9d}")
    draw(options.output, before, after, shades, counts)


if __name__ == "__main__":
    main()
