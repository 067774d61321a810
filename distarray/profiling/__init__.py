"""Profiles: the cost of each line of a program on each rank, in seconds, bytes and memory."""

from distarray.profiling.analysis import Report, Row
from distarray.profiling.measured import Line, Part, Totals
from distarray.profiling.profiles import Profile, profile

__all__ = ["Line", "Part", "Profile", "Report", "Row", "Totals", "profile"]
