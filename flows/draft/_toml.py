"""Texts, lists, tables and comments of a first specification, as TOML has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["comment_text", "inline_table", "shown_mark", "toml_mark", "toml_text", "toml_texts"]


def inline_table(table: Mapping[str, Any]) -> str:
    """Return an inline table of TOML."""
    return f"{{ {', '.join(f'{name} = {_value(value)}' for name, value in table.items())} }}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)


def toml_text(text: str) -> str:
    """Return a text as TOML has it: JSON's texts are TOML's too, all but the one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def toml_mark(value: float | str) -> str:
    """Return a mark of a missing value as TOML has it."""
    return toml_text(value) if isinstance(value, str) else repr(value)


def shown_mark(value: float | str) -> str:
    """Return a mark of a missing value as a comment shows it."""
    return value if isinstance(value, str) else f"{value:g}"


def toml_texts(texts: tuple[str, ...]) -> str:
    """Return a list of texts as TOML has it."""
    return f"[{', '.join(toml_text(text) for text in texts)}]"


def comment_text(text: str) -> str:
    """Return a text that is safe in a comment."""
    return "".join(c if c.isprintable() else " " for c in text)
