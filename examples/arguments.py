"""Command lines of programs that every rank runs: a mistake is told once, by rank 0."""

import argparse
import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import distarray as da

__all__ = ["count", "directory", "parse", "picture", "positive", "told_once"]


@contextmanager
def told_once():
    """What argparse prints inside, usage or help, rank 0 prints, before any rank ends."""
    mesh = da.default_mesh()
    try:
        if mesh.rank == 0:
            yield
        else:
            with redirect_stdout(None), redirect_stderr(None):
                yield
    finally:
        sys.stdout.flush()
        mesh.group.barrier()


def parse(parser, argv=None):
    """The options on the command line."""
    with told_once():
        return parser.parse_args(argv)


def count(text):
    """A number that may be 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is negative")
    return number


def positive(text):
    """A number of which there is at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def picture(text):
    """Where a file can be written: to be known before the work, not after it."""
    where = Path(text).absolute().parent
    if Path(text).is_dir() or not os.access(where, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written")
    return text


def directory(text):
    """A directory, or where one can be made."""
    if Path(text).exists() and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file, not a directory")
    return text
