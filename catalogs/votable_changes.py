"""Changes to a parsed VOTable: columns out, columns in, provenance; and how it is written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io.votable.tree import Field, Info, TableElement, VOTableFile
from astropy.utils.xml.check import fix_id

from catalogs.annotations import NewColumn, Provenance
from catalogs.errors import FormatError
from catalogs.own_columns import provenance_entries
from catalogs.votable_fields import field_type

__all__ = [
    "add_columns",
    "check_own_fields",
    "column_names",
    "drop_columns",
    "drop_other_tables",
    "own_infos",
    "replace_provenance",
    "write",
]

ELEMENTS = {"unsignedByte": "u1", "short": "i2", "int": "i4", "long": "i8", "float": "f4", "double": "f8"}
ELEMENTS |= {"floatComplex": "c8", "doubleComplex": "c16"}
"""The types of a VOTable's numbers."""

OWN = "blr."
"""How the names of our INFO elements begin."""

OLDEST_WITH_BINARY2 = "1.3"
WRITTEN_VERSION = "1.3"
"""Not a later one: from 1.4 on units are spelt in another way, and those of older files would not be kept."""


def column_names(table: TableElement) -> list[str]:
    """Return the names of the fields, or their IDs."""
    return [f.name or f.ID for f in table.fields]


def check_own_fields(path: Path, file: VOTableFile, table: TableElement) -> None:
    """Refuse a table that shares its fields with another one: they cannot part within one document."""
    if sum(t.fields is table.fields for t in file.iter_tables()) > 1:
        raise FormatError(
            f"{path} has tables that share their fields (by ref); save this table on its own first"
        )


def own_infos(table: TableElement) -> dict[str, str]:
    """Return the provenance that an earlier annotation left."""
    return {i.name: str(i.value) for i in table.infos if i.name and i.name.startswith(OWN)}


def replace_provenance(table: TableElement, provenance: Provenance, dropped: Sequence[str]) -> None:
    """Put the new provenance, and what is left of earlier ones, in the place of the old."""
    entries = {key.removeprefix(OWN): value for key, value in provenance.metadata().items()}
    pairs = provenance_entries(own_infos(table), entries, dropped)
    table.infos[:] = [i for i in table.infos if not (i.name and i.name.startswith(OWN))]
    table.infos.extend(Info(name=key, value=value) for key, value in pairs.items())


def drop_columns(table: TableElement, kept: frozenset[str] | None) -> list[str]:
    """Take the fields out that do not stay; return their names."""
    stay = [i for i, name in enumerate(column_names(table)) if kept is None or name in kept]
    dropped = [name for name in column_names(table) if kept is not None and name not in kept]
    if dropped:
        fields = [table.fields[i] for i in stay]
        table.array = table.array[[table.array.dtype.names[i] for i in stay]]
        table.fields[:] = fields
        table.groups[:] = []  # they refer to fields that may be gone
    return dropped


def drop_other_tables(file: VOTableFile, table: TableElement) -> None:
    """Take all other tables out of a document."""
    pending = list(file.resources)
    while pending:
        resource = pending.pop()
        resource.tables[:] = [t for t in resource.tables if t is table]
        pending.extend(resource.resources)


def add_columns(
    file: VOTableFile,
    table: TableElement,
    columns: Sequence[NewColumn],
    values: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """Add fields and their values to a table."""
    taken = {f.ID for f in table.fields}
    fields = [new_field(file, c, taken) for c in columns]
    old = table.array
    kept: list[Any] = [(n, old.dtype[n].base, old.dtype[n].shape) for n in old.dtype.names]
    added = [(f.ID, f.converter.format) for f in fields]
    data = np.zeros(len(old), dtype=kept + added)
    mask = np.zeros(len(old), dtype=np.ma.make_mask_descr(data.dtype))
    for name in old.dtype.names:
        data[name] = np.ma.getdata(old[name])
        mask[name] = np.ma.getmaskarray(old[name])
    for field in fields:
        data[field.ID] = values.get(field.name, data[field.ID])
    for field, name in zip(table.fields, old.dtype.names, strict=True):
        if (numeric := ELEMENTS.get(str(field.datatype))) and data.dtype[name].kind == "O":
            data[name] = retyped(data[name], np.dtype(numeric))
    table.fields.extend(fields)
    table.array = np.ma.MaskedArray(data, mask)


def retyped(cells: np.ndarray[Any, Any], element: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return arrays of any length with elements of the type that their field says.

    astropy reads them with whatever type NumPy takes Python's numbers for, and would write that many bytes.
    """
    typed = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        typed[i] = None if cell is None else np.ma.MaskedArray(cell, dtype=element)
    return typed


def new_field(file: VOTableFile, column: NewColumn, taken: set[str]) -> Field:
    """Return a field for a new column."""
    kind, size = field_type(column.datatype)
    identifier = fix_id(column.name)
    while identifier in taken:
        identifier += "_"
    taken.add(identifier)
    field = Field(
        file,
        ID=identifier,
        name=column.name,
        datatype=kind,
        arraysize=size or None,
        unit=column.unit,
        ucd=column.ucd,
    )
    field.description = column.description
    return field


def write(file: VOTableFile, stream: Any) -> None:
    """Write a document as BINARY2."""
    if file.version < OLDEST_WITH_BINARY2:
        file.version = WRITTEN_VERSION
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.to_xml(stream, tabledata_format="binary2")
