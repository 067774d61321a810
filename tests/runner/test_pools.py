"""Thread pools of the program run their tasks in step on all ranks, and say what they say alone."""

from launching import compare, on_ranks, write_script

EXECUTORS = """
    import queue, threading, time
    from concurrent.futures import ThreadPoolExecutor, TimeoutError, as_completed, wait
    import numpy as np

    a = np.arange(100_000.0)

    def work(k):
        return float(np.sort(a + k)[::3].sum())

    def nested(k):
        with ThreadPoolExecutor(2) as inner:
            return sum(inner.map(work, range(k)))

    with ThreadPoolExecutor(4) as pool:
        print(list(pool.map(work, range(8))))
        futures = [pool.submit(work, k) for k in range(8)]
        print(sorted(future.result() for future in as_completed(futures)))
        total = a[::1000].copy()
        for future in as_completed([pool.submit(work, k) for k in range(5)]):
            total += future.result() % 7  # in the same order on all ranks
        print(total.sum())
        done, rest = wait([pool.submit(work, k) for k in range(5)])
        print(sorted(future.result() for future in done), rest)
        print(type(pool.submit(lambda: 1 / 0).exception()), list(pool.map(nested, range(4))))

    held, simple, event = queue.Queue(maxsize=2), queue.SimpleQueue(), threading.Event()

    def consume():
        found = []
        while (item := held.get()) is not None:
            found.append(float((a * item).sum()))
        return found

    def produce():
        for i in range(5):
            held.put(i)
        held.put(None)

    with ThreadPoolExecutor(2) as pool:
        consumer, producer = pool.submit(consume), pool.submit(produce)
        print(consumer.result(), producer.result())
        waiting = pool.submit(lambda: (event.wait(), float(a.sum())))
        print(waiting.done())
        event.set()
        taken = pool.submit(simple.get)
        simple.put(5)
        print(waiting.result(), taken.result(timeout=20))

    with ThreadPoolExecutor(1) as pool:
        again = threading.Event()
        first, second = pool.submit(again.wait), pool.submit(work, 1)
        try:
            second.result(timeout=0.05)
        except TimeoutError:
            print("not yet", second.cancel(), second.cancelled())
        again.set()
        print(first.result())

    lock, inner, total = threading.Lock(), threading.RLock(), 0

    def locked(k):
        global total
        with lock, inner, inner:
            before = total
            time.sleep(0.01)
            total = before + k
            return work(k)

    flag = []

    def watch():
        while not flag:
            time.sleep(0.01)
        return "stopped"

    meeting = threading.Barrier(3)
    with ThreadPoolExecutor(4) as pool:
        print(sum(pool.map(locked, range(8))), total)
        watching, worked = pool.submit(watch), pool.submit(work, 3)
        flag.append(worked.result())
        print(watching.result())
        print(list(pool.map(lambda k: (meeting.wait() < 3, work(k)), range(3))))

    own = threading.local()

    def begin(value):
        own.value, own.count = value, 0

    def use(k):
        own.count += 1
        return own.value + k

    with ThreadPoolExecutor(2, initializer=begin, initargs=(10,)) as pool:
        print(list(pool.map(use, range(4))))
    late = ThreadPoolExecutor(2)
    late.submit(lambda: (time.sleep(0.05), print("at last", work(1))))
    print("the end")
"""
POOLS = """
    import itertools
    from multiprocessing.dummy import Pool
    from multiprocessing.pool import ThreadPool
    import numpy as np

    a = np.arange(100_000.0)

    def work(k):
        return float((a + k).sum())

    with ThreadPool(3) as pool:
        print(pool.map(work, range(8)), pool.map(work, range(10), chunksize=3))
        print(pool.starmap(pow, [(2, 3), (3, 2)]), pool.apply(work, (2,)))
        print(list(pool.imap(work, range(5))), sorted(pool.imap_unordered(work, range(5))))
        result = pool.map_async(work, range(4), callback=lambda value: print("called back", value))
        print(result.get(timeout=20), result.ready(), result.successful())
        result = pool.apply_async(lambda: 1 / 0, error_callback=lambda error: print(error))
        try:
            result.get()
        except ZeroDivisionError as error:
            print(error)
        for value in pool.imap(work, itertools.count()):
            if value > work(3):
                break
    pool = Pool(2)
    print(pool.map(work, range(3)))
    pool.close()
    pool.join()
"""


ASYNCIO = """
    import asyncio, time
    from concurrent.futures import ThreadPoolExecutor
    import numpy as np

    a = np.arange(100_000.0)

    def work(k):
        time.sleep(0.01 * (k % 3))
        return float((a + k).sum())

    async def answer():
        await asyncio.sleep(0.01)
        return 7

    async def main():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(3) as pool:
            print(await asyncio.gather(*[loop.run_in_executor(pool, work, k) for k in range(5)]))
            ask = lambda: asyncio.run_coroutine_threadsafe(answer(), loop).result()
            print(await loop.run_in_executor(pool, ask))  # while the main thread waits for files
        print(await asyncio.to_thread(work, 1))

    asyncio.run(main())
    print(float(a.sum()))
"""


def test_asyncio(tmp_path):
    compare(tmp_path, ASYNCIO)


RACES = """
    import asyncio, os, random, sys, time
    import numpy as np

    a = np.arange(100_000.0)
    rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)

    async def work(k, seconds):
        await asyncio.sleep(seconds)
        return k, float((a + k).sum())

    def first_later(k):
        time.sleep(0.08 * rank)  # the other ranks are late
        return k

    async def main():
        tasks = [asyncio.create_task(work(k, 0.05 * (3 - first_later(k)))) for k in range(3)]
        for task in asyncio.as_completed(tasks):
            k, total = await task
            print(k, total, float(np.roll(a, k)[:k].sum()))
        waiting = [work(k, random.random() / 50) for k in range(8)]
        found = [await task for task in asyncio.as_completed(waiting)]
        print(sorted(found))
        try:
            async with asyncio.timeout(0.05):
                while True:
                    a.sum()
                    await asyncio.sleep(first_later(0))
        except TimeoutError:
            print("late", float(a.sum()))
        racing = [asyncio.create_task(work(k, 0.01 * k)) for k in range(4)]
        done, rest = await asyncio.wait(racing, return_when="FIRST_COMPLETED")
        print(sorted(task.result() for task in done), len(rest))
        threads = [asyncio.to_thread(lambda k=k: float(np.sort(-a)[k])) for k in range(3)]
        print(await asyncio.gather(work(1, 0.001), *threads))
        loop = asyncio.get_running_loop()
        until, rounds = loop.time() + 0.05, 0
        while loop.time() < until:
            rounds += float(a.sum()) > 0
            await asyncio.sleep(0)
        print(rounds > 0)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print(6 * 7)", stdout=asyncio.subprocess.PIPE
        )
        print(await process.communicate(), process.returncode, float(a.sum()))

    asyncio.run(main())
"""


def test_tasks_of_a_loop_go_on_in_one_order(tmp_path):
    """Each rank went on with the task whose time had come first there."""
    compare(tmp_path, RACES)


def test_executors(tmp_path):
    compare(tmp_path, EXECUTORS)


def test_pools(tmp_path):
    compare(tmp_path, POOLS)


def test_processes_that_tasks_start(tmp_path):
    """A child that a thread of a pool has forked waited for the turn of threads that it has not."""
    source = """
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
        import numpy as np

        a = np.arange(100_000.0)

        def square(x):
            with ThreadPoolExecutor(2) as pool:
                return sum(pool.map(float, x * x))

        def work(k):
            with ProcessPoolExecutor(1) as pool:
                return pool.submit(square, a[:k]).result() + float(a.sum())

        if __name__ == "__main__":
            with ThreadPoolExecutor(2) as pool:
                print(list(pool.map(work, range(1, 4))))
    """
    compare(tmp_path, source, ranks=2)


def test_a_program_that_fails_while_tasks_are_left(tmp_path):
    """They went on while the ranks agreed on the end, one of them further than another."""
    write_script(
        tmp_path,
        """
        from concurrent.futures import ThreadPoolExecutor
        import time
        import numpy as np

        a = np.arange(100_000.0)

        def work(k):
            time.sleep(0.01)
            print(k, float((a + k).sum()), flush=True)

        pool = ThreadPoolExecutor(2)
        for k in range(4):
            pool.submit(work, k)
        raise ValueError("the program's")
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path, timeout=90)
    assert done.code == 1
    assert done.err.count("ValueError: the program's") == 1, done.err
    sums = [f"{k} {4999950000.0 + 100_000 * k}" for k in range(4)]
    assert done.out.splitlines() == sums


def test_threads_of_libraries_are_refused_and_not_hung(tmp_path):
    library = """
        from concurrent.futures import ThreadPoolExecutor
        from threading import Thread

        def apply(function, values):
            with ThreadPoolExecutor(3) as pool:
                return list(pool.map(function, values))

        def begin(function, *args):
            thread = Thread(target=function, args=args)
            thread.start()
            return thread
    """
    write_script(tmp_path / "site-packages", library, "library.py")
    write_script(
        tmp_path,
        """
        import os, sys
        sys.path.append(os.path.join(os.path.dirname(__file__), "site-packages"))
        import library
        import numpy as np
        a, whole = np.arange(100_000.0), np.arange(5.0)

        def work(k):
            try:
                found.append(float((a + k).sum()))
            except RuntimeError as error:
                found.append(type(error).__name__)
            return float((whole + k).sum())

        found = []
        print(library.apply(work, range(3)), found)
        library.begin(work, 1).join()
        print(found[-1], float(a.sum()))
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path, timeout=90)
    refused = "CommunicationForbidden"
    said = f"[10.0, 15.0, 20.0] {[refused] * 3}\n{refused} 4999950000.0\n"
    assert (done.code, done.out) == (0, said), done.err
