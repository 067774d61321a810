"""Chance, clocks, names and order differ between processes: the program gets rank 0's."""

import numpy as np
import pytest

from launching import compare, on_ranks, write_script

DRAWN = """
    import datetime, glob, os, pathlib, random, resource, secrets, time, timeit, uuid, warnings
    from datetime import date, datetime as dt
    from random import Random, SystemRandom
    import numpy as np
    from mpi4py import MPI
    from scipy import stats
    from scipy.stats import qmc

    warnings.simplefilter("ignore")
    rank = MPI.COMM_WORLD.rank

    def seeded():
        random.seed()
        return random.random()

    def clocks(suffix=""):
        names = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
        return [getattr(time, name + suffix)() for name in names]

    asked = {
        "set": lambda: list({f"name {i}" for i in range(50)}),
        "hash": lambda: hash("text"),
        "random": random.random,
        "seed": seeded,
        "Random": lambda: (Random().random(), Random().gauss(0, 1), Random().getrandbits(99)),
        "SystemRandom": lambda: (SystemRandom().random(), SystemRandom().choice(range(1000))),
        "secrets": lambda: (secrets.token_hex(), secrets.randbelow(10**9), secrets.token_bytes(3)),
        "uuid": lambda: (uuid.uuid1(), uuid.uuid4(), uuid.getnode()),
        "urandom": lambda: (os.urandom(9), os.getrandom(9)),
        "generators": lambda: (np.random.default_rng().random(), np.random.rand()),
        "libraries": lambda: qmc.Sobol(2).random(2).tolist() + stats.norm.rvs(size=2).tolist(),
        "clocks": lambda: (clocks(), clocks("_ns")),
        "calendar": lambda: (time.ctime(), time.localtime(), time.gmtime(), time.strftime("%c")),
        "datetime": lambda: (dt.now(), dt.now(datetime.timezone.utc), dt.today(), dt.utcnow()),
        "date": lambda: (date.today(), datetime.date.today()),
        "directory": lambda: (os.listdir(), glob.glob("*"), list(pathlib.Path().iterdir())),
        "process": lambda: (os.getpid(), os.getloadavg(), os.kill(os.getpid(), 0)),
        "used": lambda: resource.getrusage(resource.RUSAGE_SELF),
        "addresses": lambda: [id(one) for one in (rank, [], "text", object())],
        "timeit": lambda: (timeit.timeit("1 + 1", number=9), timeit.Timer("1").autorange()),
    }
    found = {name: [ask() for _ in range(3)] for name, ask in asked.items()}
    start = time.time()
    rounds = 0
    while time.time() - start < 0.2:
        rounds += 1
    found["rounds"] = rounds
    everybodys = MPI.COMM_WORLD.allgather(found)
    print([name for name in found if any(one[name] != found[name] for one in everybodys)])
    drawn = ("random", "seed", "Random", "SystemRandom", "secrets", "uuid", "urandom", "generators")
    print([name for name in drawn if len(set(found[name])) < 3], rounds > 0)
    print(time.strftime("%Y", time.gmtime(0)), time.ctime(0) == time.asctime(time.localtime(0)))
"""


def test_chance_clocks_and_names_are_alike(tmp_path):
    write_script(tmp_path, DRAWN)
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert (done.code, done.out) == (0, "[]\n[] True\n1970 True\n"), done.err + done.out


def test_what_rank_0_asks_alone_is_nobody_elses(tmp_path):
    """Its answers were taken for those to the questions that all asked later."""
    write_script(
        tmp_path,
        """
        import os, random, time
        from mpi4py import MPI
        rank = MPI.COMM_WORLD.rank

        def answers():
            return time.time(), os.urandom(3), os.path.exists("made"), random.Random().random()

        if rank == 0:
            for _ in range(3000):  # more than MPI sends to ranks that are not there
                time.time()
            for _ in range(100):
                answers()
            os.mkdir("made")
            with open("log", "w") as file:
                file.write("one\\n")
            with open("log", "a") as file:
                file.write("two\\n")
        often = [time.time() for _ in range(3000)]
        everybodys = MPI.COMM_WORLD.allgather((*answers(), often))
        print(all(one == everybodys[0] for one in everybodys), everybodys[0][2])
        if rank == 0:
            time.time()  # the last thing that is asked
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path, timeout=90)
    assert (done.code, done.out) == (0, "True True\n"), done.err
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_functions_that_ranks_call_unequally_often_ask_by_themselves(tmp_path):
    """They waited for answers that the other ranks never asked for."""
    write_script(
        tmp_path,
        """
        import os, random, time
        import distarray
        import numpy as np

        def work(v):
            return v + 0 * (time.time() + len(os.listdir()) + random.Random().random())

        def block(part):
            for _ in range(len(part) % 7):
                work(1.0)
            return part + 1

        x = np.arange(100_001.0)
        print(np.vectorize(work)(x[:1001]).sum(), distarray.map_blocks(block, x).sum())
        print(np.apply_along_axis(lambda row: work(row.sum()), 1, np.ones((5, 3))))
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path, timeout=90)
    assert (done.code, done.out) == (0, "500500.0 5000150001.0\n[3. 3. 3. 3. 3.]\n"), done.err


INTERLEAVED = """
    import random
    import numpy as np
    from scipy import stats

    np.random.seed(1)
    random.seed(3)
    print(np.random.randn(3), stats.norm.rvs(size=3), np.random.randn(), stats.norm.rvs())
    large = np.random.randn(100_001)
    print(stats.norm.rvs(), f"{large.sum():.9f}", stats.gamma.rvs(2.0, size=2), np.random.rand())
    np.random.seed(5)
    print(stats.expon.rvs(size=2))
    place = np.random.get_state()
    lines = np.linspace(0, 1, 70_000).reshape(7, 10_000)
    print(np.apply_along_axis(lambda line: line[:2] + stats.norm.rvs(), 1, lines))
    print(np.vectorize(lambda v: v + random.random())(np.arange(5.0)), random.random())
    print(stats.norm.rvs(), np.random.rand())
    np.random.set_state(place)
    print(np.random.rand(), stats.uniform.rvs(), np.random.mtrand._rand.rand())
    np.random.set_bit_generator(np.random.PCG64(3))
    print(np.random.rand(), stats.norm.rvs(), np.random.rand())
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_libraries_draw_from_the_programs_numbers(tmp_path, ranks):
    """After `np.random.seed` they drew others than under plain Python."""
    compare(tmp_path, INTERLEAVED, ranks=ranks)


def test_a_library_that_draws_unequally_often(tmp_path):
    write_script(
        tmp_path,
        """
        import sys
        import numpy as np
        import scipy.stats
        from mpi4py import MPI

        np.random.seed(5)
        print(np.random.rand())
        sys.modules["scipy.stats"].norm.rvs(size=1 + MPI.COMM_WORLD.rank)
        print(np.random.rand(), len(set(MPI.COMM_WORLD.allgather(np.random.rand()))))
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path)
    state = np.random.RandomState(5)
    first = state.rand(), state.randn(1), state.rand()
    assert (done.code, done.out) == (0, f"{first[0]}\n{first[2]} 1\n"), done.err
