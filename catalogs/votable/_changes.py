"""Changes to a parsed VOTable without its rows: remove columns, add columns, write provenance."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from astropy.io.votable.tree import Field, FieldRef, Group, Info, Resource, TableElement, VOTableFile
from astropy.utils.xml.check import fix_id

from catalogs.catalog.earlier_columns import provenance_entries
from catalogs.catalog.new_columns import OWN, NewColumn, Provenance
from catalogs.errors import FormatError
from catalogs.metadata.votable_fields import field_type

__all__ = [
    "add_columns",
    "check_own_fields",
    "column_names",
    "drop_columns",
    "drop_other_tables",
    "own_infos",
    "replace_provenance",
    "says_more",
]


def column_names(table: TableElement) -> list[str]:
    """Return the names of the fields, or their IDs."""
    return [f.name or f.ID for f in table.fields]


def check_own_fields(path: Path, file: VOTableFile, table: TableElement) -> None:
    """Refuse a table that shares its fields with another one: they cannot part within one document."""
    if sum(t.fields is table.fields for t in file.iter_tables()) > 1:
        raise FormatError(
            f"{path} has several tables with the same fields (by ref), which cannot be changed for one table "
            "alone; save this table to a file of its own first"
        )


def own_infos(table: TableElement) -> dict[str, str]:
    """Return the provenance that an earlier annotation left."""
    return {i.name: str(i.value) for i in table.infos if i.name and i.name.startswith(OWN)}


def replace_provenance(table: TableElement, provenance: Provenance, dropped: Sequence[str]) -> None:
    """Put the new provenance, and what is left of earlier ones, in the place of the old."""
    pairs = provenance_entries(own_infos(table), provenance, dropped)
    table.infos[:] = [i for i in table.infos if not (i.name and i.name.startswith(OWN))]
    table.infos.extend(Info(name=key, value=value) for key, value in pairs.items())


def drop_columns(table: TableElement, kept: frozenset[str] | None) -> tuple[list[int], list[str]]:
    """Take the fields out that do not stay; return the numbers of those that do, and the names of the others."""
    names = column_names(table)
    stay = [i for i, name in enumerate(names) if kept is None or name in kept]
    if len(stay) < len(names):
        gone = {field.ID for i, field in enumerate(table.fields) if i not in stay}
        table.fields[:] = [table.fields[i] for i in stay]
        table.groups[:] = [group for group in table.groups if not refers(group, gone)]
    return stay, [name for name in names if kept is not None and name not in kept]


def refers(group: Group, fields: Collection[str]) -> bool:
    """Say whether a group, or one inside it, refers to a field of these IDs."""
    return any(
        refers(entry, fields)
        if isinstance(entry, Group)
        else isinstance(entry, FieldRef) and entry.ref in fields
        for entry in group.entries
    )


def drop_other_tables(file: VOTableFile, table: TableElement) -> None:
    """Take all other tables out of a document."""
    pending = list(file.resources)
    while pending:
        resource = pending.pop()
        resource.tables[:] = [t for t in resource.tables if t is table]
        pending.extend(resource.resources)


def add_columns(file: VOTableFile, table: TableElement, columns: Sequence[NewColumn]) -> None:
    """Add fields to a table."""
    taken = {f.ID for f in table.fields}
    table.fields.extend([new_field(file, c, taken) for c in columns])


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


def says_more(file: VOTableFile) -> list[str]:
    """Return in words what a file holds beside the rows of one table: one text, or none where there is nothing."""
    tables = list(file.iter_tables())
    places = [file, *_resources(file), *tables]
    kinds = {
        "parameters": "params",
        "groups": "groups",
        "coordinates": "coordinate_systems",
        "time systems": "time_systems",
        "links": "links",
    }
    more = [word for word, name in kinds.items() if any(len(getattr(place, name, ())) for place in places)]
    if any(not (i.name and i.name.startswith(OWN)) for place in places for i in place.infos):
        more.append("INFO elements")
    if any(place.description for place in places):
        more.append("descriptions")
    named = ["other tables", *more] if len(tables) > 1 else more
    return [", ".join(named)] if named else []


def _resources(file: VOTableFile) -> list[Resource]:
    """Return the resources of a file, those inside others too."""
    every = list(file.resources)
    for resource in every:  # which grows
        every.extend(resource.resources)
    return every
