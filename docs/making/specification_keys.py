"""The page of the specification's keys, from the models that read it: type, bounds, default, meaning."""

from __future__ import annotations

__all__ = ["specification_page"]

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from flows.specification.specification import Specification

_HUGE: Final = 1e15
"""Bounds from here on are those of a file's integers, which no reader asks for."""


def specification_page() -> str:
    """Return the page, as Markdown: one table for each table of the file."""
    schema = Specification.model_json_schema()
    defined = schema.get("$defs", {})
    lines = [
        "# Keys of a specification, from the code",
        "",
        "This page is written from the models that read a specification when the site is built.",
        "[The specification](../specification.md) tells the same keys with examples and reasons.",
    ]
    for name, table in (("The file itself", schema), *sorted(defined.items())):
        rows = [*_rows(table, defined)]
        if rows:
            title = name if table is schema else f"{name.removesuffix('Table')}"
            description = "" if table is schema else _cell(table.get("description", ""))
            lines += [
                "",
                f"## {title}",
                "",
                description,
                "",
                "| key | type | default | meaning |",
                "|---|---|---|---|",
            ]
            lines += rows
    return "\n".join(lines) + "\n"


def _rows(table: dict[str, Any], defined: dict[str, Any]) -> Iterator[str]:
    required = set(table.get("required", ()))
    for key, field in table.get("properties", {}).items():
        if key == "base_folder":
            continue
        default = "required" if key in required else _default(field.get("default"))
        yield f"| `{key}` | {_type(field, defined)} | {default} | {_cell(field.get('description', ''))} |"


def _default(value: object) -> str:
    if value in (None, [], {}):
        return "none"
    if isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)):
        return "the defaults of its keys"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(field: dict[str, Any], defined: dict[str, Any]) -> str:
    """Return what a key may be, with a link where it is a table of its own."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        title = name.removesuffix("Table")
        inner = defined[name]
        return f"[{title}](#{title.lower()})" if inner.get("properties") else _type(inner, defined)
    parts = next((field[many] for many in ("anyOf", "oneOf", "allOf") if many in field), None)
    if parts is not None:
        return " or ".join(
            dict.fromkeys(_type(part, defined) for part in parts if part.get("type") != "null")
        )
    values = field.get("enum", [field["const"]] if "const" in field else None)
    if values is not None:
        return ", ".join(f"`{value}`" for value in values)
    return _plain_type(field, defined)


def _plain_type(field: dict[str, Any], defined: dict[str, Any]) -> str:
    kind = str(field.get("type", "any value"))
    if kind == "array":
        parts = field.get("prefixItems") or [field.get("items", {})]
        return "list of " + " and ".join(dict.fromkeys(_type(part, defined) for part in parts))
    if kind == "object":
        inner = field.get("additionalProperties")
        return f"table of {_type(inner, defined)}" if isinstance(inner, dict) else "table"
    return {"string": "text", "boolean": "true or false", "integer": "whole number"}.get(
        kind, kind
    ) + _bounds(field)


def _bounds(field: dict[str, Any]) -> str:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    found = [f"{text} {field[key]:g}" for key, text in words.items() if abs(field.get(key, np.inf)) < _HUGE]
    return f", {' and '.join(found)}" if found else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
