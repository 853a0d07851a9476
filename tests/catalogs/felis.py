"""Our columns as a Felis schema: `python -m tests.catalogs.felis` writes docs/columns.felis.yaml, a test holds it.

Felis is the Rubin Observatory's way to describe catalogues, https://felis.lsst.io.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from catalogs.catalog.new_columns import NewColumn, standard_columns

PAGE = Path(__file__).parents[2] / "docs" / "columns.felis.yaml"
EXAMPLES = {"two": ("early", "late"), "three": ("E", "S", "Irr")}
DATATYPES = {
    pa.string(): "string",
    pa.float32(): "float",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.bool_(): "boolean",
}
HEAD = """# The columns that an annotated catalogue gains, as a Felis schema (https://felis.lsst.io).
# Made by `python -m tests.catalogs.felis` from catalogs/catalog/new_columns.py, to which a test holds it.
# Class names are examples: each class of a model has its own columns.  docs/flags.md says what they mean.
"""


def schema() -> dict[str, Any]:
    """Return the schema: two and three classes, the standard and the full columns, with sets, with selections."""
    tables = [
        table(f"{columns}_{number}", classes, columns)
        for number, classes in EXAMPLES.items()
        for columns in ("standard", "full")
    ]
    tables.append(table("sets_three", EXAMPLES["three"], "standard", sets=True))
    tables.append(table("selected_two", EXAMPLES["two"], "standard", selected=EXAMPLES["two"]))
    return {
        "name": "blr",
        "@id": "#blr",
        "description": "Columns that an annotation adds to a catalogue",
        "tables": tables,
    }


def table(
    name: str, classes: tuple[str, ...], columns: Any, *, sets: bool = False, selected: tuple[str, ...] = ()
) -> dict[str, Any]:
    found = standard_columns(classes, columns=columns, sets=sets, selected=selected)
    what = f"{columns} columns of a model of {len(classes)} classes, here {', '.join(classes)}"
    what += " with prediction sets" if sets else ""
    what += f" and columns of selections, here of {', '.join(selected)}" if selected else ""
    return {
        "name": name,
        "@id": f"#{name}",
        "description": what,
        "columns": [described(c, name) for c in found],
    }


def described(column: NewColumn, table_name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": column.name,
        "@id": f"#{table_name}.{column.name}",
        "datatype": DATATYPES[column.datatype],
        "description": column.description,
        "ivoa:ucd": column.ucd,
    }
    if column.width:
        entry["length"] = column.width
    if column.unit:
        entry["fits:tunit"] = column.unit
    return entry


def page() -> str:
    return HEAD + yaml.safe_dump(schema(), sort_keys=False, allow_unicode=True, width=100)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
