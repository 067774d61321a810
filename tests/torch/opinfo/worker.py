"""One rank of a job: judge the units that are to be done, one after the other.

Before each case a rank notes in a file of its own where it is, and a watchdog ends it, and with it
the job, if a unit takes too long. So whoever started the job can tell which unit hung, and which
rank raised an exception there that the others did not.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from pathlib import Path
from typing import IO, Any

import torch
from mpi4py import MPI

from distarray.comm import DeviceMesh, init_device_mesh
from tests.torch.opinfo import faults
from tests.torch.opinfo.judging import Case, LeftOut, judge, merged, verdict
from tests.torch.opinfo.variants import Unit, variants

__all__ = ["NOTE", "RECORD", "STACKS", "TODO"]

#: Files of a job in its directory: what is to be done, what came of it, and for each rank where it
#: is and its stack when it was ended.
TODO, RECORD, NOTE, STACKS = "todo.json", "record", "note-{}", "stacks-{}"
#: Seconds for the start; importing torch takes some.
STARTING = 180.0


class Rank:
    """This process: its mesh, a communicator for the harness alone, and its files.

    Of `todo` it reads how many samples of a variant are run ("samples"), how long it waits for a
    verdict ("patience"), and a file to which verdicts are added as well ("out", or None).
    """

    def __init__(self, place: Path, todo: dict[str, Any]) -> None:
        self.comm = MPI.COMM_WORLD.Dup()
        self.mesh: DeviceMesh = init_device_mesh("cpu", (self.comm.size,))
        self.samples: int = todo["samples"]
        self.patience: float = todo["patience"]
        kept = [place / RECORD, *([todo["out"]] if todo["out"] else [])]
        self.records = [open(path, "a") for path in kept if self.comm.rank == 0]  # noqa: SIM115
        self.note = (place / NOTE.format(self.comm.rank)).open("w")
        self.stacks = (place / STACKS.format(self.comm.rank)).open("w")

    def run(self, unit: Unit) -> bool:
        """Judge a unit and write it down; whether the ranks are still together."""
        faulthandler.dump_traceback_later(self.patience, exit=True, file=self.stacks)
        began = time.perf_counter()
        found, why = self._cases(unit)
        self._say(unit, "comparing", found)
        ranks = self.comm.allgather((found, why))
        faulthandler.cancel_dump_traceback_later()
        entry = _entry(ranks)
        entry |= {"variant": unit.name, "form": unit.form, "ranks": self.comm.size}
        entry["seconds"] = round(time.perf_counter() - began, 3)
        for record in self.records:
            print(json.dumps(entry), file=record, flush=True)
        return entry["verdict"] != "parted"

    def _cases(self, unit: Unit) -> tuple[list[Case], tuple[str, ...]]:
        found: list[Case] = []
        self._say(unit, "making samples", found)
        try:
            for where, run in judge(unit, variants()[unit.name], self.samples):
                self._say(unit, where, found)
                found.append(run(self.mesh))
        except LeftOut as left:
            return found, left.args
        return found, ()

    def _say(self, unit: Unit, where: str, found: list[Case]) -> None:
        refused = [case for case in found if case.came == "refused"]
        words = {"unit": unit, "where": where, "refused": refused[-1:]}
        _rewrite(self.note, json.dumps(words))


def _rewrite(file: IO[str], text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _entry(ranks: list[tuple[list[Case], tuple[str, ...]]]) -> dict[str, Any]:
    """The verdict on a unit from what the ranks found."""
    if len({(len(found), why) for found, why in ranks}) > 1:
        said = [f"{len(found)} cases {why}" for found, why in ranks]
        return {"verdict": "parted", "reason": f"the ranks' samples differ: {said}"}
    if ranks[0][1]:
        came, reason = ranks[0][1]
        return {"verdict": came, "reason": reason}
    found = merged([cases for cases, _ in ranks])
    came, case = verdict(found)
    return {
        "verdict": came,
        "reason": case.words,
        "where": case.where,
        "cases": len(found),
        "right": sum(one.came == "right" for one in found),
        "gathered": sum(one.came == "right" and one.gathered for one in found),
    }


def main(place: Path) -> None:
    """Judge what is to be done until all is, or until the ranks have parted."""
    faulthandler.dump_traceback_later(STARTING, exit=True)
    torch.set_num_threads(1)
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # what it imports takes seconds
    todo = json.loads((place / TODO).read_text())
    faults.plant(todo["planted"])
    rank = Rank(place, todo)
    for name, form in todo["units"]:
        if not rank.run(Unit(name, form)):
            break  # what the ranks say to one another next may be about something else


if __name__ == "__main__":
    main(Path(sys.argv[1]))
