"""Parquet from elsewhere: a file system in memory, and a plain server on this machine, which knows no ranges."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.catalog.new_columns import NewColumn
from catalogs.errors import CatalogError, ColumnNotFoundError, DamagedFileError, FormatError
from tests.catalogs.web import serving

NEW = (NewColumn("twice", pa.int64()),)


def compute(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
    return {"twice": 2 * batch.column("id").to_numpy()}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Two files in folders that name a field; ids are beyond 2^53."""
    for field in (1, 2):
        ids = 2**60 + np.arange(500) + 1000 * field
        table = pa.table({"id": ids, "x": np.arange(500) / field})
        (tmp_path / "release" / f"field={field}").mkdir(parents=True)
        pq.write_table(table, tmp_path / "release" / f"field={field}" / "a.parquet", row_group_size=100)
    return tmp_path / "release"


@pytest.fixture
def memory(release: Path) -> Iterator[str]:
    filesystem = fsspec.filesystem("memory")
    filesystem.put(str(release), "/release", recursive=True)
    yield "memory://release"
    filesystem.rm("/release", recursive=True)


@pytest.fixture
def http(release: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")
    with serving(release, ("parquet", "whole")) as web:
        yield web.url


@pytest.mark.parametrize("where", ["memory", "http"])
def test_the_same_as_the_local_folder(where: str, release: Path, tmp_path: Path, request: Any) -> None:
    """Batches, checksum and annotated copies are those of the files here, to the byte."""
    here, there = catalogs.open(release), catalogs.open(request.getfixturevalue(where))
    assert (there.columns, there.n_rows, there.metadata) == (here.columns, here.n_rows, here.metadata)
    assert [p.key for p in there.partitions] == ["field=1/a.parquet", "field=2/a.parquet"]
    assert list(there.batches(["field", "id"], 300)) == list(here.batches(["field", "id"], 300))
    assert there.content_hash() == here.content_hash()
    for cat, out in ((here, tmp_path / "here"), (there, tmp_path / "there")):
        out.mkdir()
        written = catalogs.annotate(cat, out, NEW, compute, read=["id"])
        assert sorted(p for p in out.rglob("*") if p.is_file()) == sorted(written)
    for partition in here.partitions:
        copies = [(tmp_path / place / partition.key).read_bytes() for place in ("here", "there")]
        assert copies[0] == copies[1]


def test_a_folder_that_is_named_as_a_file(memory: str) -> None:
    """As Spark names them."""
    filesystem = fsspec.filesystem("memory")
    filesystem.copy("/release/field=1/a.parquet", "/release/spark.parquet/part-0.parquet")
    assert catalogs.open(f"{memory}/spark.parquet").partitions[0].key == "part-0.parquet"


def test_a_file_on_this_machine_is_opened_as_such(release: Path) -> None:
    cat = catalogs.open(f"file://{release}/field=1/a.parquet")
    assert cat.path == release / "field=1" / "a.parquet"


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("memory://nothing/a.parquet", CatalogError, "there is no memory:///nothing/a.parquet; correct"),
        ("memory://nothing", CatalogError, "there is no memory://nothing; correct"),
        ("http://127.0.0.1:1/a.parquet", CatalogError, "127.0.0.1:1/a.parquet.*; correct the URL|try again"),
    ],
)
def test_what_is_not_there(url: str, error: type[Exception], message: str) -> None:
    if url.startswith("http"):
        pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")
    with pytest.raises(error, match=message):
        catalogs.open(url)


def test_damage_and_changes_are_told(memory: str, tmp_path: Path) -> None:
    filesystem = fsspec.filesystem("memory")
    cat = catalogs.open(f"{memory}/field=1/a.parquet")
    with pytest.raises(ColumnNotFoundError, match=r"memory:///release/field=1/a.parquet has no column 'X'"):
        list(cat.partitions[0].batches(["X"]))
    whole = filesystem.cat_file("/release/field=1/a.parquet")
    filesystem.pipe_file("/release/field=1/a.parquet", whole + whole)
    with pytest.raises(
        DamagedFileError, match=f"gave {2 * len(whole):,} bytes, expected {len(whole):,}; the file changed"
    ):
        catalogs.annotate(cat, tmp_path, NEW, compute, read=["id"])
    assert list(tmp_path.glob("**/.blr*")) == []
    filesystem.pipe_file("/release/field=1/a.parquet", whole[:-9] + whole[-8:])
    with pytest.raises(DamagedFileError, match="is damaged"):
        catalogs.open(f"{memory}/field=1/a.parquet")


def test_hats_is_read_from_a_local_folder(memory: str) -> None:
    fsspec.filesystem("memory").pipe_file("/release/hats.properties", b"obs_collection = x\n")
    with pytest.raises(FormatError, match="can be read from a local folder only; fetch it first"):
        catalogs.open(memory)
