"""State that the ranks of a program share: random numbers, process number, files."""

import os

from distarray.runner import alike, chance, classes
from distarray.runner.answers import Answers
from distarray.runner.disk import Disk
from distarray.runner.files import FILES
from distarray.runner.paths import Paths
from distarray.runner.talk import Line

__all__ = ["share"]


def share(line: Line, answers: Answers) -> None:
    """Give all ranks one seed, rank 0's process number, and one set of files; collective."""
    paths = Paths(line, answers)
    seed, process = line.broadcast_object((os.urandom(32), os.getpid()), 0)
    chance.install(seed)
    alike.install(answers, process)
    classes.install()
    FILES.start(paths)
    Disk(paths).install()
