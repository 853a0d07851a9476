"""Annotated copies in another format: Parquet or FITS of anything that can be read, streamed.

What the other format has no place for is reported, never left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pt

from catalogs.catalog.catalog import (
    Annotation,
    Catalog,
    Column,
    Convertible,
    Copyable,
    OldColumns,
    Partition,
    Summed,
    cell_bytes,
)
from catalogs.catalog.computing import NewValues, computed_batches
from catalogs.catalog.earlier_columns import copying, levels, provenance_entries
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import CatalogError
from catalogs.fits import create as fits_create
from catalogs.fits.astropy_meta import meta_cards
from catalogs.fits.rewrite import NewField
from catalogs.fits.values import Survey, fits_names, kind_of, losses, settled
from catalogs.metadata import pandas_metadata as pandas_words
from catalogs.metadata.astropy_header import ASTROPY
from catalogs.metadata.fits_cards import block_cards, comment_cards
from catalogs.parquet import metadata as parquet_create
from catalogs.text import ecsv

__all__ = ["TARGETS", "USUAL", "converted_key", "copied", "copies"]

TARGETS = {"parquet": ".parquet", "fits": ".fits"}
USUAL = {"ascii": "ecsv"}
"""Formats of which no copies are written, and what copies are written as."""
SUFFIXES = {**TARGETS, "ecsv": ".ecsv"}
SUFFIX = re.compile(
    r"(?:\.(?:fits?|fts|parquet|parq|pq|vot|votable|xml|ecsv|csv|tsv|txt|dat|tab|tbl|mrt|cat))?(?:\.gz|\.bz2)?$",
    re.IGNORECASE,
)

BATCH_BYTES = 1 << 26
"""Of all columns together, of which there may be very many."""

LONGEST_REMARK = 200
DESCRIBING = re.compile(
    r"ARROW:schema|IVOA\.VOTable-Parquet\..*|table_meta_yaml|pandas|PANDAS_ATTRS|table::len::.*|blr\..*|fits\..*"
    r"|type\..*|layout|delimiter|encoding|version"
)
"""Metadata that describe columns, provenance or the old file, which are written in the new format's own way."""

Tell = Callable[[str], object]
"""Takes a sentence on what a copy leaves behind."""


def copies(cat: Catalog, old: OldColumns, form: str | None, tell: Tell) -> Sequence[Copyable]:
    """Return the files of which copies are made, in their own format or as `form`."""
    form = form or USUAL.get(cat.format)
    if form is None or form == cat.format:
        return [copying(p, cat, old) for p in cat.partitions]
    if form not in {*TARGETS, USUAL.get(cat.format)}:
        raise CatalogError(
            f"got the format '{form}' for the copy of a catalogue in {cat.format}; expected "
            f"{' or '.join(TARGETS)}, or no format, which keeps {cat.format}"
        )
    if cat.whole is not None:
        tell(f"only the rows are written, as plain {form} files; margins, maps and properties are left out")
    if (cat.format, form) == ("hats", "parquet"):
        return [copying(p, cat, old) for p in copied(cat, form).values()]
    return [Converting(key, p.path, p, cat, old, form, tell) for key, p in copied(cat, form).items()]


def copied(cat: Catalog, form: str | None) -> dict[str, Partition]:
    """Return the partitions that have copies, by the copies' keys; without margins in another format."""
    form = form or USUAL.get(cat.format)
    if form is None or form == cat.format:
        return {p.key: p for p in cat.partitions}
    counted = [p for p in cat.partitions if p.counted] or cat.partitions
    if (cat.format, form) == ("hats", "parquet"):
        return {p.key: p for p in counted}
    return {converted_key(p.key, form): p for p in counted}


def converted_key(key: str, form: str) -> str:
    """Return the name of a copy in another format."""
    return SUFFIX.sub("", key) + SUFFIXES[form]


@dataclass(frozen=True)
class Converting:
    """A partition of which copies are of another format, under another key."""

    key: str
    path: Path
    source: Partition
    catalog: Catalog
    old: OldColumns
    form: str
    tell: Tell

    @property
    def columns(self) -> tuple[Column, ...]:
        """The old columns that stay."""
        return tuple(c for c in self.catalog.columns if self.old.stays(c.name))

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        """Write the old columns that stay and the new ones to `out`, streamed and atomic."""
        new, read = annotation.columns, list(annotation.read)
        rows = min(annotation.rows, bounded_rows(self.columns))
        needed = list(dict.fromkeys([*(c.name for c in self.columns), *read]))

        def compute(batch: pa.RecordBatch) -> NewValues:
            return annotation.compute(batch.select(read))

        whole = replace(annotation, read=needed, compute=compute, rows=rows)
        texts = self.beside()
        if self.form == "parquet":
            parquet_create.create(
                out,
                self.columns,
                new,
                computed_batches(self.source, whole),
                provenance=annotation.provenance,
                metadata=texts,
                dropped=self.old.replaced,
            )
            return
        if self.form == "ecsv":
            ecsv.create(
                out,
                self.columns,
                new,
                computed_batches(self.source, whole),
                provenance=annotation.provenance,
                header=texts.get(ASTROPY),
                dropped=[c.name for c in self.catalog.columns if not self.old.stays(c.name)],
                slim=self.old.only is not None,
            )
            return
        layout = fits_create.Layout(self.fields(rows, new), tuple(map(NewField.of, new)), self.source.n_rows)
        # Each text takes the space of the longest, which is known only after the pass over the rows.
        rows = max(1, min(rows, BATCH_BYTES // layout.row.itemsize))
        computed = computed_batches(self.source, replace(whole, rows=rows))
        remarks = [*self.remarks(texts), *self.history(texts, annotation.provenance)]
        name = texts.get("extname") or SUFFIX.sub("", out.name)
        summed = not (isinstance(self.source, Summed) and self.source.verified()[1])
        fits_create.create(out, layout, computed, name=name, remarks=remarks, summed=summed)

    def beside(self) -> dict[str, str]:
        """Return the texts that go with the columns; tell what is left behind."""
        texts = {k: v for k, v in self.catalog.metadata.items() if k != "hdu"}
        if isinstance(self.source, Convertible):
            more, left = self.source.beside_the_columns()
            for sentence in left:
                self.tell(sentence)
            texts |= more
        return texts

    def fields(self, rows: int, new: Sequence[NewColumn]) -> tuple[fits_create.FitsField, ...]:
        """Return the old columns as FITS has them, after a pass over those whose widths or nulls are unknown."""
        kinds = {c.name: kind_of(c.datatype).shaped(c.shape) for c in self.columns}
        surveys = {name: Survey() for name in kinds}
        for batch in self.source.batches(list(kinds), rows):
            for name, survey in surveys.items():
                survey.add(batch.column(name), kinds[name])
        for name, survey in surveys.items():
            for what in losses(kinds[name], survey):
                self.tell(f"'{name}': {what}")
        return tuple(
            fits_create.FitsField(
                with_unit(c), name, settled(kinds[c.name], surveys[c.name], c.null), surveys[c.name]
            )
            for c, name in zip(self.columns, self.fits_names(new), strict=True)
        )

    def fits_names(self, new: Sequence[NewColumn]) -> Sequence[str]:
        """Return the old columns' names as FITS has them; tell which are others."""
        old = [c.name for c in self.columns]
        names = fits_names(old, [c.name for c in new])
        for number, (before, name) in enumerate(zip(old, names, strict=True), 1):
            if name != before:
                which = f"'{before}'" if before.strip() else f"column {number}, which has no name,"
                self.tell(f"{which} is called '{name}', since names in FITS are ASCII and not empty")
        return names

    def remarks(self, texts: Mapping[str, str]) -> list[bytes]:
        """Return the source's metadata as cards: what has no keyword as COMMENT; tell which are too long for that."""
        names = [c.name for c in self.columns]
        cards = meta_cards(texts[ASTROPY], names, self.old.replaced, self.tell) if ASTROPY in texts else []
        for sentence in pandas_words.left_behind(texts):
            self.tell(sentence)
        own = {k: v for k, v in texts.items() if not DESCRIBING.fullmatch(k) and k != "extname"}
        for key, value in (own | pandas_words.attribute_texts(texts)).items():
            if len(value) > LONGEST_REMARK:
                self.tell(f"the metadata '{key}', of {len(value):,} characters, are left out")
            else:
                cards += comment_cards([f"{key} = {value}"])
        return cards

    def history(self, texts: Mapping[str, str], provenance: Provenance) -> list[bytes]:
        """Return the provenance of this and of earlier annotations as HISTORY cards, the latest last."""
        annotations = levels(provenance_entries(texts, provenance, self.old.replaced))
        return [card for level in reversed(annotations) for card in block_cards(level)]


def with_unit(column: Column) -> Column:
    """Return a column, one of durations with the unit of its numbers."""
    return replace(column, unit=column.datatype.unit) if pt.is_duration(column.datatype) else column


def bounded_rows(columns: Sequence[Column]) -> int:
    """Return how many rows of all those columns together are read at a time."""
    return max(1, BATCH_BYTES // max(1, sum(cell_bytes(c.datatype) for c in columns)))
