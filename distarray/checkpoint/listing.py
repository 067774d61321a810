"""Lists of existing checkpoints."""

from os.path import realpath
from pathlib import Path

from distarray.checkpoint import background
from distarray.checkpoint.catalog import find, place_of
from distarray.checkpoint.catalog import steps as steps_of
from distarray.comm import DeviceMesh, default_mesh
from distarray.io.directories import recover_all
from distarray.io.file_paths import PathLike
from distarray.io.rank_zero import on_rank_zero

__all__ = ["latest", "steps"]


def latest(path: PathLike, *, mesh: DeviceMesh | None = None) -> Path | None:
    """Find the checkpoint of a directory's last step, or the checkpoint at a path; collective.

    Parameters
    ----------
    path : str or path-like
        As for :func:`save`.
    mesh : DeviceMesh, optional
        The mesh whose ranks call this function; by default the default mesh.

    Returns
    -------
    Path or None
        The checkpoint, None if there is no checkpoint; equal on all ranks.

    Examples
    --------
    >>> import tempfile, distarray
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/run")
    ...     print(latest(path))
    ...     for step in (10, 20):
    ...         saving = distarray.checkpoint.save(path, {"time": 0.1 * step}, step=step)
    ...     print(latest(path).name)
    None
    step-00000020
    """
    mesh = default_mesh() if mesh is None else mesh
    background.settle(mesh)
    place, error = place_of(path)

    def look() -> Path | None:
        try:
            return find(Path(realpath(place)))
        except (FileNotFoundError, ValueError):
            return None

    return on_rank_zero(mesh.group, look, f"checkpoint.latest: {place}", error)


def steps(path: PathLike, *, mesh: DeviceMesh | None = None) -> list[int]:
    """List the steps that have checkpoints in a directory, ascending; collective.

    Examples
    --------
    >>> import tempfile, distarray
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/run")
    ...     for step in (10, 20):
    ...         saving = distarray.checkpoint.save(path, {"time": 0.1 * step}, step=step)
    ...     print(steps(path))
    [10, 20]
    """
    mesh = default_mesh() if mesh is None else mesh
    background.settle(mesh)
    place, error = place_of(path)

    def look() -> list[int]:
        path = Path(realpath(place))
        recover_all(path)
        return steps_of(path)

    return on_rank_zero(mesh.group, look, f"checkpoint.steps: {place}", error)
