"""What becomes of tables in memory, thing by thing: annotated as they are, written to Parquet or FITS, read again."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from astropy.table import Column, MaskedColumn, Table
from astropy.table.serialize import represent_mixins_as_columns

import catalogs
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import NewColumn
from tests.catalogs.memory_samples import ASTROPY, PANDAS

Verdicts = Mapping[str, Mapping[str, str]]
"""Of each sample, by what was done with it."""

READ_OTHERWISE = {
    "matrices", "structures as objects", "numbers as objects", "masked integers above 2^53", "masked floats",
    "masked text", "masked truth values", "masked vectors",
    "objects: texts", "objects: integers above 2^53 and None", "objects: truth values and None", "Arrow: lists",
    "Arrow: vectors", "Arrow: structures",
}  # fmt: skip
"""What `Table.read` and `pandas.read_parquet` read from Parquet as another type, or with NaN for nulls."""

NEW = (
    NewColumn("blr_p", pa.float32(), "stat.probability", description="a share"),
    NewColumn("blr_class", pa.string(), "src.class", width=4),
)
KEPT, SILENT = "kept", "CHANGED SILENTLY"
OTHERWISE = "kept, but the library's own reader makes another type, or NaN, of it"
SAME, PARQUET, FITS = "`annotate_table`", "to Parquet", "to FITS"


def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
    """Return new columns, the first of them what was read."""
    read = batch.column(batch.schema.names[0]).to_numpy(zero_copy_only=False)
    return {"blr_p": read.astype(np.float32), "blr_class": np.full(batch.num_rows, "late")}


def parts_of(column: Any) -> tuple[Any, ...]:
    """Return all of a column of an astropy table: class, type, values, masks, unit and other words."""
    plain = represent_mixins_as_columns(Table([column], names=["c"], copy=False))
    about = [[str(getattr(column.info, key) or "") for key in ("unit", "format", "description", "meta")]]
    for values in plain.itercols():
        cells = np.ma.getdata(values).tolist(), np.ma.getmaskarray(values).tolist()
        about.append([str(values.dtype), str(cells), type(values).__name__])
    return type(column).__name__, about, repr(plain.meta.get("__serialized_columns__"))


def same_in_a_file(old: Any, new: Any) -> bool:
    """Say whether a column is the same but for what files and readers choose: byte order, widths, NaN or mask."""
    plain = type(old) in {Column, MaskedColumn}
    if not plain and type(old) is not type(new):
        return False
    columns = (old, new)
    keys = ("unit", "format", "description", "meta")
    words = [[str(getattr(c.info, k) or "") for k in keys] for c in columns]
    parts = [represent_mixins_as_columns(Table([c], names=["c"], copy=False)) for c in columns]
    # Coordinates are computed anew of what is stored, which takes a last bit.
    digits = 17 if plain else 14
    values = [[known(np.ma.asanyarray(c.data), digits) for c in table.itercols()] for table in parts]
    return words[0] == words[1] and values[0] == values[1] and parts[0].colnames == parts[1].colnames


def known(values: Any, digits: int) -> list[Any]:
    """Return values as Python's, none for what is masked or no number, texts for bytes."""

    def plain(cell: Any) -> Any:
        if isinstance(cell, list | tuple):
            return [plain(c) for c in cell]
        if cell is None or cell != cell or cell in ("", b""):  # noqa: PLR0124 -- NaN
            return None
        if isinstance(cell, float):
            return float(f"{cell:.{digits}g}")
        return cell.decode() if isinstance(cell, bytes) else cell

    cells = values.tolist() if values.dtype.kind != "O" else [np.asarray(v).tolist() for v in values]
    return [plain(cell) for cell in cells]


def first_name(frame: pd.DataFrame) -> str:
    return catalogs.open(frame).names[0] if frame.columns.nlevels > 1 else "row"


def memory_trips() -> tuple[Verdicts, Verdicts]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # astropy's, of units and widths
        astropy = {
            label: {
                SAME: of_astropy(table, None),
                PARQUET: of_astropy(table, "parquet", label),
                FITS: of_astropy(table, "fits"),
            }
            for label, table in ASTROPY.items()
        }
        pandas = {
            label: {SAME: of_pandas(frame, None), PARQUET: of_pandas(frame, "parquet", label)}
            for label, frame in PANDAS.items()
        }
    return astropy, pandas


def of_astropy(table: Table, form: str | None, label: str = "") -> str:
    if form is None:
        new = catalogs.annotate_table(table, NEW, compute, read=["row"])
        same = all(parts_of(table[name]) == parts_of(new[name]) for name in table.colnames)
        return KEPT if same and has_meta(table, new) else SILENT
    with tempfile.TemporaryDirectory() as folder:
        cat = catalogs.open(table)
        written = catalogs.annotate(cat, Path(folder), NEW, compute, read=["row"], form=form)
        if written.warnings:
            return said(written.warnings)
        if label in READ_OTHERWISE:
            return OTHERWISE if rows(catalogs.open(written[0])) == rows(cat) else SILENT
        new = type(table).read(written[0])
        # Of masked truth values astropy warns itself.
        if table["c"].info.dtype == bool and np.any(np.ma.getmaskarray(table["c"])):
            return KEPT if rows(catalogs.open(written[0])) == rows(cat) else SILENT
        same = all(same_in_a_file(table[name], new[name]) for name in table.colnames)
        return KEPT if same and has_meta(table, new) else SILENT


def rows(cat: Catalog) -> list[Any]:
    return pa.Table.from_batches(list(cat.batches(["row", "c"]))).to_pylist()


def has_meta(old: Table, new: Table) -> bool:
    """Say whether a table has the metadata of another, beside what was added to its history."""
    history = old.meta.get("HISTORY", [])
    same = all(np.all(new.meta.get(k) == v) for k, v in old.meta.items() if k != "HISTORY")
    return bool(same) and new.meta.get("HISTORY", [])[: len(history)] == history


def of_pandas(frame: pd.DataFrame, form: str | None, label: str = "") -> str:
    if form is None:
        new = catalogs.annotate_table(frame, NEW, compute, read=[first_name(frame)])
        return KEPT if same_frame(frame, new) else SILENT
    with tempfile.TemporaryDirectory() as folder:
        cat = catalogs.open(frame)
        written = catalogs.annotate(cat, Path(folder), NEW, compute, read=[first_name(frame)])
        if label in READ_OTHERWISE:
            return OTHERWISE if rows(catalogs.open(written[0])) == rows(cat) else SILENT
        return said(written.warnings) or (KEPT if same_frame(frame, pd.read_parquet(written[0])) else SILENT)


def same_frame(old: pd.DataFrame, new: pd.DataFrame) -> bool:
    """Say whether a frame has all of another, index and attributes too."""
    try:
        pd.testing.assert_frame_equal(new.iloc[:, : old.shape[1]], old, check_freq=True)
    except AssertionError:
        return False
    return all(repr(new.attrs.get(key)) == repr(value) for key, value in old.attrs.items())


def said(told: Sequence[str]) -> str:
    """Return what was said, once."""
    return "; ".join(dict.fromkeys(w.partition(": ")[2] if w.startswith("'c") else w for w in told))


HEAD = """
## Tables in memory

Samples of one column, or one thing beside the columns, each; the copies are read by astropy and pandas themselves.
Truth values of FITS that are null astropy takes for false, with a warning of its own.
"""


def memory_page(astropy: Verdicts, pandas: Verdicts) -> str:
    parts = [HEAD]
    for name, found in (("astropy", astropy), ("pandas", pandas)):
        headings = list(next(iter(found.values())))
        parts.append(f"\n### {name}\n\n| | {' | '.join(headings)} |\n|---|{'---|' * len(headings)}\n")
        parts += [f"| {label} | {' | '.join(v.values())} |\n" for label, v in found.items()]
    return "".join(parts)
