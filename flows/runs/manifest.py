"""The manifest of an output folder, `manifest.json`: its files, their inputs, and what made them.

The SHA-256 of its bytes identifies an input.  Size, modification time and inode say quickly whether a file may have
changed; for a file that was fetched from a URL, the tag of its server (ETag) does.  The files are listed in a table
beside the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from catalogs.arrays.values import is_text
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from catalogs.files.atomic import check_links
from catalogs.sky.positions import PositionUnit, find_position_columns, unit_of_position
from flows.documents import from_document, read_document, write_document
from flows.errors import DocumentError, UsageError
from flows.runs.counts import CensusAsked, Summary
from flows.runs.model_reference import ModelReference
from flows.runs.outputs import FileTable, Output, Problem, read_table, sweep_tables, write_table

MANIFEST = "manifest.json"
SUMMARY = "summary.json"
SCHEMA_VERSION = 1


def annotated_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder; UsageError where nothing was classified."""
    manifest = Manifest.read(folder)
    if manifest is None:
        raise UsageError(
            f"{folder}: got a folder without a manifest, expected a folder that `blr classify` or `blr reprocess` "
            "wrote; name its folder of outputs"
        )
    return manifest


def has_summary(folder: Path) -> bool:
    """Say whether a folder has a `summary.json` that can be read."""
    try:
        read_document(Summary, folder / SUMMARY)
    except (OSError, DocumentError):
        return False
    return True


@dataclass(frozen=True)
class ColumnDetails:
    """A new column: its Arrow type, its UCD and its meaning."""

    datatype: str
    ucd: str | None
    description: str | None


@dataclass(frozen=True)
class FlagDetails:
    """A flag: its name and its meaning."""

    name: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class ObjectColumns:
    """The catalogues' columns of identifier and position, and the position's unit; None where they are not named."""

    id: str | None = None
    ra: str | None = None
    dec: str | None = None
    unit: str | None = None

    def place(self, catalog: Catalog) -> tuple[str, str] | None:
        """Return a catalogue's columns of positions: the named ones, else those that are found, or None."""
        stated = (self.ra or "", self.dec or "")
        return stated if {*stated} <= {*catalog.names} else find_position_columns(catalog)

    def unit_of(self, catalog: Catalog, place: tuple[str, str]) -> PositionUnit:
        """Return the unit that the columns state, else the specification's; CatalogError where neither can be read."""
        known = next((unit for unit in get_args(PositionUnit) if unit == self.unit), None)
        columns = [catalog.column(name) for name in place]
        if known is not None and not all(c.unit or is_text(c.datatype) for c in columns):
            return known
        try:
            return unit_of_position(catalog, *place)
        except CatalogError:
            if known is None:
                raise
            return known


@dataclass(frozen=True, kw_only=True)
class SelectedColumn:
    """A column that selects the objects whose probability of a class is at or above a threshold.

    `stated` is what the threshold was chosen for, such as "purity 0.95".  `threshold` is None where each bin of the
    expression `by` has its own; these are the `thresholds`, by the bin's name.  The bins lie between `edges`; without
    edges, `by` is a condition.  A bin that is not among the thresholds selects nothing.
    """

    class_name: str
    threshold: float | None
    stated: str
    by: str = ""
    edges: tuple[float, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The outputs in one folder, which are all of one model and one specification: the content of `manifest.json`.

    `totals` are the summary's counts of all files together.  For readers of the copies there are the `classes` with
    their shares, the `columns` by name, the `flags` by their bit, the columns with the objects' names and positions,
    the columns of selections by name, and the questions of the census.  The `outputs` are listed in the `table`, which
    is None until the manifest is written; `created` (ISO 8601, UTC) is '' until then.  For a release in an object
    store, `files` names the folder of the files.  `store` is the path of the model store, from the folder; '' where it
    is not known.
    """

    format: Literal["blr-manifest"]
    schema_version: int
    created: str
    release: int
    model: str
    model_id: int
    specification_hash: str
    versions: Mapping[str, str]
    totals: Summary | None
    classes: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, ColumnDetails] = field(default_factory=dict)
    flags: Mapping[str, FlagDetails] = field(default_factory=dict)
    position: ObjectColumns | None = None
    selected: Mapping[str, SelectedColumn] = field(default_factory=dict)
    census_asked: CensusAsked | None = None
    quarantined: tuple[Problem, ...]
    table: FileTable | None
    files: str = ""
    store: str = ""
    outputs: Annotated[tuple[Output, ...], Field(exclude=True)] = ()

    @cached_property
    def _by_name(self) -> dict[str, Output]:
        return {o.name: o for o in self.outputs}

    def find(self, name: str) -> Output | None:
        """Return the output of that name; None where the manifest has none."""
        return self._by_name.get(name)

    @property
    def code_version(self) -> str:
        """The version of this package that wrote the outputs."""
        return self.versions.get("blr", "")

    @property
    def model_name(self) -> str:
        """The name of the model, whatever its version."""
        return ModelReference.parse(self.model).name

    @property
    def prefix(self) -> str:
        """The prefix of the new columns."""
        (name,) = (name for name, column in self.columns.items() if column.ucd == "src.class")
        return name.removesuffix("class")

    def find_quarantined(self, name: str) -> Problem | None:
        """Return the entry of a file that could not be annotated; None where there is no such file."""
        return next((q for q in self.quarantined if q.name == name), None)

    def same_maker(self, model: str, specification_hash: str) -> bool:
        """Say whether this model and this specification made the outputs."""
        return (self.model, self.specification_hash) == (model, specification_hash)

    def same_outputs(self, other: Manifest) -> bool:
        """Say whether both manifests list the same bytes, by the same model and specification."""
        return self.same_maker(other.model, other.specification_hash) and (
            {(o.name, o.sha256) for o in self.outputs} == {(o.name, o.sha256) for o in other.outputs}
        )

    @staticmethod
    def next_release(folder: Path) -> int:
        """Return the number of a folder's next release; 1 where its manifest cannot be read."""
        try:
            return int(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["release"]) + 1
        except (OSError, ValueError, KeyError, TypeError):
            return 1

    def write(self, folder: Path) -> Path:
        """Write the manifest of a folder, whole or not at all; return its path.

        The table of the files is written first.  The table of the earlier manifest is removed last.
        """
        table = write_table(folder, self.outputs)
        created = self.created or datetime.now(UTC).isoformat(timespec="seconds")
        write_document(folder / MANIFEST, replace(self, created=created, table=table, outputs=()))
        sweep_tables(folder, table)
        return folder / MANIFEST

    @staticmethod
    def sweep(folder: Path) -> None:
        """Remove the tables that a killed run left in a folder: those that the manifest does not name."""
        path = folder / MANIFEST
        named = json.loads(path.read_text(encoding="utf-8")).get("table") if path.is_file() else None
        sweep_tables(folder, named and FileTable(**named))

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest of a folder, None where it has none; CatalogError where the file is not a manifest."""
        path = folder / MANIFEST
        check_links(path, folder)
        if not path.is_file():
            return None
        try:
            manifest = from_document(cls, json.loads(path.read_text(encoding="utf-8")), source=MANIFEST)
            return replace(manifest, outputs=read_table(folder, manifest.table))
        except (ValueError, TypeError, DocumentError) as error:
            raise CatalogError(
                f"{path}: got a file that is not a manifest ({error!r}), expected one that `blr classify` "
                "wrote; move it to another folder, or choose another output folder"
            ) from error
