"""The runner: an unmodified NumPy program on all ranks of an MPI job.

``imports`` gives the program ``distarray.numpy`` where it says ``numpy``; ``files`` and ``disk``
let rank 0 alone change the file system; ``output`` lets rank 0 alone speak and listen; ``alike``
gives all ranks one clock and one chance; ``ending`` brings the job to one end; ``main`` reads the
command line and puts them together.
"""

#: Its functions stand for those that the program calls (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = None
