"""Session of a kernel with its ranks: sends cells, and receives outputs and errors."""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from distarray.notebook import engines
from distarray.notebook.outputs import MARK
from distarray.notebook.shapes import Argument, Pending, Shell
from distarray.notebook.stopping import SIGNAL

__all__ = ["RanksError", "Session"]

#: Seconds from an interrupt until the ranks must stop anywhere, and until they are ended if that
#: has not helped.
_SOON, _LATEST = 3.0, 6.0
#: Seconds between two checks for new outputs, and between two checks of the engines.
_TICK, _LOOK = 0.01, 0.2
#: Seconds to wait for outputs that arrive after their cell has ended, and for completions.
_OUTPUTS, _COMPLETIONS = 5.0, 5.0


class RanksError(Exception):
    """Error of the ranks, shown as they format it."""

    text = ""

    def _render_traceback_(self) -> list[str]:
        return self.text.rstrip("\n").splitlines()


class Session:
    """Ranks that run the cells; the first cell starts them.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
        The kernel's shell.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._ranks = 0
        self._engines: engines.Engines | None = None

    # -- engines ---------------------------------------------------------------------------------

    def engines(self) -> engines.Engines:
        """Return the engines, started or joined if there are none."""
        if self._engines is None:
            found = None if self._ranks else engines.join()
            ranks = self._ranks or engines.default_ranks()
            self._engines = engines.start(ranks) if found is None else found
            self._ranks = self._engines.size
            self._warn()
        return self._engines

    def _warn(self) -> None:
        assert self._engines is not None
        if len({fact["order"] for fact in self._engines.facts}) > 1:
            _say(
                "sets of text have another order on each of these engines: do not branch on it, "
                "or start them with PYTHONHASHSEED=0"
            )

    def status(self) -> str:
        """Return the number of ranks and their hosts, as text."""
        if self._engines is None:
            return "no ranks yet: the next cell starts them"
        hosts = [fact["host"] for fact in self._engines.facts]
        places = [f"{host}: {hosts.count(host)}" for host in dict.fromkeys(hosts)]
        return f"{self._engines.size} ranks ({', '.join(places)})"

    def change(self, ranks: int) -> None:
        """Continue with another number of ranks; names that a checkpoint can store are kept."""
        if self._engines is None:
            self._ranks = ranks
            self.engines()
            return
        place = tempfile.mkdtemp(prefix=".distarray-ranks-", dir=".")
        try:
            kept = self._result("save", f"{place}/state")
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        self.stop()
        self._ranks = ranks
        try:
            self.engines()
            self._result("load", f"{place}/state", kept["found"], kept["sources"])
        except BaseException:
            _say(f"the checkpoint of the variables is in {place}/state")
            raise
        shutil.rmtree(place)
        if kept["lost"]:
            _say(f"not kept: {', '.join(kept['lost'])}")

    def stop(self) -> None:
        """End the ranks; the next cell starts new ones."""
        found, self._engines = self._engines, None
        if found is not None:
            found.stop()

    def _restart(self, why: str) -> None:
        self.stop()
        _say(f"{why} The ranks are started anew, without variables.")
        self.engines()

    # -- cells -----------------------------------------------------------------------------------

    def run(self, source: str) -> None:
        """Execute a cell on all ranks, and show the outputs of rank 0.

        Raises
        ------
        RanksError
            If the cell fails.
        """
        count = self._shell.displayhook.prompt_count
        pending = self.engines().call("run", source, count)
        told = self._wait(pending)
        for note in told.notes:
            _say(note)
        if told.alone:
            self._restart("other ranks wait in vain for one that has failed, and cannot go on.")
        if told.name:
            raise _error(told.name, told.value, told.text)

    def _wait(self, pending: Pending) -> Any:
        """Show outputs until the ranks have finished a cell; return rank 0's outcome.

        If a rank has failed and the others do not arrive, return the outcome of that rank.
        """
        shown = _Shown(self._shell, self.engines().outputs(pending))
        interrupts = _Interrupts(self.engines())
        looked = time.monotonic()
        while not pending.ready():
            try:
                pending.wait(_TICK)
                shown.show()
                if time.monotonic() - looked > _LOOK:
                    looked = time.monotonic()
                    alone = self._look(pending, interrupts)
                    if alone is not None:
                        return alone
            except KeyboardInterrupt:
                interrupts.begin()
        pending.wait_for_output(_OUTPUTS)
        shown.show()
        try:
            return pending.get()[0]
        except Exception:
            if self.engines().are_there():
                raise
            self._lost()

    def _look(self, pending: Pending, interrupts: "_Interrupts") -> Any:
        """Check ranks that do not finish; return the outcome of one that failed alone, or None."""
        found = self.engines()
        if not found.are_there():
            self._lost()
        for child in pending._children:
            if child.done() and child.exception() is None and child.result().alone:
                return child.result()
        if interrupts.are_in_vain():
            self._restart("the ranks do not stop: they wait, or are in code that cannot stop.")
            raise _error("KeyboardInterrupt", "", "KeyboardInterrupt")
        return None

    def _lost(self) -> NoReturn:
        words = self.engines().last_words()
        self._restart("a rank has ended, and the others with it.")
        raise _error("RankLost", "a rank has ended", f"RankLost: a rank has ended\n{words}")

    def _result(self, name: str, *args: Argument) -> Any:
        """Return rank 0's result of a call of :mod:`distarray.notebook.cells` on all ranks."""
        pending = self.engines().call(name, *args)
        while not pending.ready():
            pending.wait(_LOOK)
            if not self.engines().are_there():
                self._lost()
        try:
            return pending.get()[0]
        except Exception as error:
            told = getattr(error, "elist", None) or [("RankError", str(error))]
            raise _error(told[0][0], told[0][1], f"{told[0][0]}: {told[0][1]}") from None

    # -- values ----------------------------------------------------------------------------------

    def pull(self, names: Sequence[str]) -> dict[str, Any]:
        """Return values of the ranks, arrays as whole NumPy arrays.

        Raises
        ------
        NameError
            If the ranks do not have one of the names.
        """
        found: dict[str, Any] = self._result("pull", list(names))
        missing = [name for name in names if name not in found]
        if missing:
            raise NameError(f"the ranks have no {', '.join(missing)}")
        return found

    def complete(self, text: str, position: int) -> list[tuple[int, str]]:
        """Return the completions at a position of a cell, with their starts; none without ranks."""
        if self._engines is None:
            return []
        try:
            found: list[tuple[int, str]] = self._engines.call_first("complete", text, position).get(
                _COMPLETIONS
            )[0]
        except Exception:  # timeout, or no rank: no completions
            return []
        return found


class _Interrupts:
    """Interrupts of one cell: first at an agreed place, then anywhere."""

    def __init__(self, found: engines.Engines) -> None:
        self._engines = found
        self._since = 0.0
        self._sent = 0

    def begin(self) -> None:
        """Ask the ranks to stop; at the second call they stop anywhere."""
        self._since = self._since or time.monotonic()
        self._send()

    def are_in_vain(self) -> bool:
        """Return True if the ranks did not stop in time; halfway, ask them to stop anywhere."""
        waited = time.monotonic() - self._since if self._since else 0.0
        if waited > _SOON and self._sent == 1:
            self._send()
        return waited > _LATEST

    def _send(self) -> None:
        self._sent += 1
        self._engines.interrupt(SIGNAL)


class _Shown:
    """Published outputs of a cell, and the number of outputs shown."""

    def __init__(self, shell: Shell, published: list[dict[str, Any]]) -> None:
        self._shell = shell
        self._published = published
        self._count = 0

    def show(self) -> None:
        """Show the new outputs."""
        for content in self._published[self._count :]:
            self._count += 1
            self._show(content["data"], dict(content["metadata"]))

    def _show(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        mark = metadata.pop(MARK, {"kind": "display"})
        kind = mark.pop("kind")
        if kind in ("stdout", "stderr"):
            getattr(sys, kind).write(data["text/plain"])
        elif kind == "clear":
            self._shell.display_pub.clear_output(**mark)
        elif kind == "result":
            hook = self._shell.displayhook
            hook.start_displayhook()
            hook.write_output_prompt()
            hook.write_format_data(data, metadata)
            hook.finish_displayhook()
        else:
            how = {key: value for key, value in mark.items() if value}
            self._shell.display_pub.publish(data, metadata, **how)


def _error(name: str, value: str, text: str) -> RanksError:
    """Return an error of the ranks, under the name of their exception."""
    error: RanksError = type(name, (RanksError,), {"__module__": "distarray"})(value)
    error.text = text
    return error


def _say(text: str) -> None:
    sys.stderr.write(f"distarray: {text}\n")
    sys.stderr.flush()
