"""Command lines of programs that every rank runs: a mistake is told once, by rank 0."""

import argparse
import io
import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import distarray as da

__all__ = ["count", "device", "directory", "parse", "picture", "positive", "told_once"]


@contextmanager
def told_once():
    """What argparse prints inside, usage or help, rank 0 prints, before any rank ends."""
    mesh = da.default_mesh()
    try:
        if mesh.rank == 0:
            yield
        else:
            unheard = io.StringIO()  # not None, which argparse of Python 3.11.2 would write to
            with redirect_stdout(unheard), redirect_stderr(unheard):
                yield
    finally:
        sys.stdout.flush()
        mesh.group.barrier()


def parse(parser, argv=None):
    """The options on the command line."""
    with told_once():
        return parser.parse_args(argv)


def device(name):
    """The torch device of that name on this rank; where there is none, the program ends."""
    import distarray.torch as dt

    try:
        return dt.start(name)
    except (ImportError, RuntimeError) as error:  # no torch, no such device
        with told_once():
            print(error, file=sys.stderr)
        raise SystemExit(2) from None


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
    from matplotlib.backend_bases import FigureCanvasBase

    where = Path(text).absolute().parent
    if Path(text).is_dir() or not os.access(where, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written")
    kinds = FigureCanvasBase.get_supported_filetypes()
    if Path(text).suffix[1:].lower() not in {"", *kinds}:
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(kinds)}")
    return text


def directory(text):
    """A directory, or where one can be made."""
    if Path(text).exists() and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file, not a directory")
    return text
