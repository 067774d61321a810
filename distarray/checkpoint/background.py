"""Writing of checkpoints in the background, without messages between the ranks.

The writing threads must not use MPI while the program uses it. Therefore the ranks communicate
through the file system: each rank has a mark file in the directory that is being written. The
file's name shows whether the rank is still writing, is done or has failed. The thread of rank 0
waits until all ranks are done, and renames the directory to its final name; this needs no call by
the program.
"""

import atexit
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from distarray.checkpoint.catalog import (
    OLDER,
    directories_of,
    make_directories,
    write_catalog,
)
from distarray.checkpoint.chunk_checksums import Written, as_table, as_texts, table_from
from distarray.checkpoint.generations import make_room, retire
from distarray.checkpoint.shard_writing import Shard, write_shards
from distarray.checkpoint.tree import Node
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm import DeviceMesh, hooks, thread_start
from distarray.comm.agree import agreed
from distarray.comm.exit_status import end_with_status
from distarray.io import directories
from distarray.io.atomic_file import with_final_name
from distarray.io.flushing import Flusher, syncs_at_once
from distarray.io.rank_zero import on_rank_zero
from distarray.typing import Array

__all__ = ["Unfinished", "Saving", "finish", "settle", "start"]

#: Seconds that rank 0 waits for other ranks after its own program has ended.
_PATIENCE = 600.0


class Unfinished(NamedTuple):
    """Checkpoint that is being written.

    Attributes
    ----------
    directory, final : Path
        The directory that is written, and its final path.
    step, keep : int or None
    node : dict
        The description of the state.
    stored : list of Stored
        The arrays of the state.
    """

    directory: Path
    final: Path
    step: int | None
    keep: int | None
    node: Node
    stored: list[Stored]

    def mark(self, rank: int, word: str) -> Path:
        """Return the path of a rank's mark file; `word` is "writing", "done" or "failed"."""
        return self.directory / f".rank-{rank}.{word}"

    def tell(self, rank: int, written: Written) -> None:
        """Write the table of the chunks that the rank has written into its mark file."""
        handle = os.open(self.mark(rank, "writing"), os.O_WRONLY | os.O_CLOEXEC)
        try:
            data = as_table(written, self.stored).tobytes()
            while data:  # not by a file object: under the runner only rank 0's file objects write
                data = data[os.write(handle, data) :]
        finally:
            os.close(handle)

    def describe(self, flusher: Flusher, rank: int, ranks: int) -> None:
        """Write a rank's share of the arrays' metadata."""
        make_directories(self.directory, self.stored, flusher, rank, ranks)

    def make_room(self) -> None:
        """Remove old generations that no load needs any more. On one rank."""
        make_room(self.final, self.step, sum(stored.nbytes for stored in self.stored))

    def commit(self, tables: Iterable[Array]) -> None:
        """Rename the checkpoint to its final name, and remove old checkpoints. On one rank.

        All files must be on disk.

        Parameters
        ----------
        tables : iterable of array
            The table of written chunks of each rank.
        """
        if not syncs_at_once(self.directory):
            directories.flush_up(directories_of(self.directory, self.stored))
        texts = as_texts(tables, self.stored)
        write_catalog(self.directory, self.step, self.node, self.stored, texts)
        directories.commit(self.directory, self.final, OLDER)
        retire(self.final, self.step, self.keep)


class Saving:
    """Checkpoint that is being saved, or has been saved.

    Attributes
    ----------
    path : Path
        The path of the checkpoint, which exists when saving is complete.

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
        """True if this rank, or on rank 0 all ranks, have finished writing. Local."""
        return self._writer is None or not self._writer.thread.is_alive()

    def wait(self) -> Path:
        """Wait until the checkpoint is complete; collective.

        Raises
        ------
        OSError
            On all ranks, if saving has failed on one rank; only at the first call.

        Cost
        ----
        Two small allreduces, after the remaining time of the writing.
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
    """Thread that writes one rank's shards."""

    def __init__(self, new: Unfinished, shards: list[Shard], mesh: DeviceMesh) -> None:
        self.new, self.shards = new, shards
        self.rank, self.ranks = mesh.rank, mesh.size()
        self.process = os.getpid()
        self.error: Exception | None = None
        self.committed = False
        self.written = threading.Event()
        #: Agreement of all ranks: True if the checkpoint is to get its final name, None before.
        self.verdict: bool | None = None
        self.told = threading.Condition()
        self.thread = threading.Thread(target=self._run, name=f"saving {new.final.name}")

    def begin(self) -> None:
        """Start the thread; if no thread can be started, write in this call.

        This does not affect the other ranks, whose threads write at the same time.
        """
        error = thread_start.try_start(self.thread)
        if error is not None:
            hooks.say(f"rank {self.rank} saves {self.new.final} while the program waits: {error}")
            self._run()

    def join(self) -> None:
        """Wait until this rank's thread has ended."""
        if self.thread.ident is not None:
            self.thread.join()

    def _run(self) -> None:
        try:
            with Flusher(self.new.directory) as flusher:
                if self.rank == 0:
                    self.new.make_room()
                self.new.describe(flusher, self.rank, self.ranks)
                written: Written = []
                while self.shards:  # the memory of a shard is freed as soon as it is written
                    some = [self.shards.pop(0)]
                    write_shards(self.new.directory, some, flusher, written, lambda count: None)
            self.new.tell(self.rank, written)
        except Exception as caught:
            self.error = with_final_name(caught, str(self.new.directory), str(self.new.final))
        self.shards.clear()
        try:
            word = "failed" if self.error else "done"
            os.rename(self.new.mark(self.rank, "writing"), self.new.mark(self.rank, word))
        except OSError as caught:
            self.error = self.error or caught
        self.written.set()
        if self.rank == 0:
            self._conclude()

    def _conclude(self) -> None:
        try:
            if self._all_done() and self.error is None:
                marks = [self.new.mark(rank, "done") for rank in range(self.ranks)]
                tables = [table_from(mark.read_bytes()) for mark in marks]
                for mark in marks:
                    os.unlink(mark)
                self.new.commit(tables)
                self.committed = True
        except Exception as caught:
            self.error = caught
        if not self.committed:
            directories.discard(self.new.directory)

    def _all_done(self) -> bool:
        """Wait until no rank writes any more; return True if no rank has failed.

        This rank waits even if it has failed: the directory must exist while other ranks write.
        """
        pause, deadline = 0.001, None
        while True:
            with self.told:
                if self.verdict is not None:
                    return self.verdict
            names = [n for n in os.listdir(self.new.directory) if n.startswith(".rank-")]
            done = sum(name.endswith(".done") for name in names)
            if done + sum(name.endswith(".failed") for name in names) == self.ranks:
                return done == self.ranks
            if deadline is None and not threading.main_thread().is_alive():
                deadline = time.monotonic() + _PATIENCE
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.new.final}: not all ranks have finished writing")
            with self.told:
                self.told.wait_for(lambda: self.verdict is not None, pause)
            pause = min(2 * pause, 0.5)

    def tell(self, verdict: bool) -> None:
        """Pass the agreement of the ranks to the waiting thread."""
        with self.told:
            self.verdict = verdict
            self.told.notify_all()


def start(new: Unfinished, shards: list[Shard], mesh: DeviceMesh) -> Saving:
    """Start writing shards that have been copied; raise at once if that fails. Collective."""
    agreed(mesh.group, lambda: new.mark(mesh.rank, "writing").touch(exist_ok=False))
    writer = _Writer(new, shards, mesh)
    saving = Saving(new.final, mesh, writer)
    with _lock:
        atexit.unregister(_at_exit)  # so that it is registered only once
        atexit.register(_at_exit)
        _pending.append(saving)
    writer.begin()
    return saving


def _finish(writer: _Writer, mesh: DeviceMesh) -> None:
    writer.written.wait()
    try:
        agreed(mesh.group, lambda: _raise(writer.error if mesh.rank else None))
        writer.tell(True)
    except BaseException:
        writer.tell(False)
        writer.join()
        raise
    writer.join()
    on_rank_zero(mesh.group, lambda: _raise(writer.error))


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


def settle(mesh: DeviceMesh) -> None:
    """Wait for the background saves of a mesh's ranks, and raise their errors; collective."""
    with _lock:
        mine = [saving for saving in _pending if _within(saving.mesh, mesh)]
    for saving in mine:
        saving.wait()


def _within(small: DeviceMesh, large: DeviceMesh) -> bool:
    return small._root is large._root and set(small.ranks) <= set(large.ranks)


def _in_forked_child() -> None:
    """Forget the writing threads in the child: they belong to the parent."""
    global _lock
    _lock = threading.Lock()
    for saving in _pending:
        saving._writer = None
    _pending.clear()


os.register_at_fork(after_in_child=_in_forked_child)


def finish() -> None:
    """Wait for this rank's background saves, and raise the first error. Local.

    The function is called at the end of the program, after which no call could raise the error.
    """
    with _lock:
        mine, _pending[:] = list(_pending), []
    found: Exception | None = None
    for saving in mine:
        writer = saving._writer
        if writer is None or writer.process != os.getpid():  # not in a forked child
            continue
        writer.join()
        if writer.error is not None and found is None:
            found = writer.error
            found.add_note(f"checkpoint.save: {saving.path} is not saved")
    _raise(found)


def _at_exit() -> None:
    """Report errors at the end of the program, which then ends with a nonzero exit status."""
    try:
        finish()
    except Exception as error:
        end_with_status(error)
