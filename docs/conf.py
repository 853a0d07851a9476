"""How Sphinx builds the site: `make docs` from the repository's root.

Pages are Markdown, and read well on the repository's host too.  What can be said from the code is written at build time
into `docs/_generated` by `docs/making`: the command line, the keys of a specification, the API, the gallery.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS / "making"), str(DOCS.parent)]

from api import MODULES  # noqa: E402  docs/making is on the path from here on
from generated import write_generated  # noqa: E402
from links import adapt_links  # noqa: E402

project = "blr"
author = "The blr developers"
copyright = author  # noqa: A001  Sphinx's name
release = version_of("galaxyblr")
version = ".".join(release.split(".")[:2])
language = "en"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = [
    "making",
    "gallery/*.py",
    "examples",
    "requirements.lock",
    ".jupyter_cache",
    "**.ipynb_checkpoints",
]
templates_path = ["making/templates"]
nitpicky = True
suppress_warnings = [
    "misc.highlighting_failure",  # signatures in contracts.md are nearly Python
]

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

default_role = "code"  # docstrings put names between single backticks
autosummary_generate = [f"_generated/api/{module}.rst" for module in MODULES]
autodoc_typehints = "none"  # signatures would be longer than the page; the docstrings say shapes and units
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Notebooks are kept without outputs and run here; a failed cell fails the build.
nb_execution_mode = "off" if os.environ.get("BLR_DOCS_NOTEBOOKS") == "off" else "cache"
nb_execution_cache_path = str(DOCS / ".jupyter_cache")
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"

html_theme = "pydata_sphinx_theme"
html_title = "blr"
toc_object_entries_show_parents = "hide"
html_favicon = "making/static/favicon.svg"
html_static_path = ["making/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "blr"},
    "github_url": "https://github.com/galaxyblr/galaxyblr",
    "use_edit_page_button": True,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc", "edit-this-page"],
}
html_context = {
    "github_user": "galaxyblr",
    "github_repo": "galaxyblr",
    "github_version": "main",
    "doc_path": "docs",
}


def _adapt(app: Sphinx, docname: str, source: list[str]) -> None:
    if not docname.startswith("_generated/api") and not docname.startswith("notebooks/"):
        source[0] = adapt_links(source[0], page=Path(app.srcdir) / f"{docname}.md")


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx looks for its sources."""
    app.connect("config-inited", lambda _app, _config: write_generated(), priority=1)
    app.connect("source-read", _adapt)
    app.add_lexer(
        "mermaid", TextLexer
    )  # drawn on the repository's host; here its few words are read as they are
