"""``mpiexec -n P python -m distarray script.py [args]``: run a NumPy program distributed.

``--coverage`` and ``--array-api`` print how much of NumPy and of the array API standard is covered.
``--scaling`` is called without mpiexec: it starts mpiexec itself, with several numbers of ranks.
"""

import sys
import warnings
from itertools import pairwise
from types import ModuleType

from distarray.lazy import after_import
from distarray.runner.alike import same_order
from distarray.runner.files import FILES


def print_coverage() -> None:
    """Print how many functions are implemented, composed and falling back."""
    from distarray.comm import default_mesh
    from distarray.coverage import summary

    if default_mesh().rank == 0:
        print(summary())


def print_array_api() -> None:
    """Compare this package with array-api-strict on all ranks of the job; print the counts."""
    from distarray.comm import default_mesh
    from distarray.comm.hooks import AgreedExit
    from distarray.lazy import needs

    mesh = default_mesh()
    try:
        needs("array_api_strict", "test")
    except ImportError as missing:
        if mesh.rank == 0:
            print(f"distarray: {missing}", file=sys.stderr)
        raise AgreedExit(1) from None

    from distarray.testing.array_api import report

    warnings.simplefilter("ignore")
    found = report(mesh)
    if mesh.rank == 0:
        print(f"array API standard on {mesh.size()} rank(s)", *found, sep="\n")
    if any(part.differ for part in found):
        raise AgreedExit(1)


def prepare_terminal(module: ModuleType) -> None:
    """Make all ranks share one IPython prompt."""
    from distarray.notebook.terminal import prepare

    prepare(module)


if __name__ == "__main__":
    if sys.argv[1:] == ["--coverage"]:
        print_coverage()
    elif sys.argv[1:] == ["--array-api"]:
        print_array_api()
    elif sys.argv[1:2] and sys.argv[1].partition("=")[0] == "--scaling":
        from distarray.profiling.scaling.main import main as scale

        sys.exit(scale(sys.argv[1:]))
    else:
        same_order()
        FILES.install()  # before the import of NumPy, which keeps references to `open`

        from distarray.runner.main import main

        if ("-m", "IPython") in pairwise(sys.argv) or "-mIPython" in sys.argv:
            after_import("IPython.terminal.interactiveshell", prepare_terminal)
        main()
