"""The runner: an unmodified NumPy program on all ranks of an MPI job.

``imports`` gives the program ``distarray.numpy`` where it imports ``numpy``. ``files`` and ``disk``
let only rank 0 change the file system. ``output`` lets only rank 0 write and read the standard
streams. ``alike`` and ``chance`` give all ranks one clock and the same random numbers. ``turns``,
``pools``, ``locks``, ``children``, ``commands`` and ``jobs`` handle threads and processes.
``ending`` ends all ranks with one exit status, ``tracebacks`` folds frames, ``console`` is the
prompt, and ``main`` reads the command line.
"""

#: The runner's functions replace functions that the program calls (see
#: :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = None
