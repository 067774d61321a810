"""Writing behind the program's back, without a word between the ranks.

Threads that write must not use MPI while the program does. So the ranks tell one another through
the file system: each has a file in the directory that is being written, whose name says whether it
is still writing, done or has failed. The thread of rank 0 waits until all are done, and gives the
checkpoint its name; no call of the program's is needed for that.
"""

import atexit
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from distarray.checkpoint.catalog import (
    directories_of,
    make_directories,
    step_path,
    steps,
    write_catalog,
)
from distarray.checkpoint.shard_writing import Shard, write_shards
from distarray.checkpoint.tree import Node
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.comm.endings import end_with_status
from distarray.io import directories
from distarray.io.atomic_file import named, on_first
from distarray.io.flushing import Flusher, syncs_at_once

__all__ = ["Aside", "Saving", "finish", "settle", "start"]

#: Seconds that rank 0 waits for other ranks after its own program has ended.
_PATIENCE = 600.0


class Aside(NamedTuple):
    """A checkpoint that is being written.

    Attributes
    ----------
    directory, final : Path
        Where it is written, and where it will be.
    step, keep : int or None
    node : dict
        The description of the state.
    stored : list of Stored
        Its arrays.
    """

    directory: Path
    final: Path
    step: int | None
    keep: int | None
    node: Node
    stored: list[Stored]

    def mark(self, rank: int, word: str) -> Path:
        """The file that says how far a rank is that writes in the background."""
        return self.directory / f".rank-{rank}.{word}"

    def describe(self, flusher: Flusher, rank: int, ranks: int) -> None:
        """Write a rank's share of the descriptions of arrays."""
        make_directories(self.directory, self.stored, flusher, rank, ranks)

    def commit(self) -> None:
        """Give it its name, once all files are on disk, and remove checkpoints too many.

        On one rank.
        """
        if not syncs_at_once(self.directory):
            directories.flush_up(directories_of(self.directory, self.stored))
        write_catalog(self.directory, self.step, self.node, self.stored)
        directories.commit(self.directory, self.final)
        if self.keep is not None:
            others = [step for step in steps(self.final.parent) if step != self.step]
            for step in others[: max(0, len(others) + 1 - self.keep)]:
                directories.remove(step_path(self.final.parent, step))
            directories.flush(self.final.parent)


class Saving:
    """A checkpoint that is being saved, or has been.

    Attributes
    ----------
    path : Path
        Where it is, or will be.

    Examples
    --------
    >>> import tempfile, distarray
    >>> x = distarray.numpy.arange(6.0)
    >>> with tempfile.TemporaryDirectory() as mine:  # of which all ranks take rank 0's
    ...     path = distarray.default_mesh().group.broadcast_object(mine + "/run")
    ...     saving = distarray.checkpoint.save(path, {"x": x}, asynchronous=True)
    ...     x += 1  # the program goes on
    ...     print(saving.wait().name, saving.done)
    run True
    """

    def __init__(self, path: Path, mesh: DeviceMesh, writer: "_Writer | None" = None) -> None:
        self.path = path
        self.mesh = mesh
        self._writer = writer

    @property
    def done(self) -> bool:
        """Whether this rank has nothing left to do; on rank 0: whether all is done. Local."""
        return self._writer is None or not self._writer.thread.is_alive()

    def wait(self) -> Path:
        """Wait until the checkpoint is there; collective.

        Raises
        ------
        OSError
            If saving has failed on any rank, on all ranks; once.

        Cost
        ----
        Two small agreements, after the time that writing still takes.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            with _lock:
                _pending[:] = [other for other in _pending if other is not self]
            _finish(writer, self.mesh)
        return self.path

    def __repr__(self) -> str:
        return f"<Saving {self.path}{'' if self.done else ', in the background'}>"


_lock = threading.Lock()
_pending: list[Saving] = []


class _Writer:
    """One rank's thread."""

    def __init__(self, aside: Aside, shards: list[Shard], mesh: DeviceMesh) -> None:
        self.aside, self.shards = aside, shards
        self.rank, self.ranks = mesh.rank, mesh.size()
        self.process = os.getpid()
        self.error: Exception | None = None
        self.committed = False
        self.written = threading.Event()
        #: What all ranks have agreed on: to give the checkpoint its name, or to give it up.
        self.verdict: bool | None = None
        self.told = threading.Condition()
        self.thread = threading.Thread(target=self._run, name=f"saving {aside.final.name}")

    def _run(self) -> None:
        try:
            with Flusher(self.aside.directory) as flusher:
                self.aside.describe(flusher, self.rank, self.ranks)
                while self.shards:  # each is given up as soon as it is written
                    write_shards(
                        self.aside.directory, [self.shards.pop(0)], flusher, lambda count: None
                    )
        except Exception as caught:
            self.error = named(caught, str(self.aside.directory), str(self.aside.final))
        self.shards.clear()
        try:
            word = "failed" if self.error else "done"
            os.rename(self.aside.mark(self.rank, "writing"), self.aside.mark(self.rank, word))
        except OSError as caught:
            self.error = self.error or caught
        self.written.set()
        if self.rank == 0:
            self._conclude()

    def _conclude(self) -> None:
        try:
            if self._all_done() and self.error is None:
                for name in os.listdir(self.aside.directory):
                    if name.startswith(".rank-"):
                        os.unlink(self.aside.directory / name)
                self.aside.commit()
                self.committed = True
        except Exception as caught:
            self.error = caught
        if not self.committed:
            directories.discard(self.aside.directory)

    def _all_done(self) -> bool:
        """Wait until no rank writes any more; whether all have finished well.

        Also where this rank has failed: the directory must stay as long as others write there.
        """
        pause, deadline = 0.001, None
        while True:
            with self.told:
                if self.verdict is not None:
                    return self.verdict
            names = [n for n in os.listdir(self.aside.directory) if n.startswith(".rank-")]
            done = sum(name.endswith(".done") for name in names)
            if done + sum(name.endswith(".failed") for name in names) == self.ranks:
                return done == self.ranks
            if deadline is None and not threading.main_thread().is_alive():
                deadline = time.monotonic() + _PATIENCE
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.aside.final}: not all ranks have finished writing")
            with self.told:
                self.told.wait_for(lambda: self.verdict is not None, pause)
            pause = min(2 * pause, 0.5)

    def tell(self, verdict: bool) -> None:
        """What the ranks have agreed on."""
        with self.told:
            self.verdict = verdict
            self.told.notify_all()


def start(aside: Aside, shards: list[Shard], mesh: DeviceMesh) -> Saving:
    """Begin to write what has been copied; collective, raises what hinders it at once."""
    agreed(mesh.group, lambda: aside.mark(mesh.rank, "writing").touch(exist_ok=False))
    writer = _Writer(aside, shards, mesh)
    saving = Saving(aside.final, mesh, writer)
    with _lock:
        atexit.unregister(_at_exit)  # one report, however often the program has saved
        atexit.register(_at_exit)
        _pending.append(saving)
    writer.thread.start()
    return saving


def _finish(writer: _Writer, mesh: DeviceMesh) -> None:
    writer.written.wait()
    try:
        agreed(mesh.group, lambda: _raise(writer.error if mesh.rank else None))
        writer.tell(True)
    except BaseException:
        writer.tell(False)
        writer.thread.join()
        raise
    writer.thread.join()
    on_first(mesh.group, lambda: _raise(writer.error))


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


def settle(mesh: DeviceMesh) -> None:
    """Wait for what is being saved by ranks of a mesh, and raise what went wrong; collective."""
    with _lock:
        mine = [saving for saving in _pending if _within(saving.mesh, mesh)]
    for saving in mine:
        saving.wait()


def _within(small: DeviceMesh, large: DeviceMesh) -> bool:
    return small._root is large._root and set(small.ranks) <= set(large.ranks)


def _in_forked_child() -> None:
    """Its parent has the threads that write."""
    global _lock
    _lock = threading.Lock()
    for saving in _pending:
        saving._writer = None
    _pending.clear()


os.register_at_fork(after_in_child=_in_forked_child)


def finish() -> None:
    """Wait for what this rank is still saving, and raise the first thing that went wrong. Local.

    For the end of the program, after which nobody asks any more.
    """
    with _lock:
        mine, _pending[:] = list(_pending), []
    found: Exception | None = None
    for saving in mine:
        writer = saving._writer
        if writer is None or writer.process != os.getpid():  # a forked child has no such thread
            continue
        writer.thread.join()
        if writer.error is not None and found is None:
            found = writer.error
            found.add_note(f"checkpoint.save: {saving.path} is not saved")
    _raise(found)


def _at_exit() -> None:
    """Say at the end of the program what nobody has asked for, and have it end with a status."""
    try:
        finish()
    except Exception as error:
        end_with_status(error)
