"""Which code made it: part of every model's version and of every annotated catalogue's provenance."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def code_version() -> str:
    """Return the installed version, or a name that says that nothing is installed."""
    try:
        return version("galaxyblr")
    except PackageNotFoundError:
        return "0+source"
