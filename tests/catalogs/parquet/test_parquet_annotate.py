"""Annotated Parquet: the old bytes stay, the new columns are right, every reader finds both."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units as u
from astropy.io import votable
from astropy.table import Table

from catalogs.errors import DamagedFileError
from catalogs.parquet import dataset as parquet
from catalogs.parquet import writer as parquet_writer
from catalogs.parquet._footer import read_footer
from catalogs.writing import annotate
from tests.catalogs.parquet_samples import (
    COLUMNS,
    PROVENANCE,
    N,
    computing,
    rich_table,
    values_of,
    write_rich,
)


def annotated(path: Path, out: Path, *, n: int = N, **options: Any) -> Any:
    standard = {"read": ["row", "x"], "provenance": PROVENANCE, "rows": 128, "threads": 2}
    (written,) = annotate(parquet.open(path), out, COLUMNS, computing(n), **(standard | options))
    return written


VARIANTS = {
    "small row groups": {},
    "one row group": {"row_group_size": N},
    "row groups smaller than batches": {"row_group_size": 13},
    "snappy": {"compression": "snappy"},
    "gzip and none": {"compression": {"row": "gzip", "x": "none"}},
    "no compression": {"compression": "none"},
    "no Arrow schema": {"store_schema": False},
    "version 1": {"version": "1.0"},
    "data pages 2": {"data_page_version": "2.0"},
    "no statistics": {"write_statistics": False},
    "bloom filters": {"bloom_filter_options": {"row": {"ndv": 1000}}},
    "int96 times": {"use_deprecated_int96_timestamps": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_old_columns_keep_their_bytes_and_new_ones_are_right(tmp_path: Path, variant: str) -> None:
    """All bytes before the footer are the old file's; columns, schema and metadata read the same.

    Every new value lies in its row, of the promised type, compressed as the old, in the same row groups.
    """
    path = write_rich(tmp_path / "a.parquet", **VARIANTS[variant])
    out = annotated(path, tmp_path / "out")
    start = read_footer(path).start
    assert out.name == path.name
    assert out.read_bytes()[:start] == path.read_bytes()[:start]
    old, new = pq.read_table(path), pq.read_table(out)
    flat = {f.name for f in old.schema if not pa.types.is_nested(f.type)}
    assert {*parquet.open(out).same_columns(parquet.open(path))} == flat
    assert new.column_names == old.column_names + [c.name for c in COLUMNS]
    selected = new.select(old.column_names)
    assert selected.schema.equals(old.schema, check_metadata=False)
    assert [f.metadata for f in selected.schema] == [f.metadata for f in old.schema]
    for name in set(old.column_names) - {"x"}:
        assert selected[name].equals(old[name])
    bits = [t["x"].to_numpy().view(np.uint32) for t in (old, new)]
    np.testing.assert_array_equal(*bits)
    assert (old.schema.metadata or {}).items() <= new.schema.metadata.items()
    for column in COLUMNS:
        assert new.schema.field(column.name).type == column.datatype
        np.testing.assert_array_equal(new[column.name].to_numpy(), values_of(column, N))
    footers = [pq.read_metadata(p) for p in (path, out)]
    groups = [[f.row_group(i).num_rows for i in range(f.num_row_groups)] for f in footers]
    assert groups[0] == groups[1]
    group = footers[1].row_group(0)
    chunks = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
    assert chunks["blr_p_max"].compression == chunks["row"].compression
    assert not chunks["blr_p_max"].has_dictionary_page
    assert chunks["blr_class"].has_dictionary_page


def test_one_row_group_at_a_time_and_filters(tmp_path: Path) -> None:
    """Readers that skip row groups by statistics, old or new, find the right rows."""
    out = annotated(write_rich(tmp_path / "a.parquet"), tmp_path / "out")
    few = pq.read_table(out, columns=["row", "blr_logit_mean"], filters=[("row", ">=", 990)])
    assert few["row"].to_pylist() == list(range(990, 1000))
    np.testing.assert_array_equal(few["blr_logit_mean"], values_of(COLUMNS[4], N)[990:])
    late = pq.read_table(out, columns=["row"], filters=[("blr_logit_mean", ">", 4.99)])
    assert late["row"].to_pylist() == np.flatnonzero(values_of(COLUMNS[4], N) > 4.99).tolist()


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_large_row_groups_are_made_of_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """Pages that waited on the disk are chunks as any others, whatever threads and batches; nothing is left."""
    path = write_rich(tmp_path / "a.parquet", row_group_size=400, compression=codec)
    held = annotated(path, tmp_path / "held")
    monkeypatch.setattr(parquet_writer, "LARGE_GROUP", 300)  # the last group, of 200 rows, is held
    monkeypatch.setattr(parquet_writer, "PIECE_ROWS", 70)
    outs = [
        annotated(path, tmp_path / str(rows), rows=rows, threads=n)
        for rows, n in ((128, 2), (1000, 1), (33, 3))
    ]
    assert len({out.read_bytes() for out in outs}) == 1
    assert [p.name for p in outs[0].parent.iterdir()] == ["a.parquet"]
    start = read_footer(path).start
    assert outs[0].read_bytes()[:start] == path.read_bytes()[:start]
    assert pq.read_schema(outs[0]).equals(pq.read_schema(held), check_metadata=True)
    pd.testing.assert_frame_equal(pd.read_parquet(outs[0]), pd.read_parquet(held))
    metadata = pq.read_metadata(outs[0])
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = [group.column(i) for i in range(group.num_columns)]
        assert {c.num_values for c in chunks[-len(COLUMNS) :]} == {group.num_rows}
        assert group.total_byte_size == sum(c.total_uncompressed_size for c in chunks)
        for chunk in chunks[-len(COLUMNS) :]:
            assert chunk.compression == chunks[0].compression
            assert (chunk.statistics is None) == (group.num_rows > 300)
    few = pq.read_table(outs[0], columns=["row"], filters=[("blr_logit_mean", ">", 4.99)])
    assert few["row"].to_pylist() == np.flatnonzero(values_of(COLUMNS[4], N) > 4.99).tolist()


def test_a_damaged_input_leaves_no_output(tmp_path: Path) -> None:
    """Damage in a column that is read is found by its page's checksum."""
    path = write_rich(tmp_path / "a.parquet")
    place = pq.read_metadata(path).row_group(2).column(0).data_page_offset + 60
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match="has the CRC"):
        annotated(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_votable_is_one_that_astropy_reads(tmp_path: Path) -> None:
    """A data-less VOTable with one FIELD a column, in order, valid for astropy."""
    path = write_rich(tmp_path / "a.parquet")
    pairs = pq.read_metadata(annotated(path, tmp_path / "out")).metadata
    assert pairs[b"IVOA.VOTable-Parquet.version"] == b"1.0"
    xml = tmp_path / "a.vot"
    xml.write_bytes(pairs[b"IVOA.VOTable-Parquet.content"])
    fields = votable.parse(xml, verify="exception").get_first_table().fields
    assert [f.name for f in fields] == rich_table(0).column_names + [c.name for c in COLUMNS]
    by_name = {f.name: f for f in fields}
    assert (by_name["x"].unit, by_name["x"].datatype) == (u.mag, "float")
    assert (by_name["vector"].datatype, by_name["vector"].arraysize) == ("double", "3")
    assert by_name["blr_p_early"].ucd == "stat.probability;src.class"


def test_astropy_reads_voparquet(tmp_path: Path) -> None:
    """Astropy's own reader of VOParquet takes units from our VOTable."""
    table = Table({"row": np.arange(3), "x": [1.0, 2.0, 3.0]})
    table["x"].unit = "mag"
    table.write(tmp_path / "a.parquet")
    out = annotated(tmp_path / "a.parquet", tmp_path / "out", n=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its merging of two tables' metadata warns of each difference
        read = Table.read(out, format="parquet.votable")
    assert str(read["x"].unit) == "mag"
    assert read["blr_p_early"].meta["ucd"] == "stat.probability;src.class"
    assert len(read) == 3


def test_pandas_index_and_metadata_stay(tmp_path: Path) -> None:
    frame = pd.DataFrame({"row": [0, 1], "x": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="objid"))
    frame.to_parquet(tmp_path / "a.parquet")
    read = pd.read_parquet(annotated(tmp_path / "a.parquet", tmp_path / "out", n=2))
    assert read.index.tolist() == ["a", "b"]
    assert read["blr_class"].tolist() == ["early", "late"]
    pd.testing.assert_frame_equal(read[["row", "x"]], frame)


def test_no_new_column(tmp_path: Path) -> None:
    """A copy with none, as of a table in memory that is written down, has the old ones."""
    path = write_rich(tmp_path / "a.parquet")
    (out,) = annotate(parquet.open(path), tmp_path / "out", (), lambda _: {}, read=["row"])
    assert pq.read_schema(out).equals(pq.read_schema(path))
    old, new = (pq.read_table(p, columns=["row", "x"]).to_pandas() for p in (path, out))
    assert new.equals(old)
