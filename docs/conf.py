"""How the manual is built: ``make docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import draw_layouts  # noqa: E402
import draw_random  # noqa: E402
import write_pages  # noqa: E402
from numpydoc.docscrape import NumpyDocString  # noqa: E402
from numpydoc.docscrape_sphinx import SphinxDocString  # noqa: E402

import distarray  # noqa: E402

project = "distarray"
author = "the distarray developers"
release = version = distarray.__version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode", "numpydoc"]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]
html_theme = "alabaster"
html_show_copyright = False
html_theme_options = {"description": "NumPy arrays over MPI", "page_width": "72rem"}
default_role = "code"
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Our docstrings have a section that numpydoc does not know: what a call costs. It stands before
# the notes.
NumpyDocString.sections["Cost"] = []
_plain_section = SphinxDocString._str_section


def _section(self, name):
    cost = _plain_section(self, "Cost") if name == "Notes" else []
    return cost + _plain_section(self, name)


SphinxDocString._str_section = _section

draw_layouts.write(HERE / "pictures")
draw_random.write(HERE / "pictures")
write_pages.write(HERE / "generated")
