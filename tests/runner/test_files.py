"""Files come out as if one process had run the program."""

import textwrap
from pathlib import Path

import numpy as np
import pytest

from launching import compare, on_ranks

PROGRAMS = {
    "write, read back": """
        with open("a.txt", "w") as file:
            file.write("hello\\n")
            print(file.tell(), file.name, file.mode, file.writable(), file.seekable())
        print(open("a.txt").read())
    """,
    "many files, each read at once": """
        for i in range(50):
            with open(f"{i % 3}.txt", "w") as file:
                file.write("x" * 10_000 + str(i))
            with open(f"{i % 3}.txt") as file:
                assert file.read().endswith("x" + str(i)), i
        print("read")
    """,
    "read, then overwrite": """
        import pathlib
        path = pathlib.Path("count")
        path.write_text("0")
        for _ in range(50):
            path.write_text(str(int(path.read_text()) + 1))
        print(path.read_text())
    """,
    "append, update": """
        with open("log", "a") as file:
            print(file.tell(), file.write("one\\n"), file.tell())
        with open("log", "a") as file:
            print(file.tell(), file.write("two\\n"), file.tell())
        with open("log", "r+") as file:
            print(file.readline(), file.tell())
            file.seek(0)
            file.write("ONE")
        with open("log", "a+") as file:
            file.seek(0)
            print(file.read(), file.write("end"))
        with open("bytes", "w+b") as file:
            file.write(b"abcdef")
            file.seek(2)
            file.truncate(4)
            print(file.read(), file.fileno() > 2)
    """,
    "read, then changed": """
        import os, shutil
        for i in range(60):
            with open("a", "w") as file:
                file.write(str(i))
            assert open("a").read() == str(i)
            if i % 3 == 0:
                os.remove("a")
            elif i % 3 == 1:
                os.replace("a", "b")
                assert open("b").read() == str(i)
            else:
                os.makedirs("d/e")
                shutil.move("a", "d/e/a")
                assert open("d/e/a").read() == str(i)
                shutil.rmtree("d")
        print(sorted(os.listdir()))
    """,
    "raw": """
        import io
        for i in range(40):
            with io.FileIO("a", "w") as file:
                file.write(b"raw%d" % i)
            with io.FileIO("a", "a") as file:
                print(file.tell(), file.write(b"!"), file.tell())
            with io.FileIO("a", "r+") as file:
                print(file.read(3), file.write(b"+"), file.seek(0), file.read())
            print(io.FileIO("a").read(), file.mode, file.name)
        class Mine(io.FileIO):
            pass
        with Mine("a") as mine, open("a", "rb") as file:
            print(isinstance(mine, io.FileIO), isinstance(file.raw, io.FileIO))
            print(isinstance(mine, io.RawIOBase), isinstance(file.raw, Mine))
        for act in lambda: io.FileIO("a", "x"), lambda: io.FileIO("no/such", "w"):
            try:
                act()
            except OSError as error:
                print(error)
    """,
    "flushed, not closed": """
        file = open("a", "w")
        file.write("not flushed by the program")
        print(len(open("a").read()) >= 0)
        file.close()
    """,
    "errors are everybody's": """
        import os
        open("there", "w").close()
        for act in (
            lambda: open("there", "x"),
            lambda: open("no/such/place", "w"),
            lambda: os.mkdir("there"),
            lambda: os.remove("missing"),
            lambda: os.rmdir("missing"),
            lambda: os.listdir("missing"),
            lambda: open(".", "w"),
        ):
            try:
                act()
            except OSError as error:
                print(type(error).__name__, error)
    """,
    "directories": """
        import glob, os, pathlib, shutil
        if not os.path.exists("out"):
            os.mkdir("out")
        os.makedirs("out/a/b", exist_ok=True)
        for name in "zyx":
            pathlib.Path("out", name).write_text(name)
        print(os.path.getsize("out/z"), os.listdir("out"), sorted(glob.glob("out/*")))
        print([(root, sorted(d), sorted(f)) for root, d, f in os.walk("out")])
        print(sorted(p.name for p in pathlib.Path("out").iterdir() if p.is_file()))
        with os.scandir("out") as entries:
            print(sorted((e.name, e.is_dir(), e.stat().st_size) for e in entries if e.is_file()))
        os.rename("out/z", "out/w")
        os.replace("out/y", "out/w")
        print(pathlib.Path("out/w").read_text(), os.path.exists("out/y"))
        shutil.copy("out/w", "copy")
        shutil.copytree("out", "tree")
        shutil.move("tree/w", "moved")
        shutil.rmtree("tree/a")
        os.remove("out/x")
        pathlib.Path("out/a/b").rmdir()
        pathlib.Path("touched").touch()
        print(sorted(os.listdir()), os.path.isdir("tree"))
    """,
    "arrays": """
        import io, os, tempfile
        import numpy as np
        x = np.arange(240_000.0).reshape(600, 400)
        np.save("a.npy", x)
        print(np.load("a.npy").sum(), os.path.getsize("a.npy"))
        with open("b.npy", "wb") as file:
            np.save(file, x)
            np.save(file, x[:, :3])
            print(file.tell())
        with open("b.npy", "rb") as file:
            print([np.load(file).shape for _ in range(2)])
        np.savez("c.npz", x, y=x[0], z=3)
        with np.load("c.npz") as archive:
            print(archive.files, archive["y"].mean(), int(archive["z"]), "arr_0" in archive)
        np.savetxt("d.txt", x[:300, :4], fmt="%.3f", header="head")
        with open("e.txt", "w") as file:
            file.write("# mine\\n")
            np.savetxt(file, x[:3, :2])
            file.write("# end\\n")
        print(np.loadtxt("d.txt").sum(), np.loadtxt("e.txt")[2], np.genfromtxt("e.txt").shape)
        x[:5].tofile("f.bin")
        mapped = np.memmap("g.bin", "f4", "w+", shape=(50, 3))
        mapped[3] += 1
        mapped.flush()
        print(np.fromfile("f.bin").size, np.fromfile("g.bin", "f4").sum())
        print(np.load("a.npy", mmap_mode="r")[5, :3], isinstance(mapped, np.memmap))
        memory = io.BytesIO()
        np.save(memory, x[:2])
        print(len(memory.getvalue()))
        with tempfile.TemporaryDirectory() as directory:
            np.save(directory + "/x.npy", x[:7])
            print(np.load(directory + "/x.npy").shape, os.listdir(directory))
        with open("a.npy", "r+b") as file:
            file.seek(-8, 2)
            file.write(np.array(7.0).tobytes())
        print(np.load("a.npy")[-1, -1])
        for act in (lambda: np.load("no.npy"), lambda: np.save("no/a.npy", x)):
            try:
                act()
            except FileNotFoundError as error:
                print(error)
    """,
    "archives and descriptors": """
        import gzip, os, tarfile, zipfile
        with zipfile.ZipFile("z.zip", "w") as z:
            z.writestr(zipfile.ZipInfo("a"), "aa")
        with zipfile.ZipFile("z.zip", "a") as z:
            z.writestr(zipfile.ZipInfo("b"), "bb")
        print(zipfile.ZipFile("z.zip").namelist())
        with gzip.GzipFile("g.gz", "wb", mtime=0) as g:
            g.write(b"zipped")
        print(gzip.open("g.gz").read())
        fd = os.open("raw", os.O_WRONLY | os.O_CREAT, 0o644)
        print(os.write(fd, b"raw"), os.lseek(fd, 0, os.SEEK_CUR))
        os.close(fd)
        print(open("raw", "rb").read())
    """,
    "temporary files are the job's": """
        import os, shutil, tempfile
        import numpy as np
        directory = tempfile.mkdtemp()
        path = os.path.join(directory, "x.dat")
        mapped = np.memmap(path, dtype=float, mode="w+", shape=(2, 3))
        mapped[:] = np.arange(6).reshape(2, 3)
        mapped.flush()
        print(mapped.sum(), np.fromfile(path).tolist(), os.listdir(directory))
        np.save(os.path.join(directory, "y"), mapped)
        print(np.load(os.path.join(directory, "y.npy")).tolist())
        descriptor, name = tempfile.mkstemp(suffix=".txt")
        os.write(descriptor, b"text")
        os.close(descriptor)
        print(open(name).read(), os.path.exists(name))
        os.remove(name)
        shutil.rmtree(directory)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "f")
            with open(path, "w") as file:
                file.write("mine")
            print(open(path).read(), os.path.exists(path), os.listdir(directory))
        print(os.path.exists(directory))
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("a")
            file.flush()
            print(open(file.name).read())
        with tempfile.TemporaryFile() as file:
            file.write(b"a")
            file.seek(0)
            print(file.read())
        directory = tempfile.mkdtemp()
        os.mkdir(os.path.join(directory, "below"))
        open(os.path.join(directory, "below", "f"), "w").close()
        shutil.rmtree(directory)
        print(os.path.exists(directory))
        open("shared", "w").write("after all that")
        print(open("shared").read())
    """,
    "logging": """
        import logging
        logging.basicConfig(filename="log", level="INFO", format="%(message)s")
        logging.info("once")
        logging.shutdown()
        print(open("log").read())
    """,
    "commands run once": """
        import os, subprocess
        print(subprocess.run(["sh", "-c", "echo ran >> ran; cat ran"],
                             capture_output=True, text=True).stdout)
        print(subprocess.check_output(["echo", "out"]), os.system("exit 3") >> 8)
        try:
            subprocess.run(["false"], check=True)
        except subprocess.CalledProcessError as error:
            print(error)
    """,
    "children and threads": """
        import os, threading, time
        def work():
            with open("thread", "w") as file:
                file.write("from a thread")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        child = os.fork()
        if not child:
            os._exit(not os.path.exists("thread") or time.time() < 0)
        print(os.waitpid(child, 0)[1])
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_files_are_as_one_process_leaves_them(tmp_path, name):
    compare(tmp_path, PROGRAMS[name])


def test_one_rank(tmp_path):
    compare(tmp_path, PROGRAMS["directories"], ranks=1)


@pytest.mark.parametrize("ranks", [2, 3])
def test_libraries_that_read_and_write_again(tmp_path, ranks):
    """What they do with files is rank 0's act, and no rank takes another branch."""
    compare(
        tmp_path,
        f"""
        import os, sys
        sys.path.append({str(Path(__file__).parent)!r})
        import outside_library as library
        for name in ("again", "append", "update", "paths", "aside", "formats"):
            os.mkdir(name)
            for _ in range(2):
                print(getattr(library, name)(name + "/" + str(_)), sorted(os.listdir(name)))
        """,
        ranks=ranks,
    )


def test_libraries(tmp_path):
    """NumPy's own files and matplotlib's pictures, written by rank 0 alone."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("PIL")
    compare(
        tmp_path,
        """
        import library
        print(library.main())
        """.replace("import library", LIBRARY),
    )


# The real NumPy, as a library sees it: importlib's own import is not the program's.
LIBRARY = """
        import sys, matplotlib
        import matplotlib.pyplot as plt
        numpy = sys.modules["numpy"]
        class library:
            @staticmethod
            def main():
                for i in range(5):
                    numpy.save("a.npy", numpy.arange(5) + i)
                    print(numpy.load("a.npy"))
                    numpy.savetxt("a.txt", numpy.arange(5) + i)
                    print(numpy.loadtxt("a.txt"))
                numpy.arange(3).tofile("raw")
                print(numpy.fromfile("raw", int))
                mapped = numpy.memmap("map", "f8", "w+", shape=(4,))
                mapped[:] = 3
                mapped.flush()
                print(numpy.fromfile("map"))
                figure, ax = plt.subplots()
                ax.plot([1, 2, 3])
                figure.savefig("p.png")
                figure.savefig("p.png")
                print(plt.imread("p.png").shape)
                try:
                    figure.savefig("no/such/p.png")
                except FileNotFoundError as error:
                    print(error)
                return "done"
"""


def test_checkpoints_and_zarr_stores_are_written_by_all(tmp_path):
    """Each rank writes its own files there, also where libraries do so in threads of theirs."""
    zarr = pytest.importorskip("zarr")
    source = """
        import os
        import numpy as np
        import distarray.io
        from distarray import checkpoint

        x = np.arange(600000.0).reshape(600, 1000)
        state = {"x": x, "more": [x.sum(), np.arange(5)]}
        checkpoint.save("run", state)
        checkpoint.save("run", state, asynchronous=True).wait()
        distarray.io.write("field.zarr", {"x": x}, chunks=(50, 1000))
        distarray.io.write(f"local://{os.getcwd()}/url.zarr", {"x": x}, chunks=(50, 1000))
        found = checkpoint.load("run")
        print((found["x"] == x).all(), float(found["more"][0]))
        print((distarray.io.read("field.zarr", "x") == x).all())
    """
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(source))
    done = on_ranks(3, str(program), cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out == "True 179999700000.0\nTrue\n"
    x = np.arange(600000.0).reshape(600, 1000)
    for path in ("run", "field.zarr", "url.zarr"):
        np.testing.assert_array_equal(zarr.open(tmp_path / path, mode="r")["x"][:], x)
