"""The runner: an unmodified NumPy program on all ranks of an MPI job.

``imports`` gives the program ``distarray.numpy`` where it says ``numpy``. ``files`` and ``disk``
let rank 0 alone change the file system, ``output`` lets rank 0 alone write and read the standard
streams, ``alike`` and ``chance`` give all ranks one clock and the same random numbers. ``turns``,
``pools``, ``locks``, ``children``, ``commands`` and ``jobs`` are about threads and processes.
``ending`` ends all ranks with one status, ``tracebacks`` folds frames, ``console`` is the prompt,
and ``main`` reads the command line.
"""

#: Its functions stand for those that the program calls (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = None
