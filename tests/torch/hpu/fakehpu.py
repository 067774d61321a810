"""The simulated HPU: built from C++ on first use, and put into torch as the device "hpu".

Install it before anything asks torch for its accelerator (a backward pass does, and pinning
memory), in a process of its own: from then on the simulated HPU is the process's accelerator.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

__all__ = ["build", "install"]

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "fakehpu.cpp"
CACHE = Path(os.environ.get("DISTARRAY_HPU_CACHE", HERE.parents[2] / "build" / "fakehpu"))
STATS = ("h2d", "d2h", "h2d_bytes", "d2h_bytes", "fallback", "sync", "deferred", "live_blocks")


def build() -> Path:
    """The library, compiled if this source has not been compiled for this torch yet.

    Raises
    ------
    RuntimeError
        With what the compiler said, if it failed; FileNotFoundError without a compiler.
    """
    key = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    library = CACHE / f"fakehpu-{key}.so"
    if library.exists():
        return library
    CACHE.mkdir(parents=True, exist_ok=True)
    home = Path(torch.__file__).parent
    draft = CACHE / f"fakehpu-{key}.{os.getpid()}"
    argv = [
        os.environ.get("CXX", "g++"),
        *("-std=c++20", "-O0", "-fPIC", "-shared", str(SOURCE), "-o", str(draft)),
        *(f"-I{home / 'include'}", f"-L{home / 'lib'}", "-ltorch_cpu", "-lc10"),
        f"-Wl,-rpath,{home / 'lib'}",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"the simulated HPU does not compile:\n{done.stderr[-4000:]}")
    draft.replace(library)
    return library


def install(library: Path | None = None) -> ModuleType:
    """Make "hpu" a device of this process's torch; the module is ``torch.hpu`` from then on.

    It has what ``habana_frameworks.torch.hpu`` has and programs use, and besides `stats()` (copies
    and bytes between host and device since `reset_stats()`), and `set_lossy(on)`.
    """
    if getattr(torch, "hpu", None) is not None:
        return torch.hpu
    path = str(build() if library is None else library)
    torch.ops.load_library(path)
    module = _module(ctypes.CDLL(path))
    torch._register_device_module("hpu", module)
    sys.modules["torch.hpu"] = module
    assert torch.accelerator.current_accelerator() == torch.device("hpu"), (
        "torch has looked for an accelerator before the simulated HPU was installed"
    )
    return module


def _module(library: ctypes.CDLL) -> ModuleType:
    module: Any = ModuleType("torch.hpu", "The simulated HPU.")

    def stats() -> SimpleNamespace:
        numbers = (ctypes.c_int64 * len(STATS))()
        library.fakehpu_stats(numbers)
        return SimpleNamespace(**dict(zip(STATS, numbers, strict=True)))

    module.stats = stats
    module.reset_stats = library.fakehpu_reset
    module.set_lossy = lambda on: library.fakehpu_set_lossy(int(on))
    module.synchronize = lambda device=None: library.fakehpu_synchronize()
    module.is_available = module.is_initialized = lambda: True
    module.init = module._lazy_init = lambda: None
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = lambda device: None
    module.get_device_name = lambda device=None: "simulated HPU"
    module.empty_cache = lambda: None
    module.manual_seed = module.manual_seed_all = torch.default_generator.manual_seed
    module.get_rng_state = lambda device="hpu": torch.default_generator.get_state()
    module.set_rng_state = lambda state, device="hpu": torch.default_generator.set_state(state)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16, torch.float32]
    module.device = lambda device: contextlib.nullcontext()
    return module
