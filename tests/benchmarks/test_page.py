"""The figures of the performance page: of measurements, and none without them."""

import json
from xml.etree import ElementTree

import pytest

from benchmarks import page
from benchmarks.run import Measurement

ABOUT = {
    "date": "2026-01-02",
    "commit": "abc123",
    "machine": "x86 Linux",
    "processor": "a <fast> one",
    "python": "3.11",
    "numpy": "2.4",
    "cores": "2",
}
FOUND = [
    Measurement("triad", "numpy", 1, "", [4.0, 4.0, 4.0]),
    Measurement("triad", "distarray", 1, "", [4.0, 4.2, 3.8]),
    Measurement("triad", "distarray", 2, "", [2.0, 2.0, 2.0, 1.0]),
    Measurement("triad", "heat", 2, "", [8.0]),
    Measurement("move", "distarray", 2, "", [3.0, 3.0]),
    Measurement("move", "local", 2, "", [1.5, 1.5]),
    Measurement("sizes: a + b, 64 KiB", "numpy", 1, "", [1.0, 1.0]),
    Measurement("sizes: a + b, 64 KiB", "distarray", 1, "", [1.0, 1.0]),
    Measurement("sizes: a + b, 64 KiB", "distarray", 2, "", [4.0, 4.0]),
    Measurement("sizes: a + b, 1 MiB", "numpy", 1, "", [8.0, 8.0]),
    Measurement("sizes: a + b, 1 MiB", "distarray", 2, "", [4.0, 4.0]),
    Measurement("import", "distarray", 1, "", [0.1]),
]


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "benchmarks.jsonl"
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in [ABOUT, *[m.line() for m in FOUND]])
    )
    return path


def test_speeds_are_ratios_of_what_was_measured(written):
    _, found = page.read(written)
    ((case, bars),) = page.beside_numpy(found)
    assert case == "triad"
    assert [(bar[3], bar[0]) for bar in bars] == [
        ("distarray, 1 rank", 1.0),
        ("distarray, 2 ranks", 2.0),
        ("heat, 2 ranks", 0.5),
    ]
    assert bars[1][1] <= bars[1][0] < bars[1][2], "the spread of the runs"
    ((_, scaled),) = page.by_ranks(found)
    assert [bar[0] for bar in scaled] == [2.0]
    swept = {group: [(bar[3], bar[0]) for bar in bars] for group, bars in page.by_size(found)}
    assert swept == {
        "a + b, 1 rank": [("distarray, 64 KiB", 1.0)],
        "a + b, 2 ranks": [("distarray, 64 KiB", 0.25), ("distarray, 1 MiB", 2.0)],
    }
    ((case, copied),) = page.beside_copies(found)
    assert (case, copied[0][0]) == ("move, 2 ranks", 0.5)


def test_the_page_says_what_was_measured_where(written, tmp_path, capsys):
    place = tmp_path / "performance"
    place.mkdir()
    (place / "old_1.svg").touch()
    page.main(["--input", str(written), "--output", str(place)])
    assert capsys.readouterr().out.startswith("4 figures in ")
    names = sorted(path.name for path in place.iterdir())
    assert names == [
        *("benchmarks.jsonl", "copies_1.svg", "figures.inc"),
        *("numpy_1.svg", "scaling_1.svg", "sizes_1.svg"),
    ]
    text = (place / "figures.inc").read_text()
    assert "commit ``abc123`` on 2026-01-02" in text
    assert text.count(".. figure:: /performance/") == 4
    assert (place / "benchmarks.jsonl").read_text() == written.read_text()
    tree = ElementTree.fromstring((place / "numpy_1.svg").read_text())
    assert len(tree.findall("{*}rect")) == 3


@pytest.mark.parametrize("text", [None, "", '{"some": "thing"}\n', "[1]\n"])
def test_without_measurements_there_are_no_figures(tmp_path, capsys, text):
    path = tmp_path / "benchmarks.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit):
        page.main(["--input", str(path), "--output", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert "make bench" in said or "no file" in said
    assert not (tmp_path / "out").exists()


def test_many_cases_are_several_pictures():
    found = [
        Measurement(f"case {n}", library, 1, "", [1.0]).line()
        for n in range(40)
        for library in ("numpy", "distarray")
    ]
    made = page.figures(ABOUT, found)
    assert sorted(name for name in made if name.startswith("numpy")) == [
        f"numpy_{n}.svg" for n in (1, 2, 3)
    ]
