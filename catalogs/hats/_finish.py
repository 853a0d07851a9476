"""What belongs to a HATS catalogue as a whole, beyond its partitions: written when these have been annotated.

`properties` with the new columns and their provenance, `_common_metadata` and `_metadata` with the new schema; maps,
lists of pixels, indexes and whatever else there is are copied.  Doing it again gives the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from catalogs.catalog.catalog import OldColumns
from catalogs.catalog.computing import in_order
from catalogs.catalog.earlier_columns import provenance_entries
from catalogs.catalog.new_columns import OWN, NewColumn, Provenance
from catalogs.files.atomic import atomic_path, atomic_write_text
from catalogs.hats._properties import COLLECTION, PROPERTIES, Properties, read_properties, words
from catalogs.hats._table import Table
from catalogs.parquet.file import open_file
from catalogs.parquet.writer import Kept, append_columns

__all__ = ["COMMON", "MERGED", "HatsWhole", "merged_footers"]

COMMON, MERGED = "_common_metadata", "_metadata"
STATISTICS = "per_partition_statistics.parquet"
ESTIMATED_SIZE = "hats_estsize"
DEFAULT_COLUMNS = "hats_cols_default"
OURS = ".blr-"
READERS = 8
"""Threads that read footers: on a shared disk each waits most of its time."""


@dataclass(frozen=True)
class HatsWhole:
    """A catalogue below `root`: its name, its tables with rows, and the keys of all their partitions."""

    name: str
    root: Path
    tables: tuple[Table, ...]
    keys: frozenset[str]

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that a slim copy has to keep."""
        return tuple(dict.fromkeys(name for t in self.tables for name in t.needed))

    def finish(
        self, folder: Path, columns: Sequence[NewColumn], provenance: Provenance, old: OldColumns
    ) -> Sequence[str]:
        """Write to `folder`, in which the annotated partitions lie at their keys, all else; say what is left out."""
        target = folder / self.name
        for source in self._others():
            copied = target / source.relative_to(self.root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(copied) as temporary:
                shutil.copyfile(source, temporary)
        change = Change(columns, provenance, old)
        left_out = [sentence for table in self.tables for sentence in change.table(table, folder)]
        if (self.root / COLLECTION).is_file():
            change.properties(self.root, target, (COLLECTION,))
        return left_out

    def _others(self) -> Iterator[Path]:
        """Yield the files that are copied as they are."""
        changed = {t.root / name for t in self.tables for name in (*PROPERTIES, STATISTICS)}
        changed |= {t.dataset / name for t in self.tables for name in (COMMON, MERGED)}
        changed.add(self.root / COLLECTION)
        for path in sorted(self.root.rglob("*")):
            key = f"{self.name}/{path.relative_to(self.root).as_posix()}"
            ours = any(part.startswith(OURS) for part in path.relative_to(self.root).parts)
            if path.is_file() and path not in changed and key not in self.keys and not ours:
                yield path


@dataclass(frozen=True)
class Change:
    """What an annotation changes in the files that describe a table."""

    columns: Sequence[NewColumn]
    provenance: Provenance
    old: OldColumns

    def table(self, table: Table, folder: Path) -> Sequence[str]:
        """Write what describes a table; say what is left out."""
        target = folder / table.key
        (target / table.dataset.name).mkdir(parents=True, exist_ok=True)
        annotated = [target / path.relative_to(table.root) for path in table.files]
        left_out = self.metadata(table.dataset, target / table.dataset.name, annotated)
        if (table.root / STATISTICS).is_file():
            self.statistics(table.root / STATISTICS, target / STATISTICS)
        self.properties(table.root, target, PROPERTIES)
        return left_out

    def metadata(self, source: Path, target: Path, files: Sequence[Path]) -> Sequence[str]:
        """Write the schema, and the footers of all files as one where the old table had such and they allow it."""
        described = [source / name for name in (COMMON, MERGED)[: 1 if files else 2]]
        if metadata_file := next((path for path in described if path.is_file()), None):
            self.annotated(metadata_file, target / COMMON)
        else:
            with atomic_path(target / COMMON) as temporary:
                pq.write_metadata(pq.read_schema(files[0]), temporary)
        if not (source / MERGED).is_file():
            return ()
        try:
            merged = merged_footers(target / COMMON, files)
        except RuntimeError:
            return (
                f"{source / MERGED} is left out: one footer cannot describe files with different columns",
            )
        with atomic_path(target / MERGED) as temporary:
            merged.write_metadata_file(str(temporary))
        return ()

    def annotated(self, source: Path, out: Path) -> None:
        """Write a file without rows with the new columns."""
        old = open_file(source).columns
        kept = Kept(frozenset(c.name for c in old if self.old.stays(c.name)), self.old.only is not None)
        append_columns(source, out, self.columns, (), old=old, provenance=self.provenance, kept=kept)

    def statistics(self, source: Path, out: Path) -> None:
        """Write the statistics of the columns that stay: `<column>::<what>`, nested ones `<column>.<field>::<what>`."""
        table = pq.read_table(source)
        kept = [
            name
            for name in table.column_names
            if "::" not in name or self.old.stays(name.partition("::")[0].partition(".")[0])
        ]
        with atomic_path(out) as temporary:
            if kept == table.column_names:
                shutil.copyfile(source, temporary)
            else:
                pq.write_table(table.select(kept), temporary)

    def properties(self, source: Path, target: Path, names: Collection[str]) -> None:
        """Write properties with the new size, the new columns among the default ones, and the provenance."""
        size = sum(p.stat().st_size for p in target.rglob("*") if p.is_file() and p.name not in names)
        for name in names:
            if not (source / name).is_file():
                continue
            old = read_properties(source / name)
            atomic_write_text(target / name, old.updated(self.changed(old, size)).text)

    def changed(self, old: Properties, size: int) -> dict[str, str | None]:
        """Return the changed properties."""
        before = {key: value for _, key, value in old.lines if key.startswith(OWN)}
        changed: dict[str, str | None] = dict.fromkeys(before)
        changed |= provenance_entries(before, self.provenance, self.old.replaced)
        if old.get(ESTIMATED_SIZE):
            changed[ESTIMATED_SIZE] = str(size // 1024)
        if default := words(old.get(DEFAULT_COLUMNS)):
            new = [*(name for name in default if self.old.stays(name)), *(c.name for c in self.columns)]
            changed[DEFAULT_COLUMNS] = " ".join(new)
        return changed


def merged_footers(common: Path, files: Sequence[Path]) -> pq.FileMetaData:
    """Return the footers of all files as one, each row group with its file's place beside `common`.

    RuntimeError where the files have not the same columns.
    """

    def footer(path: Path) -> pq.FileMetaData:
        read = pq.read_metadata(path)
        read.set_file_path(path.relative_to(common.parent).as_posix())
        return read

    merged = pq.read_metadata(common)
    with closing(in_order(files, footer, READERS)) as footers:
        for n_merged, footer_of_file in enumerate(footers):
            try:
                merged.append_row_groups(footer_of_file)
            except RuntimeError:
                if n_merged:
                    raise
                # Some writers' schema without rows is not to the letter that of their files.
                merged = footer_of_file
    return merged
