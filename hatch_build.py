"""Build the short ways of small arrays, which are in C (distarray/array/speedups).

Without a compiler, or with DISTARRAY_SPEEDUPS=0 in the environment, the package is pure Python: it
does the same, and takes longer in loops over small arrays.
"""

import os
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = Path("distarray", "array", "speedups")
#: What is compiled for this interpreter; those of others may lie beside it.
COMPILED = f"_ways{sysconfig.get_config_var('EXT_SUFFIX')}"


class Speedups(BuildHookInterface):
    """Adds the compiled module to a wheel; if that is editable, it lies beside its sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the module, and say what the wheel is then for."""
        if self.target_name != "wheel":
            return
        (Path(self.root) / PLACE / COMPILED).unlink(missing_ok=True)
        if not is_wanted():
            return
        try:
            build(Path(self.root))
        except Exception as error:  # whatever a compiler that is not there, or not whole, gives
            self.app.display_warning(f"distarray is built without its parts in C: {error}")
            return
        build_data["artifacts"].append(f"{PLACE.as_posix()}/{COMPILED}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def is_wanted() -> bool:
    """Whether the environment allows it, and the interpreter has the lock that the module needs."""
    on = os.environ.get("DISTARRAY_SPEEDUPS", "1").strip().lower() in ("1", "true", "yes", "on")
    return on and not sysconfig.get_config_var("Py_GIL_DISABLED")


def build(root: Path) -> None:
    """Compile the module, beside its sources."""
    import numpy as np
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    module = Extension(
        ".".join((*PLACE.parts, "_ways")),
        sorted(str(path) for path in (root / PLACE).glob("*.c")),
        depends=sorted(str(path) for path in (root / PLACE).glob("*.h")),
        include_dirs=[np.get_include()],
        define_macros=[("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION")],
        extra_compile_args=["-O2", "-fvisibility=hidden"],
    )
    with TemporaryDirectory() as place:
        command = build_ext(Distribution({"ext_modules": [module]}))
        command.build_lib, command.build_temp = str(root), place
        command.ensure_finalized()
        command.run()
