"""The annotated catalogues of an output folder, and their columns of identifier and position."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from catalogs.arrays.values import is_text
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.sky.positions import PositionUnit, find_position_columns, unit_of_position
from catalogs.table_choice import annotated_table
from flows.errors import UsageError
from flows.runs.manifest import Manifest, ObjectColumns
from flows.runs.object_names import identifier_column

__all__ = ["ObjectTable", "annotated_manifest", "object_tables"]


def annotated_manifest(folder: Path) -> tuple[Manifest, str]:
    """Return the manifest of a folder and the prefix of its new columns; UsageError where nothing was classified."""
    manifest = Manifest.read(folder)
    if manifest is None or manifest.prefix is None:
        raise UsageError(
            f"{folder}: got a folder without a manifest, expected a folder of annotated catalogues; run `blr "
            "classify` with --out first"
        )
    return manifest, manifest.prefix


@dataclass(frozen=True)
class ObjectTable:
    """An annotated catalogue, with the names of the columns that say which object a row is of, and where it is.

    `remark` says why there are no positions.
    """

    catalog: Catalog
    identifier: str
    place: tuple[str, str] | None
    prefix: str
    unit: PositionUnit = "deg"
    remark: str = ""

    def read(self, *columns: str) -> tuple[str, ...]:
        """Return the names of the columns of objects, and of those besides."""
        return tuple(dict.fromkeys([self.identifier, *(self.place or ()), *columns]))


def object_tables(folder: Path, manifest: Manifest, prefix: str, identifier: str | None) -> list[ObjectTable]:
    """Return the catalogues of a folder, each row once; UsageError where no column names an object."""
    # The margins of a HATS catalogue repeat objects of the other files.
    once = [output for output in manifest.outputs if not (output.summary and output.summary.repeats_rows)]
    known = manifest.details.position or ObjectColumns()
    opened = [annotated_table(prefix).open(folder / output.name) for output in once]
    return [_object_table(catalog, prefix, identifier, known) for catalog in opened]


def _object_table(catalog: Catalog, prefix: str, identifier: str | None, known: ObjectColumns) -> ObjectTable:
    """Return the columns of a catalogue; `known` is what the specification says of identifier and position."""
    column = identifier_column(catalog, asked=identifier, stated=known.id, option="--id")
    stated = (known.ra or "", known.dec or "")
    place = stated if {*stated} <= {*catalog.names} else find_position_columns(catalog)
    if place is None:
        return ObjectTable(
            catalog, column, None, prefix, remark=f"{catalog.path}: no columns of positions, so no links"
        )
    unit = _unit(catalog, place, known.unit)
    if unit is not None:
        return ObjectTable(catalog, column, place, prefix, unit)
    # A list without links is useful; a link to the wrong place is not.
    ra, dec = (f"'{name}' in '{catalog.column(name).unit or 'no unit'}'" for name in place)
    remark = (
        f"no links: {catalog.path}: got {ra} and {dec}, expected both in degrees, radians or sexagesimal text; "
        "correct their units, or train and classify with position_unit under [catalog]"
    )
    return ObjectTable(catalog, column, None, prefix, remark=remark)


def _unit(catalog: Catalog, place: tuple[str, str], stated: str | None) -> PositionUnit | None:
    """Return the unit that the columns state, else the specification's; None where neither can be read."""
    known = next((unit for unit in get_args(PositionUnit) if unit == stated), None)
    columns = [catalog.column(name) for name in place]
    if known is not None and not all(c.unit or is_text(c.datatype) for c in columns):
        return known
    try:
        return unit_of_position(catalog, *place)
    except CatalogError:
        return known
