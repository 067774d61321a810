"""Memory that the program shares with its processes, or maps from a file, is written whole."""

from launching import compare

SHARED = """
    import mmap, multiprocessing
    from multiprocessing import shared_memory
    import numpy as np

    SIZE = 120_000

    def attach(name):
        block = shared_memory.SharedMemory(name=name)
        x = np.ndarray((SIZE,), np.float64, buffer=block.buf)
        total = float(x.sum())
        x[::2] = 1
        del x
        block.close()
        return total

    def keep(array):
        global kept
        kept = array

    def halve(lines):
        first, last = lines
        x = np.frombuffer(kept.get_obj())
        total = float(x.sum())
        x[first:last] /= 2
        return total

    if __name__ == "__main__":
        context = multiprocessing.get_context("fork")
        block = shared_memory.SharedMemory(create=True, size=8 * SIZE)
        x = np.ndarray((SIZE,), np.float64, buffer=block.buf)
        x[:] = np.arange(SIZE)
        with context.Pool(1) as pool:
            print(pool.apply(attach, (block.name,)))
        print(float(x.sum()), float((x * 2)[SIZE - 1]))
        del x
        block.close()
        block.unlink()

        array = context.Array("d", SIZE)
        np.frombuffer(array.get_obj())[:] = 6
        with context.Pool(1, keep, (array,)) as pool:
            print(pool.map(halve, [(0, SIZE // 2), (SIZE // 2, SIZE)]))
        print(float(np.frombuffer(array.get_obj()).sum()), float(np.asarray(array.get_obj()).min()))

        np.zeros(SIZE).tofile("mapped.bin")
        with open("mapped.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            x = np.frombuffer(mapped)
            x += 1
            x *= np.arange(SIZE)
            print(float(x.sum()))
            del x
            mapped.flush()
        print(float(np.fromfile("mapped.bin").sum()))

        raw = bytearray(8 * SIZE)
        x = np.frombuffer(raw)
        x[:] = np.linspace(0, 1, SIZE)
        print(sum(memoryview(raw).cast("d")[SIZE - 3 :]), len(bytes(raw).strip(bytes(1))))
"""


def test_all_of_it_is_written(tmp_path):
    """Each rank wrote its part alone: children read zeros, and a file got rank 0's part."""
    compare(tmp_path, SHARED)


TENSORS = """
    import numpy as np
    import torch

    t = torch.zeros(300_000, dtype=torch.float64)
    a = np.asarray(t)
    a[1::2] = 3
    a += np.arange(a.size)
    b = np.from_dlpack(t)
    b[-1] *= 2
    np.multiply(b, 2, out=b)
    print(float(t.sum()), float(t[1]), float(t[-1]), float(a.sum()), bool((b == t.numpy()).all()))
    c = np.array(t)
    c[:] = 0
    print(float(t.sum()), float(c.sum()))
"""


def test_what_is_written_reaches_the_tensor(tmp_path):
    """A cut copy was written to, and the tensor not; on one rank it was."""
    compare(tmp_path, TENSORS)
