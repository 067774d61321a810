"""How the manual is built: ``make docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import draw_layouts  # noqa: E402
import draw_random  # noqa: E402
import make_inventories  # noqa: E402
import write_pages  # noqa: E402
from numpydoc.docscrape import NumpyDocString  # noqa: E402
from numpydoc.docscrape_sphinx import SphinxDocString  # noqa: E402

import distarray  # noqa: E402

project = "distarray"
author = "the distarray developers"
release = version = distarray.__version__
extensions = [
    *("sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.intersphinx"),
    *("sphinx.ext.viewcode", "numpydoc"),
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "performance"]
html_theme = "furo"  # contents of the page at the right, next and previous below
html_title = f"distarray {release}"
html_show_copyright = False
html_copy_source = False
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


def _is_torchs(app, what, name, member, skip, options):
    """Leave out what a class inherits from torch's: torch's manual has it, in torch's markup."""
    owner = getattr(member, "__objclass__", getattr(member, "fget", None) or member)
    return True if str(getattr(owner, "__module__", "")).partition(".")[0] == "torch" else None


def setup(app):
    app.connect("autodoc-skip-member", _is_torchs)


# References into NumPy's and Python's manuals. Where these cannot be reached, inventories that are
# made of the installed NumPy and Python stand for theirs.
intersphinx_mapping = make_inventories.mapping(HERE / "pictures")
intersphinx_timeout = 5
# A reference without a page of ours is one to theirs only if it says so by its full name.
intersphinx_disabled_reftypes = ["std:doc"]

draw_layouts.write(HERE / "pictures")
draw_random.write(HERE / "pictures")
write_pages.write(HERE / "generated")
