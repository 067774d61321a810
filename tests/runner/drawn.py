"""Programs drawn at random that use threads, processes, chance and libraries, under the runner.

Each prints what does not depend on chance, so that it must print the same under plain Python with
NumPy. ``python -m tests.runner.drawn --programs 200 --ranks 2,3`` draws new ones; a program that
prints anything else, or does not end, is shown.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.launcher import environment, find_mpiexec, run_job

__all__ = ["drawn", "wrong"]

HEAD = """
import os, random, secrets, subprocess, sys, threading, time, uuid
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import Pool
from multiprocessing.pool import ThreadPool
import numpy as np

def work(k):
    return round(float((np.linspace(0, 1, {size}) ** k).sum()), 6)

def measure(part):
    return part.shape, round(float(part.sum()), 6)

def main():
    a = np.linspace(0.0, 1.0, {size}).reshape(-1, {width})
"""
FOOT = """
if __name__ == "__main__":
    main()
"""
#: By what they use; `k`, `m` are small numbers, drawn anew for each.
STEPS = {
    "threads": [
        """
with ThreadPoolExecutor({k}) as pool:
    print([round(x, 6) for x in pool.map(lambda j: float((a + j).sum()), range({m}))])
""",
        """
found, lock = [], threading.Lock()
def add(j):
    value = float((a * j).max())
    with lock:
        found.append(value)
threads = [threading.Thread(target=add, args=(j,)) for j in range({k})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(found))
""",
        """
with ThreadPool({k}) as pool:
    print(pool.map(measure, [a[j::{m}] for j in range({m})]))
""",
        """
with ThreadPoolExecutor({k}) as pool:
    going = {{pool.submit(np.sort, -a[:, j]): j for j in range({k})}}
    print(sorted((going[f], float(f.result()[{m}])) for f in as_completed(going)))
""",
    ],
    "processes": [
        """
with Pool(2) as pool:
    print(pool.map(work, range({k})))
""",
        """
with ProcessPoolExecutor(2) as pool:
    print(list(pool.map(measure, [a[:{m}], a[:, :2], a[{k}:]])))
""",
        """
code = "import numpy as np; print(np.arange({m}00000).sum())"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
""",
        """
from joblib import Parallel, delayed
print(Parallel(n_jobs=2)(delayed(work)(j) for j in range({k})))
""",
        """
child = os.fork()
if child == 0:
    os._exit(int(work(2) > 0) + {k})
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    ],
    "chance": [
        """
random.seed()
n = random.randrange(1000, 90000) * {k}
b = np.arange(float(n))
print(float(b.sum()) == n * (n - 1) / 2)
""",
        """
up = uuid.uuid4().int % 7
b = a + 1 if up > 3 else np.sort(a, axis=0) + 2
print(bool((b - (1 if up > 3 else 2) == a + 0).all() or np.allclose(b - (1 if up > 3 else 2), a)))
""",
        """
shift = secrets.randbelow(a.shape[0]) + os.urandom(1)[0]
print(np.array_equal(np.roll(np.roll(a, shift, axis=0), -shift, axis=0), a))
""",
        """
total = {{}}
for name in {{"xy", "yz", "zx", "w{k}"}}:
    total[name] = round(float((a * len(name)).sum()), 6)
    if hash(name) % 2:
        total[name] += float(np.sort(a[:, 0])[{m}])
    total[name] -= float(np.sort(a[:, 0])[{m}]) if hash(name) % 2 else 0
print({{name: round(value, 5) for name, value in sorted(total.items())}})
""",
        """
b = a.copy()
if int(time.time() * 1e6) % 2:
    b[:] = np.cumsum(np.ones_like(a), axis=0)
else:
    b[:] = np.arange(1.0, a.shape[0] + 1)[:, None]
print(float(b[{m}, 0]), round(float(b.sum()), 3))
""",
        """
x = np.random.default_rng().random({k}00000)
print(x.shape, bool(0.45 < x.mean() < 0.55))
if x[0] > 0.5:
    x = np.sort(x)
print(round(float(x.max() - x.min())))
""",
    ],
    "libraries": [
        """
from scipy import ndimage
print(round(float(ndimage.gaussian_filter(a[:50], {k}).sum()), 6))
""",
        """
import pandas
frame = pandas.DataFrame({{"low": a[:1000, 0], "high": a[:1000, 1] * {k}}})
print(frame.describe().round(6).to_string())
""",
        """
from sklearn.cluster import KMeans
print(KMeans({k}, random_state={m}, n_init=1).fit(a[:300]).labels_[::29])
""",
        """
from PIL import Image
picture = Image.fromarray((a[:40] * 255).astype(np.uint8))
print(picture.size, sum(picture.histogram()[:{k}0]))
""",
        """
from scipy import optimize
print(np.round(optimize.minimize(lambda x: float(((x - a[1]) ** 2).sum()), a[0]).x, 4))
""",
        """
import networkx
graph = networkx.from_numpy_array((a[:{m}, :{m}] > 0.00001).astype(int)[: a.shape[1], : a.shape[1]])
print(graph.number_of_nodes())
""",
    ],
}


def drawn(seed: int) -> str:
    """The program of a seed: four steps or more, each of another kind than the one before."""
    rng = random.Random(seed)
    width = rng.choice([8, 13, 20])
    # Cut arrays in most programs: they have more than 1 MiB.
    body = HEAD.format(size=width * rng.choice([900, 18000, 20011]), width=width)
    kinds = list(STEPS)
    rng.shuffle(kinds)
    for kind in [*kinds, *rng.sample(kinds, 1)]:
        text = rng.choice(STEPS[kind]).format(k=rng.randrange(2, 5), m=rng.randrange(5, 9))
        body += "".join(f"    {line}\n" for line in text.strip().splitlines())
    return body + FOOT


def wrong(seed: int, ranks: int, place: Path, limit: float = 120.0) -> str:
    """What is wrong with the program of a seed on some ranks; empty if nothing."""
    path = place / f"drawn_{seed}.py"
    path.write_text(drawn(seed))
    argv = [sys.executable, str(path)]
    plain = subprocess.run(argv, capture_output=True, text=True, timeout=limit, cwd=place)
    if plain.returncode:
        return f"fails with NumPy alone:\n{plain.stderr}"
    launcher = [*find_mpiexec(), "-n", str(ranks), sys.executable, "-W", "ignore"]
    status, output = run_job(
        [*launcher, "-m", "distarray", str(path)], timeout=limit, cwd=place, env=environment()
    )
    if status is None:
        return f"does not end:\n{output}"
    if status or output.strip() != plain.stdout.strip():
        return f"ends with {status} and prints\n{output}\nand not\n{plain.stdout}"
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Draw programs, and show those that go wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.runner.drawn", description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args(argv)
    counts = [int(text) for text in chosen.ranks.split(",")]
    found = 0
    with tempfile.TemporaryDirectory() as place:
        for number in range(chosen.programs):
            seed, ranks = chosen.seed + number, counts[number % len(counts)]
            problem = wrong(seed, ranks, Path(place))
            if problem:
                found += 1
                print(f"seed {seed} on {ranks} ranks {problem}\n{drawn(seed)}", flush=True)
    print(f"{chosen.programs} programs from seed {chosen.seed} on: {found} went wrong")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
