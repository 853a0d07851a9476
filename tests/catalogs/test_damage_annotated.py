"""Damaged files annotated: an error of ours and no file, or a copy whose old columns are as they are read.

The damages are those of `test_damage`; more are tried by
`BLR_DAMAGES=1000 pytest -s tests/catalogs/test_damage_annotated.py`.
"""

import os
import resource
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catalogs
from catalogs.catalog.catalog import Catalog
from catalogs.errors import CatalogError
from tests.catalogs.round_trip_samples import WRITERS, astropy_table
from tests.catalogs.test_damage import DAMAGES, MEMORY_KB, Damage, Record, bounded, copy_of, counted, victim

__all__ = ["bounded"]

CASES = int(os.environ.get("BLR_DAMAGES", "1"))
"""Damages of each kind and format."""

COLUMNS = [catalogs.NewColumn("blr_n", pa.int32()), catalogs.NewColumn("blr_text", pa.string(), width=8)]


def write_streamed(folder: Path) -> Path:
    """Write a VOTable whose rows are not read in memory."""
    path = folder / "sample.vot"
    astropy_table().write(path, format="votable", tabledata_format="binary2")
    return path


SAMPLES = {**WRITERS, "votable, streamed": write_streamed}


def contents(cat: Catalog, names: tuple[str, ...]) -> str:
    """Return the values of columns, so that NaN is NaN; times as numbers, for Python has not all of them."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for batch in cat.batches(names):
        for name, column in zip(names, batch.columns, strict=True):
            plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            columns[name] += plain.to_pylist()
    return repr(columns)


def outcome(cat: Catalog, names: tuple[str, ...]) -> str | None:
    try:
        return contents(cat, names)
    except CatalogError:
        return None


def annotated(cat: Catalog, out: Path) -> None:
    given = iter(range(10**9))

    def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
        n = np.array([next(given) for _ in range(batch.num_rows)], np.int32)
        return {"blr_n": n, "blr_text": np.array([f"row {i}" for i in n.tolist()], dtype=object)}

    # Of many a damaged file no column can be read: then the copy has to do without.
    catalogs.annotate(cat, out, COLUMNS, compute, read=cat.names[:1], rows=5, threads=1)


def files(folder: Path) -> list[str]:
    return (
        sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        if folder.exists()
        else []
    )


def tried(place: Path, out: Path) -> str:
    """Annotate a damaged file; return what came of it."""
    try:
        cat = catalogs.open(place)
        annotated(cat, out)
    except CatalogError as error:
        refused = type(error).__name__
    else:
        refused = ""
    if refused:
        assert not files(out), "half a copy"
        return refused
    before = outcome(cat, cat.names)
    copy = catalogs.open(out / place.name)
    assert copy.names == (*cat.names, "blr_n", "blr_text")
    assert outcome(copy, cat.names) == before
    n = [
        row
        for p in copy.partitions
        if p.counted
        for b in p.batches(["blr_n"])
        for row in b.column(0).to_pylist()
    ]
    assert sorted(n) == list(range(cat.n_rows))
    return "right" if before is not None else "right, but some columns cannot be read"


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_files_are_annotated_or_refused(name: str, tmp_path: Path, record_property: Record) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "whole").mkdir()
        whole = SAMPLES[name](tmp_path / "whole")
        assert tried(whole, tmp_path / "out") == "right"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for kind, damage in DAMAGES.items():

            def once(rng: np.random.Generator, i: int, kind: str = kind, damage: Damage = damage) -> str:
                place = copy_of(whole, tmp_path / "damaged")
                target = victim(place, rng)
                target.write_bytes(damage(target.read_bytes(), rng))
                return tried(place, tmp_path / f"{kind} {i}")

            seed = [sum(name.encode()), sum(kind.encode()), 2]
            counted(f"{name}, {kind}", seed, CASES, once, record_property)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MEMORY_KB, f"{grown} kB more"
