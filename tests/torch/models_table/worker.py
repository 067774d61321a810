"""One rank of a job: what comes of each model in each way."""

from __future__ import annotations

import faulthandler
import json
import sys
import warnings
from pathlib import Path

import torch

from distarray.errors import PerformanceWarning
from tests.torch.models_table.ways import Difference, run
from tests.torch.opinfo.judging import WORDS, Case
from tests.torch.opinfo.variants import Unit
from tests.torch.opinfo.worker import STARTING, TODO, Rank


class ModelRank(Rank):
    """A rank whose units are a model in a way."""

    def _cases(self, unit: Unit) -> tuple[list[Case], tuple[str, ...]]:
        self._say(unit, "running", [])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            case = self._case(unit)
        gathers = [w for w in caught if issubclass(w.category, PerformanceWarning)]
        words = case.words or (str(gathers[0].message)[:WORDS] if gathers else "")
        case = case._replace(words=words, gathered=bool(gathers))
        self._say(unit, "ran", [case])
        return [case], ()

    def _case(self, unit: Unit) -> Case:
        try:
            run(unit.name, unit.form, self.mesh.group)
        except Difference as error:
            return Case("wrong", str(error))
        except Exception as error:
            words = " ".join(str(error).split())
            return Case("refused", f"{type(error).__name__}: {words}"[:WORDS])
        return Case("right")


def main(place: Path) -> None:
    """Run what is to be run until all is, or until the ranks have parted."""
    faulthandler.dump_traceback_later(STARTING, exit=True)
    torch.set_num_threads(1)
    todo = json.loads((place / TODO).read_text())
    rank = ModelRank(place, todo)
    for name, form in todo["units"]:
        if not rank.run(Unit(name, form)):
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]))
