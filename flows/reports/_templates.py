"""The templates of pages: every text that they are given is escaped."""

from __future__ import annotations

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["TEMPLATES"]

TEMPLATES: Final = Environment(
    loader=PackageLoader("flows", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
