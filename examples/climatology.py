"""The climate of an invented planet, from a data set that does not fit into one rank's memory.

Daily temperatures of many years are one array of time, latitude and longitude in an HDF5, NetCDF or
Zarr file. Each rank reads the latitudes that are its own; the mean year, the warming and the yearly
series of the whole globe need next to no communication. The result is printed and painted.

    mpiexec -n 4 python climatology.py --make planet.h5                  # 30 years, 454 MB
    (ulimit -d 400000; mpiexec -n 4 python climatology.py planet.h5)     # 400 MB a rank
"""

import argparse
import resource

import arguments
import distarray
import distarray.io as io
import distarray.numpy as np

DAYS = 365


def planet(rows):
    """Latitudes and longitudes in radians, and how much of a continent is where: 0 (sea) to 1."""
    y = np.linspace(-np.pi / 2, np.pi / 2, 2 * rows + 1)[1::2].reshape(-1, 1)
    x = np.linspace(-np.pi, np.pi, 4 * rows + 1)[1::2].reshape(1, -1)
    shape = (
        np.sin(2 * x + 1) * np.cos(y) + np.cos(3 * x - 2 * y) * 0.6 + np.sin(5 * y + x) * 0.4
        + np.cos(7 * x + 3 * y) * 0.2 - 0.25
    )  # fmt: skip
    return y, x, 1 / (1 + np.exp(-6 * shape))


def weather(years, rows):
    """Daily temperatures in degrees Celsius: time, latitude, longitude; each rank its latitudes."""
    y, _, land = planet(rows)
    day = np.arange(years * DAYS).reshape(-1, 1, 1)
    season = np.cos(2 * np.pi * (day - 196) / DAYS)
    mean = 28 * np.cos(y) ** 2 - 14 - 6 * land
    swing = np.sin(y) * (4 + 18 * land)
    warming = (0.02 + 0.03 * np.sin(np.abs(y)) ** 2) * (1 + 0.5 * land) / DAYS
    field = np.zeros((years * DAYS, rows, 2 * rows), "f4")
    field = field.redistribute(placements=[distarray.Shard(1)])
    noise = np.random.default_rng(2026)
    for year in range(years):  # one year's temporaries at a time
        now = slice(year * DAYS, (year + 1) * DAYS)
        storms = noise.standard_normal((DAYS, rows, 2 * rows), dtype="f4")
        field[now] = mean + swing * season[now] + warming * day[now] + 2 * storms
    return field


def climate(temperature):
    """Mean year, warming per decade at each place, and the globe's mean of each year."""
    years = temperature.shape[0] // DAYS
    by_year = temperature[: years * DAYS].reshape(years, DAYS, *temperature.shape[1:])
    annual = by_year.mean(axis=1, dtype="f8")
    when = np.arange(years).reshape(-1, 1, 1) - (years - 1) / 2
    warming = 10 * (when * annual).sum(axis=0) / (when**2).sum()
    weight = np.cos(planet(temperature.shape[1])[0])
    globe = (annual * weight).sum(axis=(1, 2)) / (weight.sum() * temperature.shape[2])
    return by_year.mean(axis=0, dtype="f8"), warming, globe


def paint(path, mean_year, warming, globe):
    """A picture of it all, drawn by one rank."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panes = plt.subplots(2, 2, figsize=(11, 6.5), layout="constrained")
    box = {"extent": (-180, 180, -90, 90), "origin": "lower", "aspect": "auto"}
    swing = mean_year.max(axis=0) - mean_year.min(axis=0)
    for pane, values, title, colours in (
        (panes[0, 0], mean_year.mean(axis=0), "mean temperature (°C)", "RdYlBu_r"),
        (panes[0, 1], swing, "warmest minus coldest day of the mean year (K)", "magma"),
        (panes[1, 0], warming, "warming (K per decade)", "OrRd"),
    ):
        figure.colorbar(pane.imshow(values, cmap=colours, **box), ax=pane)
        pane.set(title=title, xlabel="longitude", ylabel="latitude")
    panes[1, 1].plot(range(1, len(globe) + 1), globe, "o-", color="firebrick")
    panes[1, 1].set(title="mean of the globe (°C)", xlabel="year")
    figure.savefig(path, dpi=90)


def make(path, years, rows):
    """Invent the weather and write it."""
    chunks = {} if str(path).endswith(".zarr") else {"chunks": (DAYS, max(1, rows // 12), 2 * rows)}
    io.write(path, {"t2m": weather(years, rows)}, **chunks)
    if distarray.default_mesh().rank == 0:
        print(f"{path}: {years} years, {4 * years * DAYS * rows * 2 * rows / 1e6:.0f} MB")


def study(path, picture):
    """Read the temperatures and tell what they show."""
    rank = distarray.default_mesh().rank
    with io.open(path) as file:
        variable = file["t2m"]
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        allowed = "no limit" if limit == resource.RLIM_INFINITY else f"{limit / 1e6:.0f} MB"
        if rank == 0:
            print(f"{path}: {variable.nbytes / 1e6:.0f} MB; memory of a rank: {allowed}")
        temperature = variable.read(placements=[distarray.Shard(1)])
    mean_year, warming, globe = climate(temperature)
    print_once = print if rank == 0 else (lambda *words: None)
    globe, extremes = globe.full(), (mean_year.min(), mean_year.max())
    print_once(f"mean year: {float(extremes[0]):.2f} to {float(extremes[1]):.2f} °C")
    print_once(f"globe: {globe[0]:.3f} °C in the first year, {globe[-1]:.3f} °C in the last")
    print_once(f"warming: {float(warming.min()):.3f} to {float(warming.max()):.3f} K per decade")
    block = temperature.to_local().nbytes / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print_once(f"rank 0 holds {block:.0f} MB of it; its memory at the highest: {peak:.0f} MB")
    if picture:
        parts = [part.gather(root=0) for part in (mean_year, warming)]
        if rank == 0:
            paint(picture, *parts, globe)
            print(f"painted {picture}")


def main():
    """Make the data set, or study it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", help="a .h5, .nc or .zarr file")
    parser.add_argument("--make", action="store_true", help="invent the data set")
    positive = arguments.positive
    parser.add_argument("--years", type=positive, default=30)
    parser.add_argument(
        "--rows", type=positive, default=72, help="latitudes; twice as many longitudes"
    )
    parser.add_argument("--picture", type=arguments.picture, help="file name of the picture")
    options = arguments.parse(parser)
    try:
        if options.make:
            make(options.path, options.years, options.rows)
        else:
            study(options.path, options.picture)
    except (OSError, ValueError, KeyError) as error:  # of the file: on all ranks alike
        with arguments.told_once():
            parser.error(str(error))


if __name__ == "__main__":
    main()
