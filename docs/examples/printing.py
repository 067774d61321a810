import distarray
import distarray.numpy as np

x = distarray.distribute(np.arange(10), placements=[distarray.Shard(0)])
total = x.sum()
if x.mesh.rank == 1:
    print(x)
    print(total)
