"""What may have happened to a checkpoint: each function does it to the one at a path."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distarray.checkpoint import catalog

__all__ = ["CLAIMS", "DAMAGES", "HOSTILE", "Bomb", "claimed"]


class Bomb:
    """What runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {os.environ.get('DISTARRAY_TEST_BOMB', '/tmp/exploded')}",)


def _file(path: Path) -> Path:
    return sorted((path / "table").glob("c.*"))[0]


def _flipped(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)


def truncated(path: Path) -> None:
    os.truncate(_file(path), _file(path).stat().st_size - 1)


def emptied(path: Path) -> None:
    os.truncate(_file(path), 0)


def longer(path: Path) -> None:
    with _file(path).open("ab") as file:
        file.write(b"more")


def missing(path: Path) -> None:
    _file(path).unlink()


def one_too_many(path: Path) -> None:
    (path / "table" / "c.99.0").write_bytes(_file(path).read_bytes())


def directory_missing(path: Path) -> None:
    (path / "table").rename(path.with_name("gone"))


def flipped_in_data(path: Path) -> None:
    _flipped(_file(path), 17)


def flipped_in_checksum(path: Path) -> None:
    _flipped(_file(path), 256 // 88 * 88 + 1)


def flipped_in_index(path: Path) -> None:
    _flipped(_file(path), -20)


def flipped_in_index_checksum(path: Path) -> None:
    _flipped(_file(path), -1)


def flipped_in_description(path: Path) -> None:
    text = (path / "zarr.json").read_bytes()
    _flipped(path / "zarr.json", text.index(b'"time"') + 2)


def description_truncated(path: Path) -> None:
    os.truncate(path / "zarr.json", 200)


def description_empty(path: Path) -> None:
    os.truncate(path / "zarr.json", 0)


#: With words that the message has.
DAMAGES: dict[Callable[[Path], None], str] = {
    truncated: r"array 'table': .*c\.0\.0 has \d+ bytes where \d+ were saved; .*truncated",
    emptied: r"c\.0\.0 has 0 bytes",
    longer: r"c\.0\.0 has \d+ bytes where \d+ were saved; the file is damaged",
    missing: r"array 'table': \d of its \d files",
    one_too_many: r"c\.99\.0 belongs to no part",
    directory_missing: r"table is missing",
    flipped_in_data: r"array 'table', chunk \(0, 0\), in .*c\.0\.0: the bytes are not those",
    flipped_in_checksum: r"array 'table', chunk \(0, 0\), .* checksum differs",
    flipped_in_index: r"array 'table': the index of .*c\.0\.0 is not the one",
    flipped_in_index_checksum: r"array 'table': the index of",
    flipped_in_description: r"zarr\.json: the description is not the one that was saved",
    description_truncated: r"zarr\.json is damaged",
    description_empty: r"zarr\.json is damaged",
}


def _resealed(path: Path, change: Callable[[Any, Any], None]) -> None:
    """Change the description, and give it the checksum of what it says now."""
    whole = json.loads((path / "zarr.json").read_bytes())
    about = whole["attributes"]["distarray"]
    change(about, whole["consolidated_metadata"]["metadata"])
    (path / "zarr.json").write_bytes(catalog.sealed(json.dumps(whole).encode()))


def traversal(path: Path) -> None:
    secret = path.with_name("secret")
    (path / "table").rename(secret)

    def change(about: Any, arrays: Any) -> None:
        arrays["../secret"] = arrays.pop("table")
        about["state"] = {"array": "../secret", "kind": "DistArray"}

    _resealed(path, change)


def absolute(path: Path) -> None:
    def change(about: Any, arrays: Any) -> None:
        arrays["/etc"] = arrays.pop("table")

    _resealed(path, change)


def linked_file(path: Path) -> None:
    file = _file(path)
    file.rename(path.with_name("elsewhere"))
    file.symlink_to(path.with_name("elsewhere"))


def linked_directory(path: Path) -> None:
    (path / "table").rename(path.with_name("elsewhere"))
    (path / "table").symlink_to(path.with_name("elsewhere"))


def linked_description(path: Path) -> None:
    (path / "zarr.json").rename(path.with_name("elsewhere"))
    (path / "zarr.json").symlink_to(path.with_name("elsewhere"))


def pipe(path: Path) -> None:
    _file(path).unlink()
    os.mkfifo(path / "table" / "c.0.0")


def pickled_description(path: Path) -> None:
    (path / "zarr.json").write_bytes(pickle.dumps(Bomb()))


def pickled_object(path: Path) -> None:
    def change(about: Any, arrays: Any) -> None:
        about["state"] = {"item": pickle.dumps(Bomb()).hex(), "dtype": "|O", "kind": "scalar"}

    _resealed(path, change)


def objects(path: Path) -> None:
    def change(about: Any, arrays: Any) -> None:
        raw = {"name": "raw_bytes", "configuration": {"length_bytes": 8}}
        arrays["table"] |= {"data_type": raw, "attributes": {"dtype": "|O"}}

    _resealed(path, change)


def objects_by_another_name(path: Path) -> None:
    """NumPy takes any class for a type of objects, those of ml_dtypes that are no types as well."""

    def change(about: Any, arrays: Any) -> None:
        about["state"] = {"item": "00" * 8, "dtype": "ml_dtypes.finfo", "kind": "scalar"}

    _resealed(path, change)


def _shaped(shape: list[Any], shard: list[int], chunk: list[int]) -> Callable[[Any, Any], None]:
    def change(about: Any, arrays: Any) -> None:
        table = arrays["table"]
        table["shape"] = shape
        table["chunk_grid"]["configuration"]["chunk_shape"] = shard
        if table["codecs"][0]["name"] == "sharding_indexed":
            table["codecs"][0]["configuration"]["chunk_shape"] = chunk

    return change


def enormous(path: Path) -> None:
    _resealed(path, _shaped([1 << 50, 11], [15, 11], [3, 11]))


def beyond_numbers(path: Path) -> None:
    _resealed(path, _shaped([1 << 200, 11], [15, 11], [3, 11]))


def chunks_without_end(path: Path) -> None:
    _resealed(path, _shaped([1 << 40, 11], [1 << 40, 11], [1, 1]))


def one_giant_file(path: Path) -> None:
    _resealed(path, _shaped([1 << 30, 11], [1 << 30, 11], [1 << 20, 11]))


def negative(path: Path) -> None:
    _resealed(path, _shaped([-37, 11], [15, 11], [3, 11]))


def not_numbers(path: Path) -> None:
    _resealed(path, _shaped(["37", True], [15, 11], [3, 11]))


def no_division(path: Path) -> None:
    _resealed(path, _shaped([37, 11], [15, 11], [4, 11]))


def zero_chunks(path: Path) -> None:
    _resealed(path, _shaped([37, 11], [15, 11], [0, 11]))


def codec_of_their_own(path: Path) -> None:
    def change(about: Any, arrays: Any) -> None:
        arrays["table"]["codecs"] = [{"name": "bytes"}, {"name": "numcodecs.pickle"}]

    _resealed(path, change)


def bottomless(path: Path) -> None:
    (path / "zarr.json").write_text("[" * 200_000)


def bottomless_state(path: Path) -> None:
    def change(about: Any, arrays: Any) -> None:
        node: Any = {"value": 1}
        for _ in range(900):
            node = {"list": [node]}
        about["state"] = node

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    _resealed(path, change)
    sys.setrecursionlimit(limit)


def absent_array(path: Path) -> None:
    def change(about: Any, arrays: Any) -> None:
        about["state"] = {"array": "nowhere", "kind": "DistArray"}

    _resealed(path, change)


def nonsense(path: Path) -> None:
    def change(about: Any, arrays: Any) -> None:
        about["state"] = {"dict": [[["key"], {"call": "os.system"}]]}

    _resealed(path, change)


def other_version(path: Path) -> None:
    _resealed(path, lambda about, arrays: about.__setitem__("format", 99))


HOSTILE: dict[Callable[[Path], None], str] = {
    traversal: "is not a name that save gives",
    absolute: "is not a name that save gives",
    linked_file: "is a symbolic link",
    linked_directory: "is a symbolic link",
    linked_description: "symbolic link",
    pipe: "no ordinary file",
    pickled_description: "zarr.json is damaged",
    pickled_object: "not a data type|Python objects",
    objects: "not a data type|Python objects",
    objects_by_another_name: "never loaded|needs ml_dtypes",
    enormous: "bytes where .* were saved|of its",
    beyond_numbers: "is not possible",
    chunks_without_end: "claims .* chunks a file",
    one_giant_file: "has .* bytes where|of its 1 files|belongs to no part",
    negative: "not possible",
    not_numbers: "not possible",
    no_division: "do not divide",
    zero_chunks: "not possible",
    codec_of_their_own: "malformed|not those of a checkpoint",
    bottomless: "is damaged",
    bottomless_state: "malformed|is damaged|not the one that was saved",
    absent_array: "that is not there",
    nonsense: "not the entries of a dict",
    other_version: "format 99",
}


def claimed(path: Path, where: str, value: Any) -> None:
    """Have the description claim something: of itself, of its state, of the array `table`."""

    def change(about: Any, arrays: Any) -> None:
        part = {"about": about, "table": arrays["table"]}.get(where.partition(".")[0], about)
        part[where.partition(".")[2] or where] = value

    _resealed(path, change)


_RAW = {"name": "raw_bytes", "configuration": {"length_bytes": 0}}
_CELL = {"dtype": "<f8", "kind": "scalar"}
#: (what, the value claimed for it, words of the refusal)
CLAIMS: list[tuple[str, Any, str]] = [
    ("about.step", "7", "claims the step '7'"),
    ("state", {"array": "table", "kind": "thing"}, "claims to be of kind 'thing'"),
    ("state", {"item": "00", **_CELL}, "1 bytes are not an element of float64"),
    ("state", {"item": "no", **_CELL}, "description of the state is malformed"),
    ("state", {"item": "00" * 8, "dtype": 7, "kind": "scalar"}, "neither a string nor a list"),
    ("state", {"item": "00", "dtype": "ml_dtypes.no", "kind": "scalar"}, "is not a data type"),
    ("state", {"value": [1]}, "a value is a number, a string or null"),
    ("state", {"thing": 1}, "describes nothing that is saved"),
    ("table.shape", [1] * 65, "at most 64 lengths"),
    ("table.shape", [1 << 40, 1 << 40], "elements are not possible"),
    ("table.data_type", "int128", "is not one that is saved"),
    ("table.data_type", _RAW, "elements of 0 bytes are not possible"),
    ("table.fill_value", 1, "are not those of a checkpoint"),
]
