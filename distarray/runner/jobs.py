"""Processes and threads of joblib and loky.

Arguments that the program, or a library for it, sends to processes are gathered, and the results
are rank 0's. Tasks for threads run in order, in the thread that submits them.
"""

import sys
from collections.abc import Callable, Iterable
from functools import partial, update_wrapper
from types import ModuleType
from typing import Any

from distarray.runner.answers import Answers
from distarray.runner.children import rank_0s, submitting, whole
from distarray.runner.imports import belongs_to_program, when_imported
from distarray.runner.step import in_step

__all__ = ["install"]

#: Number of arguments of ``joblib.Parallel`` before `pre_dispatch`.
_BEFORE = 5


def install(answers: Answers) -> None:
    """Replace functions of joblib and loky when the program imports them."""
    when_imported("joblib", partial(_replace, answers))
    when_imported("loky", _replace_executors)


def _replace(answers: Answers, joblib: ModuleType) -> None:
    parallel: Any = joblib.Parallel
    parallel.__init__ = _beginning(parallel.__init__)
    parallel.__call__ = _calling(parallel.__call__, answers)
    _replace_executors(joblib.externals.loky)


def _replace_executors(loky: ModuleType) -> None:
    executors = (loky.ProcessPoolExecutor, loky.reusable_executor._ReusablePoolExecutor)
    for executor, real in [(executor, executor.submit) for executor in executors]:
        executor.submit = submitting(real, loky.backend.reduction.dumps)


def _beginning(real: Callable[..., None]) -> Callable[..., None]:
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        programs = belongs_to_program(sys._getframe(1))
        if programs and len(args) <= _BEFORE:
            kwargs.setdefault("pre_dispatch", "all")  # else other threads make later tasks
        real(self, *args, **kwargs)
        if programs and _has_threads(self) and in_step():
            self.n_jobs = 1

    return update_wrapper(begin, real)


def _calling(real: Callable[..., Any], answers: Answers) -> Callable[..., Any]:
    def call(self: Any, iterable: Iterable[Any]) -> Any:
        alone = _has_threads(self) or self._effective_n_jobs() == 1
        if alone or not in_step():
            return real(self, iterable)
        tasks = [(function, *whole(rest)) for function, *rest in iterable]
        found = rank_0s(answers, lambda: list(real(self, tasks)))
        return iter(found) if self.return_generator else found

    return update_wrapper(call, real)


def _has_threads(parallel: Any) -> bool:
    return bool(getattr(parallel._backend, "supports_sharedmem", False))
