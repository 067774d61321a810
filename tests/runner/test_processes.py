"""Processes of the program: right on each rank, the same on all ranks, and heard once."""

import importlib.util

import pytest

from launching import compare, on_ranks, write_script

POOLS = """
    import multiprocessing, os, random, sys, time
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
    import numpy as np

    def work(k):
        return float((np.linspace(0, 1, 200_000) ** k).sum())

    def total(x):
        return type(x).__module__, x.shape, float(x.sum())

    def draw(k):
        return random.SystemRandom().random()

    def slow(k):
        time.sleep(0.03 * random.SystemRandom().random())
        return k

    def fail(k):
        raise ValueError(f"no {k}")

    def serve(questions, answers):
        for k in iter(questions.get, None):
            answers.put((k, work(k)))

    def serve_one(questions, answers, more):
        answers.put((total(questions.get()), total(more["more"][0])))
        questions.task_done()

    def begin(x):
        global begun
        begun = total(x)

    def told(k):
        return begun

    def speak():
        print("a child", flush=True)

    def same(value):
        from mpi4py import MPI  # for what is drawn is different in every run
        return all(one == value for one in MPI.COMM_WORLD.allgather(value))

    def pools(context, a, small):
        with context.Pool(2) as pool:
            print(pool.map(work, range(4)), pool.starmap(pow, [(2, 3), (3, 2)]))
            print(pool.apply(total, (a,)), pool.map(total, [a, small]), pool.map(work, small[:3]))
            print(list(pool.imap(work, range(3))), sorted(pool.imap_unordered(work, range(3))))
            print(same(pool.map(draw, range(5))), same(list(pool.imap_unordered(slow, range(9)))))
            print(pool.map(work, (int(v) for v in a[:3])), pool.apply_async(work, (2,)).get())
            print(pool.apply(os.getpid) > 0, pool.map(os.path.exists, ["/"]))
            print(pool.apply(time.sleep, (0,)), pool.map(str.upper, "ab"))
            try:
                pool.map(fail, [7])
            except ValueError as error:
                print(error)

        with context.Pool(1, begin, (a,)) as pool:
            print(pool.map(told, [1]))

    def executors(context, a, small):
        given = {"initializer": begin, "initargs": (a,)}
        with ProcessPoolExecutor(2, mp_context=context, **given) as pool:
            print(pool.submit(told, 1).result())
            print(list(pool.map(work, range(4))), list(pool.map(total, [a, small], chunksize=2)))
            print(pool.submit(total, a).result(), repr(pool.submit(fail, 1).exception()))
            futures = [pool.submit(slow, k) for k in range(9)]
            print(same([future.result() for future in as_completed(futures)]))
            futures = [pool.submit(slow, k) for k in range(9)]
            done, rest = wait(futures, return_when="FIRST_COMPLETED")
            print(same(sorted(future.result() for future in done)), len(done) + len(rest))
            print(same(pool.submit(draw, 1).result()), len(wait(futures).done))
            with ThreadPoolExecutor(2) as threads:
                sums = lambda k: float((a + k).sum()) + 1.5 * pool.submit(slow, k).result()
                futures = [pool.submit(slow, 7), *(threads.submit(sums, k) for k in range(3))]
                for future in as_completed(futures):
                    threads.submit(sums, 1).result()  # while the others are waited for
                print(sorted(future.result() for future in futures), len(wait(futures).done))

    def processes(context, a):
        questions, answers = context.Queue(), context.Queue()
        servers = [context.Process(target=serve, args=(questions, answers)) for _ in range(2)]
        for server in servers:
            server.start()
        for k in [*range(8), None, None]:
            questions.put(k)
        found = [answers.get() for _ in range(8)]
        for server in servers:
            server.join()
        print(same(found), sorted(found)[3], [server.exitcode for server in servers])
        queue = context.Queue()
        queue.put(a)
        print(total(queue.get()))
        joinable, answers = context.JoinableQueue(), context.SimpleQueue()
        child = context.Process(target=serve_one, args=(joinable, answers, {"more": [a]}))
        child.start()
        joinable.put(a)
        joinable.join()
        child.join()
        print(answers.get(), child.exitcode)
        child = context.Process(target=speak)
        child.start()
        child.join()
        with context.Manager() as manager:
            shared = manager.dict(a=1)
            shared["b"] = 2
            print(dict(shared))

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        a, small = np.arange(100_000.0), np.arange(5.0)
        pools(context, a, small)
        executors(context, a, small)
        processes(context, a)
        print(float(a.sum()))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_and_processes(tmp_path, method):
    """They gave wrong sums, other orders on other ranks, or took themselves for ranks."""
    compare(tmp_path, POOLS, method, ranks=2)


def test_children_that_the_program_forks(tmp_path):
    done = compare(
        tmp_path,
        """
        import os, sys
        import numpy as np
        a, whole = np.arange(100_000.0), np.arange(5.0)

        def end(child):
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        for how in ("exit", "error"):
            if not (child := os.fork()):
                print("child", float((np.ones(100_000) * 2).sum()), whole + 1, np.random.rand() < 1)
                open(how, "w").write("a child's")
                if how == "exit":
                    sys.exit(3)
                raise ValueError("a child's")
            print(end(child), float(a.sum()), open(how).read(), flush=True)
        if child := os.fork():
            print(end(child), float(a.sum()))
        """,
    )
    assert done.err.count("ValueError: a child's") == 1


def test_commands_that_the_program_talks_to_run_once(tmp_path):
    compare(
        tmp_path,
        """
        import os, subprocess, sys
        import numpy as np
        PIPE = subprocess.PIPE
        a = np.arange(100_000.0)
        command = ["sh", "-c", "echo ran >> ran; echo out; echo err >&2; exit 3"]
        done = subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True)
        print(done.communicate(), done.returncode, done.args)
        with subprocess.Popen(["cat"], stdin=PIPE, stdout=PIPE, text=True) as cat:
            cat.stdin.write("one\\ntwo\\n")
            cat.stdin.close()
            print(list(cat.stdout))
        print(cat.returncode, cat.poll(), isinstance(cat, subprocess.Popen))
        first = subprocess.Popen(["echo", "through a pipe"], stdout=PIPE)
        print(subprocess.Popen(["cat"], stdin=first.stdout, stdout=PIPE).communicate()[0])
        sleeping = subprocess.Popen(["sleep", "100"])
        try:
            sleeping.wait(timeout=0.01)
        except subprocess.TimeoutExpired as late:
            print(late.timeout)
        sleeping.terminate()
        print(sleeping.wait(), os.popen("echo again >> ran; cat ran").read())
        code = "import distarray.numpy as np; print(np.arange(100_000).sum())"
        print(subprocess.check_output([sys.executable, "-c", code]), float(a.sum()))
        """,
    )


def test_joblib(tmp_path):
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed, which brings joblib")
    source = """
        import random
        from concurrent.futures import as_completed
        import numpy as np
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky import get_reusable_executor
        from sklearn.linear_model import Ridge
        from sklearn.model_selection import cross_val_score

        def work(k):
            return float((np.linspace(0, 1, 200_000) ** k).sum())

        def total(x, more=()):
            return float(x.sum()) + len(more)

        def draw(k):
            return random.SystemRandom().random()

        def same(value):
            from mpi4py import MPI
            return all(one == value for one in MPI.COMM_WORLD.allgather(value))

        if __name__ == "__main__":
            a = np.arange(100_000.0)
            print(Parallel(n_jobs=2)(delayed(work)(k) for k in range(7)))
            print(Parallel(n_jobs=2)(delayed(total)(a[k:], more=[a]) for k in range(7)))
            print(same(Parallel(n_jobs=2)(delayed(draw)(k) for k in range(7))))
            print(Parallel(n_jobs=1)(delayed(total)(a + k) for k in range(3)), float(a.sum()))
            print(list(Parallel(2, return_as="generator")(delayed(total)(a[k:]) for k in range(3))))
            late = Parallel(2, return_as="generator_unordered")(delayed(draw)(k) for k in range(3))
            print(same(list(late)))
            add = delayed(lambda k: float((a + k).sum()))
            print(Parallel(2, prefer="threads")(add(k) for k in range(3)))
            with parallel_config(backend="threading", n_jobs=2):
                print(Parallel()(delayed(total)(a + k) for k in range(3)))
            columns = np.column_stack([np.sin(a), np.cos(2 * a)])
            print(np.round(cross_val_score(Ridge(), columns, np.sin(3 * a), cv=3, n_jobs=2), 6))
            loky = get_reusable_executor(max_workers=2)
            print(loky.submit(total, a, more=[a]).result(), list(loky.map(total, [a, a[1:]])))
            print(same([future.result() for future in as_completed([loky.submit(draw, 1)] * 2)]))
    """
    compare(tmp_path, source, ranks=2)


def test_a_child_that_fails_is_heard_once(tmp_path):
    source = """
        import multiprocessing

        def fail():
            raise ValueError("the child's")

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                child = multiprocessing.get_context(method).Process(target=fail)
                child.start()
                child.join()
                print(child.exitcode)
    """
    write_script(tmp_path, source)
    done = on_ranks(3, "program.py", cwd=tmp_path)
    assert (done.code, done.out) == (0, "1\n1\n"), done.err
    assert done.err.count("ValueError: the child's") == 2
