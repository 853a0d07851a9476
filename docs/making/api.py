"""Pages of the Python interface: the public names of each package, a page each, from their docstrings."""

from __future__ import annotations

__all__ = ["MODULES", "api_pages", "public_names", "stub_pages"]

import importlib
import inspect

MODULES = {
    "blr": "Numerics: arrays and tables in, arrays and posteriors out.",
    "catalogs": "Catalogues: tables in, tables out, streamed.",
    "flows": "Training and classification of whole catalogues, from Python.",
    "blr.selection.evidence": "Fits that are integrated over the scale of the prior.",
    "blr.selection.compare": "Weights of candidates that predict left-out rows best.",
    "blr.calibration": "How good probabilities are.",
    "catalogs.profile.split": "Rows that are held out, and pixels of the sky.",
    "flows.demo.steps": "The galaxies of OpenNGC, as a table and as files.",
    "flows.tables": "Tables in memory: trained from, and classified.",
    "flows.request": "What each command is asked for.",
    "flows.classification.census_taking": "A census of an annotated catalogue.",
    "flows.plots.axes": "",
    "flows.plots.pictures": "",
}
"""The public modules, and what each is for; where nothing is said, its docstring's first line says it."""


def api_pages() -> dict[str, str]:
    """Return the name and the reStructuredText of each page; the page `index.rst` lists the others."""
    pages = {}
    for module in MODULES:
        pages[f"{module}.rst"] = _page(module)
    rows = "\n".join(f"   {module}" for module in MODULES)
    pages["index.rst"] = (
        "Python interface\n================\n\n"
        "The public names, written from their docstrings when the site is built. "
        ":doc:`The library </python>` shows how they go together.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n{rows}\n"
    )
    return pages


def stub_pages() -> list[str]:
    """Return the names of the pages that Sphinx writes, one a public function or class."""
    return [f"{module}.{name}.rst" for module in MODULES for name in _names(module)[0]]


def public_names(module: str) -> list[str]:
    """Return the names that a module states, or else those of the functions and classes that it defines."""
    loaded = importlib.import_module(module)
    own = [name for name, value in vars(loaded).items() if getattr(value, "__module__", "") == module]
    return getattr(loaded, "__all__", [n for n in own if not n.startswith("_") and callable(vars(loaded)[n])])


def _names(module: str) -> tuple[list[str], list[str]]:
    """Return the public functions and classes of a module, and its constants."""
    loaded = importlib.import_module(module)
    names = public_names(module)
    documented = [name for name in names if callable(getattr(loaded, name))]
    return documented, [name for name in names if name not in documented]


def _page(module: str) -> str:
    purpose = MODULES[module] or (inspect.getdoc(importlib.import_module(module)) or "").splitlines()[0]
    names, constants = _names(module)
    text = f"{module}\n{'=' * len(module)}\n\n{purpose}\n\n.. currentmodule:: {module}\n\n"
    text += ".. autosummary::\n   :toctree: stubs\n   :nosignatures:\n\n"
    text += "".join(f"   {name}\n" for name in names)
    if constants:
        text += "\n" + "".join(f".. autodata:: {name}\n   :no-value:\n\n" for name in constants)
    return text
