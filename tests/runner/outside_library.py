"""A library outside of the program's directory, which does with files what libraries do."""

# ruff: noqa: SIM115, PTH - written as such libraries are

import bz2
import configparser
import csv
import glob
import gzip
import io
import json
import os
import pathlib
import pickle
import shutil
import tempfile
import zipfile


def write(name, data):
    """Look first, then write."""
    if os.path.exists(name):
        open(name, "rb").read(4)
    with open(name, "wb") as file:
        file.write(data)


def read(name):
    with open(name, "rb") as file:
        return file.read()


def again(p):
    found = []
    for i in range(3):
        if os.path.exists(p):
            found.append(read(p))
            os.remove(p)
        with open(p, "xb") as file:
            file.write(b"%d" % i)
        write(p + "2", b"%d" % i)
        found.append((os.path.getsize(p), read(p + "2")))
    return found


def append(p):
    for i in range(4):
        with open(p, "a") as file:
            file.write(f"{i},")
        found = open(p).read()
    with open(p, "ab") as file:
        return found, file.tell(), os.stat(p).st_size


def update(p):
    write(p, b"0123456789")
    with open(p, "r+b") as file:
        file.seek(3)
        before = file.read(2)
        file.seek(3)
        file.write(b"XX")
        file.seek(0)
        after = file.read()
    descriptor = os.open(p, os.O_RDWR)
    raw = os.read(descriptor, 4), os.lseek(descriptor, 0, os.SEEK_END)
    os.write(descriptor, b"!!")
    os.close(descriptor)
    os.truncate(p, 11)
    return before, after, raw, read(p)


def paths(p):
    path = pathlib.Path(p)
    path.write_text("one")
    path.rename(p + "2")
    os.makedirs(p + "d/a/b")
    write(p + "d/a/b/x", b"1")
    found = [path.exists(), sorted(os.listdir(p + "d")), sorted(glob.glob(p + "d/*/*"))]
    found += [sorted(files) for _, _, files in os.walk(p + "d")]
    shutil.copytree(p + "d", p + "copy")
    shutil.copy(p + "2", p + "3")
    shutil.move(p + "3", p + "4")
    os.replace(p + "4", p)
    found += [read(p + "copy/a/b/x"), path.read_text()]
    shutil.rmtree(p + "d")
    try:
        os.mkdir(p + "copy")
    except FileExistsError:
        found.append("exists")
    return found, os.path.exists(p + "d")


def aside(p):
    found = []
    for i in range(3):
        with open(p + ".part", "w") as file:
            file.write(f"v{i}")
        if os.path.exists(p):
            found.append(open(p).read())
            os.remove(p)
        os.rename(p + ".part", p)
    descriptor, name = tempfile.mkstemp(dir=os.path.dirname(p))
    os.write(descriptor, b"made")
    os.close(descriptor)
    os.replace(name, p + "t")
    return found, open(p).read(), read(p + "t")


def formats(p):
    for i in range(3):
        old = json.load(open(p)) if os.path.exists(p) else {}
        with open(p, "w") as file:
            json.dump({**old, str(i): i}, file)
        with zipfile.ZipFile(p + "z", "a") as archive:
            archive.writestr(f"m{i}", f"text{i}")
        rows = list(csv.reader(open(p + "c", newline=""))) if os.path.exists(p + "c") else []
        with open(p + "c", "w", newline="") as file:
            csv.writer(file).writerows([*rows, [i, i * i]])
        config = configparser.ConfigParser()
        config.read(p + "i")
        config[f"s{i}"] = {"a": str(i)}
        with open(p + "i", "w") as file:
            config.write(file)
        with gzip.open(p + "g", "wb") as file:
            file.write(b"zip%d" % i)
    with bz2.open(p + "b", "wb") as file:
        file.write(b"bz")
    with open(p + "k", "wb") as file:
        pickle.dump(rows, file)
    found = [zipfile.ZipFile(p + "z").namelist(), gzip.open(p + "g").read()]
    found.append(bz2.open(p + "b").read())
    for kind in "zg":  # which hold the time
        os.remove(p + kind)
    with io.FileIO(p + "r", "w") as raw:
        raw.write(b"raw")
    kept = pickle.load(open(p + "k", "rb")), json.load(open(p)), read(p + "r")
    return found, config.sections(), kept
