"""Threads that the program starts take turns, in step on all ranks."""

from launching import compare, on_ranks, write_script

THREADS = """
    import queue, threading, time
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing.pool import ThreadPool
    import numpy as np

    a = np.arange(100_000.0)

    def begin(function, *args):
        thread = threading.Thread(target=function, args=args)
        thread.start()
        return thread

    def produce(i):
        for j in range(3):
            items.put((i, j, float((a[i::3] + j).sum())))
        items.put(None)

    items, found, ended, total = queue.Queue(maxsize=2), [], 0, 0.0
    producers = [begin(produce, i) for i in range(3)]
    while ended < 3:
        item = items.get()
        if item is None:
            ended += 1
        else:
            found.append(item)
            total = total / 2 + item[2]  # in the same order on all ranks
            (a * total).sum()
    for producer in producers:
        producer.join()
    print(sorted(found), [producer.is_alive() for producer in producers])

    class Summing(threading.Thread):
        def run(self):
            barrier.wait()
            self.sum = float(a.sum())

    barrier = threading.Barrier(3)
    summing = [Summing(daemon=True), Summing(daemon=True)]
    for thread in summing:
        thread.start()
    barrier.wait()
    for thread in summing:
        thread.join()
    print([thread.sum for thread in summing])

    def wait_for_three():
        with condition:
            condition.wait_for(lambda: len(state) > 2)
            state.append(float(a.max()))

    condition, state = threading.Condition(), []
    waiting = begin(wait_for_three)
    for i in range(3):
        with condition:
            state.append(i)
            condition.notify_all()
    waiting.join()
    print(state)

    def in_turn(i):
        with semaphore:
            state.append((i, float((a * i).sum())))
            time.sleep(0.001)

    semaphore, state = threading.Semaphore(1), []
    for thread in [begin(in_turn, i) for i in range(4)]:
        thread.join(5)
    print(sorted(state))

    # Asking instead of waiting.
    def later():
        time.sleep(0.03)
        a.sum()
        event.set()
        items.put(5)

    event = threading.Event()
    thread = begin(later)
    while not event.is_set():
        a.mean()
    thread.join()
    print(event.is_set(), items.get_nowait())
    thread = begin(later)
    while thread.is_alive():
        a.mean()
    print(items.qsize(), items.get())
    begin(later)
    while items.empty():
        a.mean()
    print(items.get())
    begin(later)
    while True:
        try:
            print(items.get(block=False))
            break
        except queue.Empty:
            a.mean()

    items = queue.Queue()
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(later), pool.submit(later)]
        while not all(future.done() for future in futures):
            a.mean()
        result = ThreadPool(1).apply_async(later)
        while not result.ready():
            a.mean()
    print(items.qsize(), result.successful())

    # Threads that others start, fail, go on for ever, or are left at the end.
    def fail():
        begin(lambda: print("inner", float((a * 2).sum()))).join()
        raise ValueError(float(a.sum()))

    threading.excepthook = lambda failed: print(repr(failed.exc_value))
    begin(fail).join()

    def beat():
        while True:
            time.sleep(0.01)
            a[:1].sum()

    threading.Thread(target=beat, daemon=True).start()
    threading.Timer(0.03, lambda: print("timer", float(a.min()))).start()
    threading.Timer(99, print).cancel()
    begin(lambda: (time.sleep(0.2), print("left", float(a.sum()))))
    print("the end")
"""


def test_threads(tmp_path):
    """They were refused what needs a message; ranks that asked one whether it was done parted."""
    compare(tmp_path, THREADS)


def test_a_program_that_fails_while_threads_are_left(tmp_path):
    write_script(
        tmp_path,
        """
        import threading, time
        import numpy as np

        a = np.arange(100_000.0)

        def work():
            time.sleep(0.1)
            print(float(a.sum()), flush=True)

        threading.Thread(target=work).start()
        raise ValueError("the program's")
        """,
    )
    done = on_ranks(3, "program.py", cwd=tmp_path, timeout=90)
    assert (done.code, done.out) == (1, "4999950000.0\n"), done.err
    assert done.err.count("ValueError: the program's") == 1, done.err
