import distarray
import distarray.numpy as np
from distarray import Shard

mesh = distarray.default_mesh()  # all ranks, in one dimension
rows = distarray.distribute(np.arange(32.0).reshape(8, 4), mesh, [Shard(0)])
centred = rows - rows.mean(axis=0)  # each rank works on its own rows
spread = float((centred**2).sum())  # one number, on every rank

if mesh.rank == 0:
    print(f"sum of squares {spread:.1f}")
    print(centred)  # never communicates: it shows what this rank has
