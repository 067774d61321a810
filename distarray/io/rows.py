"""What NumPy's functions do with files, registered: importing this does it."""

from distarray.io.npy import save
from distarray.io.npz import savez, savez_compressed
from distarray.io.raw import fromfile, tofile
from distarray.io.text import genfromtxt, loadtxt, savetxt

__all__ = [
    "fromfile",
    "genfromtxt",
    "loadtxt",
    "save",
    "savetxt",
    "savez",
    "savez_compressed",
    "tofile",
]
