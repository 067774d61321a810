"""Notebooks: ``%load_ext distarray`` in a Jupyter kernel runs its cells on the ranks of a job.

The kernel starts the ranks as engines of ipyparallel, under mpiexec, or joins existing engines. It
sends each cell to all ranks, and shows the output that rank 0 has printed and displayed. This
package has two sides: the kernel executes `magics`, `session` and `engines`; the ranks execute
`engine`, `cells`, `outputs`, `stopping` and `names`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distarray.notebook.shapes import Shell

__all__ = ["load", "unload"]


def load(shell: "Shell") -> None:
    """Make the cells of an IPython shell run on ranks, which the first cell starts.

    Raises
    ------
    ImportError
        If ipyparallel is not installed; the message names the extra.
    """
    from distarray.lazy import needs

    needs("ipyparallel", "notebook")
    from distarray.notebook.magics import install

    install(shell)


def unload(shell: "Shell") -> None:
    """Let cells run in the kernel again, and end the ranks."""
    from distarray.notebook.magics import remove

    remove(shell)
