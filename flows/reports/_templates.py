"""The templates of pages: every text that they are given is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["template"]


def template(name: str) -> Any:
    """Return a template of ours, of Jinja."""
    return _environment().get_template(name)


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 -- slow to import

    return Environment(
        loader=PackageLoader("flows", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
