"""JupyterLab in a browser without a window: the example's notebook as a user sees it."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.notebook.kernels import PATIENCE, settings

pytest.importorskip("ipyparallel")
pytest.importorskip("matplotlib")
pytest.importorskip("jupyterlab")
playwright = pytest.importorskip("playwright.sync_api")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "heat.ipynb"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or ""
#: Whether the notebook's kernel has started and waits.
IDLE = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
THEMES = ("JupyterLab Light", "JupyterLab Dark")


@contextlib.contextmanager
def a_lab(home):
    """The address of a JupyterLab whose files are in a directory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--port={port}", "--ServerApp.token=", "--ServerApp.password=", "--allow-root"]
    options += ["--no-browser", "--LabApp.expose_app_in_browser=True", f"--notebook-dir={home}"]
    own = settings(home, JUPYTER_CONFIG_DIR=str(home / "config"), DISTARRAY_RANKS="2")
    with open(home / "log", "w") as log:
        lab = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=own, cwd=home, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api"):
                break
            assert time.monotonic() < until, (home / "log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        lab.terminate()
        lab.wait(PATIENCE)


@contextlib.contextmanager
def a_page(**how):
    """A page of a browser."""
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=sandbox)
        try:
            page = browser.new_page(**how)
            page.set_default_timeout(1000 * PATIENCE)
            yield page
        finally:
            browser.close()


def command(page, name, **how):
    """Have JupyterLab do something; what comes of it is waited for on the page."""
    page.evaluate("([name, how]) => { jupyterapp.commands.execute(name, how) }", [name, how])


@pytest.mark.skipif(not BROWSER, reason="no Chromium on this machine")
def test_the_notebook_in_a_browser(mpiexec, tmp_path):
    shutil.copy(NOTEBOOK, tmp_path)
    shown = {"viewport": {"width": 1100, "height": 2600}}  # cells out of sight are not drawn
    with a_lab(tmp_path) as address, a_page(**shown) as page:
        page.goto(f"{address}/lab/tree/{NOTEBOOK.name}?reset")
        page.wait_for_selector(".jp-CodeCell")
        page.wait_for_function(IDLE)  # without a kernel nothing is run
        command(page, "notebook:run-all-cells")
        last = page.locator(".jp-CodeCell").last
        last.get_by_text("ndarray (400, 400)").wait_for()
        for wanted in ("3 ranks (", "mean 5.000000, hottest 100.000000", "2 ranks (", "Shard(0)"):
            page.locator(".jp-OutputArea-output").get_by_text(wanted).first.wait_for()
        text = page.locator(".jp-Notebook").inner_text()
        assert text.count("Traceback") == 1
        assert "ValueError: matmul: Input operand 1 has a mismatch" in text
        assert page.locator(".jp-OutputArea-output svg").count() == 1, "how the array is cut"
        assert page.locator(".jp-OutputArea-output img").count() == 1, "matplotlib's picture"
        colours = []
        for theme in THEMES:
            command(page, "apputils:change-theme", theme=theme)
            page.wait_for_selector(f'body[data-jp-theme-name="{theme}"]', state="attached")
            label = page.locator(".jp-OutputArea-output svg text").last
            colours.append(label.evaluate("node => getComputedStyle(node).fill"))
            page.screenshot(path=tmp_path / f"{theme}.png")
        assert len(set(colours)) == 2, "what stands beside a picture is read on dark pages, too"
