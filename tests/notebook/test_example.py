"""The notebook of examples/, executed in a real kernel, says what its cells say with NumPy."""

import contextlib
import io
from pathlib import Path

import pytest

from tests.notebook.kernels import PATIENCE, settings

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipyparallel")
pytest.importorskip("matplotlib")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "heat.ipynb"


def test_heat(mpiexec, tmp_path, monkeypatch):
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not committed"
    for name, value in settings(tmp_path).items():
        monkeypatch.setenv(name, value)
    nbclient.NotebookClient(
        notebook, timeout=PATIENCE, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [text_of(cell) for cell in cells if not cell.source.startswith("%")]
    assert shown == in_numpy(cells)
    assert text_of(cells[-1]) == "ndarray (400, 400)\n"
    assert "<svg" in cells[1].outputs[0].data["text/html"]
    drawn = [output.data for output in cells[3].outputs if output.output_type == "display_data"]
    assert [sorted(data) for data in drawn] == [["image/png", "text/plain"]]
    errors = [output.ename for cell in cells for output in cell.outputs if "ename" in output]
    assert errors == ["ValueError"]


def text_of(cell):
    return "".join(
        output.text
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )


def in_numpy(cells):
    """What the cells print in one process with NumPy, without the magics and the drawing."""
    found, names = [], {}
    for cell in cells:
        if cell.source.startswith("%"):
            continue
        said = io.StringIO()
        fails = pytest.raises(ValueError, match="matmul") if "tags" in cell.metadata else None
        with contextlib.redirect_stdout(said), fails or contextlib.nullcontext():
            if "matplotlib" not in cell.source:
                exec(cell.source, names)
        found.append(said.getvalue())
    return found
