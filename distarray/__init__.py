"""NumPy-style distributed arrays over MPI."""

__version__ = "0.1.0"
