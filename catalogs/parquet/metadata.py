"""What a Parquet file knows of its columns beyond names and types; and a new file from batches, which says the same."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalogs.arrays import list_shape, value_type
from catalogs.catalog.catalog import Annotation, Column, Computed, is_provenance, provenance_entries
from catalogs.catalog.new_columns import OWN, NewColumn, Provenance
from catalogs.files import atomic_path
from catalogs.metadata.astropy_header import (
    ASTROPY,
    ASTROPY_LENGTH,
    EcsvHeaderError,
    add_entries,
    entry_line,
    read_columns,
    read_items,
    remove_entries,
)
from catalogs.metadata.fits_cards import meta_provenance
from catalogs.metadata.votable_fields import VOTableError, changed_fields, field_xml, new_votable, read_fields

# What a Parquet file knows of its columns beyond names and types, and the same for an annotated copy.  Three
# conventions, read in this order of trust and written together, so that every reader finds one: VOParquet (a
# data-less VOTable, IVOA Note 1.0), astropy's `table_meta_yaml`, and Arrow field metadata.

VOTABLE = "IVOA.VOTable-Parquet.content"
VOTABLE_VERSION = "IVOA.VOTable-Parquet.version"
ARROW = "ARROW:schema"
SHAPE = "shape"
"""Arrow field metadata of vectors of several dimensions, which other readers know only as flat lists."""

DESCRIPTIONS = (VOTABLE, ASTROPY)
"""Keys under which whole tables are described, with references from one column to others."""

ARROW_KEYS = {
    "unit": ("unit", "units", "ivoa.unit", "ivoa:unit"),
    "ucd": ("ucd", "ivoa.ucd", "ivoa:ucd"),
    "description": ("description", "doc", "comment"),
}
"""Names under which writers put a column's unit, UCD and description into Arrow field metadata."""


def columns_of(schema: pa.Schema, key_values: Mapping[str, str]) -> tuple[Column, ...]:
    """Return a file's columns with all that is known of them; what cannot be read says nothing."""
    told: dict[str, dict[str, Any]] = {}
    with suppress(EcsvHeaderError):
        for c in read_columns(key_values.get(ASTROPY, "")):
            told[c.name] = stated(unit=c.unit, ucd=c.ucd, description=c.description)
    with suppress(VOTableError):
        for f in read_fields(key_values.get(VOTABLE, "")):
            about = stated(unit=f.get("unit"), ucd=f.get("ucd"), description=f.get("description", "").strip())
            with suppress(KeyError, ValueError):
                about["null"] = int(f["null"], 0)
            told[f["name"]] = told.get(f["name"], {}) | about
    return tuple(column(field, told.get(field.name, {})) for field in schema)


def column(field: pa.Field, told: Mapping[str, Any]) -> Column:
    """Return a column by the words in `told`, else by its metadata; dictionaries have the type of their values."""
    pairs = text_pairs(field.metadata)
    words = {k.lower(): v for k, v in pairs.items()}
    about = {name: next((words[k] for k in keys if words.get(k)), None) for name, keys in ARROW_KEYS.items()}
    datatype = value_type(field.type)
    shape = list_shape(datatype)
    sizes = pairs.get(SHAPE, "").split(",")
    if all(size.isdigit() for size in sizes) and math.prod(map(int, sizes)) == math.prod(shape):
        shape = tuple(map(int, sizes))
    return Column(field.name, datatype, shape=shape, **{**about, **told})


def text_pairs(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return the keys and values of Arrow's metadata as text."""
    return {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in (metadata or {}).items()}


def stated(**about: str | None) -> dict[str, Any]:
    """Return what a source says of a column, without that of which it is silent."""
    return {key: value for key, value in about.items() if value}


def new_fields(columns: Sequence[Column | NewColumn]) -> pa.Schema:
    """Return the Arrow schema of columns, with field metadata."""
    fields = []
    for c in columns:
        shape = c.shape if isinstance(c, Column) and len(c.shape) > 1 else ()
        known = {**{key: getattr(c, key) for key in ARROW_KEYS}, SHAPE: ",".join(map(str, shape))}
        fields.append(pa.field(c.name, c.datatype, metadata={k: v for k, v in known.items() if v}))
    return pa.schema(fields)


def annotated_key_values(
    old: Mapping[str, str],
    columns: Sequence[Column],
    new: Sequence[NewColumn],
    provenance: Provenance,
    *,
    dropped: Collection[str] = (),
) -> dict[str, str | None]:
    """Return the key-value metadata that an annotated copy changes, adds, or (None) leaves out; all other stays.

    `columns` are the old ones that stay, `dropped` the names of those that do not.
    """
    changed: dict[str, str | None] = {key: None for key in old if key.startswith(OWN)}
    changed |= {ASTROPY_LENGTH + name: None for name in dropped if ASTROPY_LENGTH + name in old}
    changed[VOTABLE_VERSION] = old.get(VOTABLE_VERSION, "1.0")
    # The old words on all columns with the new ones added, or new words where there are none that can be read.
    try:
        changed[VOTABLE] = changed_fields(old[VOTABLE], new, dropped)
    except (KeyError, VOTableError, RecursionError):
        known = [field_xml(c, old.get(ASTROPY_LENGTH + c.name, "")) for c in columns]
        changed[VOTABLE] = new_votable([*known, *(field_xml(c, str(c.width or "")) for c in new)])
    added = [entry_line(c) for c in new]
    try:
        kept = remove_entries(old[ASTROPY], dropped) if dropped else old[ASTROPY]
        changed[ASTROPY] = add_entries(kept, added)
    except (KeyError, EcsvHeaderError):
        changed[ASTROPY] = "\n".join(["datatype:", *(entry_line(c) for c in columns), *added])
    changed |= {ASTROPY_LENGTH + c.name: str(c.width) for c in new if pt.is_string(c.datatype) and c.width}
    changed |= provenance_entries({**old, **recorded_provenance(old)}, provenance, dropped)
    if PANDAS in old:
        changed[PANDAS] = with_pandas(old[PANDAS], dropped)
    if ARROW in old and (schema := with_arrow(old, new, changed, dropped)):
        changed[ARROW] = schema
    return changed


def recorded_provenance(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return what a file that astropy or pandas wrote says of an annotation before, in their words of the table."""
    if any(map(is_provenance, pairs)):
        return {}
    attributes = pandas_attributes(pairs).items()
    provenance = {k: v for k, v in attributes if is_provenance(k) and isinstance(v, str)}
    if "blr" not in pairs.get(ASTROPY, ""):
        return provenance
    try:
        return provenance | meta_provenance({key: value for key, value, _ in read_items(pairs[ASTROPY])})
    except EcsvHeaderError:
        return provenance


def with_arrow(
    old: Mapping[str, str],
    new: Sequence[NewColumn],
    changed: Mapping[str, str | None],
    dropped: Collection[str] = (),
) -> str | None:
    """Return the Arrow schema with the new fields; None where the old one cannot be read."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(old[ARROW])))
        fields = [field for field in schema if field.name not in dropped]
    except (pa.ArrowException, OSError, ValueError):  # names that are no text, too
        return None
    # Arrow's readers prefer the metadata in here to the file's own, so it has to say the same.
    known = schema.metadata or {k.encode(): v.encode() for k, v in old.items() if k != ARROW}
    pairs = known | {k.encode(): None if v is None else v.encode() for k, v in changed.items()}
    left = {k: v for k, v in pairs.items() if v is not None}
    return base64.b64encode(pa.schema([*fields, *new_fields(new)], left).serialize()).decode()


# What pandas writes about a frame into the metadata of Parquet: its index, its attributes, the types of its columns.
# https://pandas.pydata.org/docs/development/developer.html#storing-pandas-dataframe-objects-in-apache-parquet-format

PANDAS = "pandas"
"""Key of the metadata."""

TEXT_NAMES = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
TEXT_TYPES = re.compile(r"unicode|string|empty|mixed.*")


def pandas_attributes(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a frame that pandas wrote."""
    try:
        return dict(json.loads(pairs.get(PANDAS, "{}")).get("attributes") or {})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def pandas_left(pairs: Mapping[str, str]) -> Iterator[str]:
    """Yield what pandas says of a frame and no other format does: which columns are its index, the order of classes."""
    try:
        described = json.loads(pairs.get(PANDAS, "{}"))
        index = [name for name in described.get("index_columns", ()) if isinstance(name, str)]
        columns = described.get("columns", ())
        ordered = [c["name"] for c in columns if (c.get("metadata") or {}).get("ordered")]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return
    if index:
        yield f"pandas' note that {', '.join(index)} are the index of the frame is left out"
    if ordered:
        yield f"the order of the categories of {', '.join(map(str, ordered))} is left out"


def with_pandas(text: str, dropped: Collection[str]) -> str:
    """Return pandas' description of a table without some columns and with new ones; as it is, if it cannot be read."""
    try:
        tree = json.loads(text)
        tree["columns"] = [c for c in tree["columns"] if c.get("field_name", c.get("name")) not in dropped]
        # A RangeIndex is described by a mapping, any other by its column's name.
        tree["index_columns"] = [i for i in tree["index_columns"] if isinstance(i, dict) or i not in dropped]
        # Names that were numbers or tuples are text in the file; ours are no such, so that pandas could read none.
        levels = tree.get("column_indexes", ())
        if len(levels) > 1 or not all(TEXT_TYPES.fullmatch(level["pandas_type"]) for level in levels):
            tree["column_indexes"] = [{**TEXT_NAMES, "metadata": {"encoding": "UTF-8"}}]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text
    return text if tree == json.loads(text) else json.dumps(tree)


# A new Parquet file from Arrow batches, with all that is known of the columns: streamed, atomic.

COMPRESSION = "zstd"


def create(
    out: Path,
    old: Sequence[Column],
    annotation: Annotation,
    computed: Iterable[Computed],
    *,
    metadata: Mapping[str, str],
) -> None:
    """Write old and new columns: whole, or not at all.  `metadata` are texts to be kept beside them."""
    # Parquet has nulls, so no value stands for them any more.
    columns, new, gone = [replace(c, null=None) for c in old], annotation.columns, annotation.replaced
    changed = annotated_key_values(metadata, columns, new, annotation.provenance, dropped=gone)
    pairs = dict(metadata) | changed
    schema = new_fields([*columns, *new]).with_metadata({k: v for k, v in pairs.items() if v is not None})
    text = [f.name for f in schema if not pt.is_floating(f.type)]
    with (
        atomic_path(out) as temporary,
        pq.ParquetWriter(temporary, schema, compression=COMPRESSION, use_dictionary=text) as writer,
    ):
        for batch, values in computed:
            arrays = [batch.column(c.name).cast(c.datatype) for c in columns]
            arrays += [pa.array(values[c.name], c.datatype) for c in new]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
