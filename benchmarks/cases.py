"""The table: every case that is measured, in the order in which it is printed."""

from benchmarks import core_cases, file_cases, numpy_cases, size_cases, torch_cases
from benchmarks.case import Case

__all__ = ["CASES", "Case"]

CASES = [
    *core_cases.CASES,
    *numpy_cases.CASES,
    *size_cases.CASES,
    *torch_cases.CASES,
    *file_cases.CASES,
]
