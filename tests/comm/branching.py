"""A NumPy program for the runner, of which one rank takes another way."""

import os

import numpy as np

x = np.ones((2000, 200))
print(x.sum())
rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
if rank != "3":
    print(np.sort(x, axis=0)[0, 0])  # many
