"""The pipeline that all writers share, and what is checked before any work starts."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalogs.catalog.catalog import Annotation, Catalog, Column, Compute, Partition, computed_batches
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import CatalogError, ColumnNotFoundError, NameClashError, OutputExistsError
from catalogs.files import StorageError
from catalogs.writing import annotate

P = NewColumn("blr_p", pa.float32())


@dataclass(frozen=True)
class Rows(Partition):
    """A partition in memory: one column `x` of 0, 1, 2, ..."""

    key: str = "rows.dat"
    n_rows: int = 100
    read: list[int] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)

    def batches(self, columns: Sequence[str], rows: int = 10) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.n_rows, rows):
            self.read.append(start)
            x = pa.array(np.arange(start, min(start + rows, self.n_rows)))
            yield pa.RecordBatch.from_arrays([x] * len(columns), names=list(columns))

    def write_annotated(self, out: Path, annotation: Annotation) -> None:
        for _, new in computed_batches(self, annotation):
            assert annotation.provenance == Provenance({"columns": "blr_p"})
            assert list(new) == [c.name for c in annotation.columns]
        self.written.append(out)


def catalog(*partitions: Rows) -> Catalog:
    for partition in partitions:
        partition.path.parent.mkdir(exist_ok=True)
        partition.path.write_bytes(b"")
    return Catalog("rows", partitions[0].path, (Column("x", pa.int64()),), partitions)


def half(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
    return {"blr_p": (batch.column("x").to_numpy() / 2).astype(np.float32)}


def annotation(compute: Compute, rows: int = 10, threads: int = 2) -> Annotation:
    return Annotation([P], compute, ["x"], rows=rows, threads=threads)


def slow_first(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
    time.sleep(0.05 if batch.column("x")[0].as_py() == 0 else 0)
    return half(batch)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order_whatever_the_threads(tmp_path: Path, threads: int) -> None:
    pairs = list(computed_batches(Rows(tmp_path), annotation(slow_first, 7, threads)))
    assert np.array_equal(np.concatenate([new["blr_p"] for _, new in pairs]), np.arange(100) / 2)
    assert [batch.num_rows for batch, _ in pairs] == [7] * 14 + [2]


def test_reading_runs_ahead_by_a_few_batches_only(tmp_path: Path) -> None:
    rows = Rows(tmp_path, n_rows=1000)
    results = computed_batches(rows, annotation(half))
    for done in range(1, 20):
        next(results)
        assert len(rows.read) <= done + 4
    results.close()


def test_a_failure_ends_it_at_once(tmp_path: Path) -> None:
    release = threading.Event()

    def fail_second(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
        first = batch.column("x")[0].as_py()
        if first == 10:
            release.set()
            raise RuntimeError("second batch")
        release.wait(10)
        return half(batch)

    rows = Rows(tmp_path, n_rows=1000)
    with pytest.raises(RuntimeError, match="second batch"):
        list(computed_batches(rows, annotation(fail_second)))
    assert len(rows.read) < 6
    assert not [t for t in threading.enumerate() if t.name.startswith("blr-compute")]


def test_abandoning_the_results_ends_the_threads(tmp_path: Path) -> None:
    results = computed_batches(Rows(tmp_path), annotation(half))
    next(results)
    results.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("blr-compute")]


def test_annotate_writes_every_partition_to_its_place(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    a, b = Rows(inside / "a", "a"), Rows(inside / "b", "Norder=0/b", counted=False)
    done: list[int] = []
    files = annotate(catalog(a, b), tmp_path / "out", [P], half, read=["x"], rows=30, progress=done.append)
    assert files == (tmp_path / "out" / "a", tmp_path / "out" / "Norder=0" / "b")
    assert (a.written, b.written) == ([files[0]], [files[1]])
    assert files[1].parent.is_dir()
    assert done == [30, 30, 30, 10] * 2


@pytest.mark.parametrize(
    ("compute", "error", "message"),
    [
        (lambda _: {"other": 1}, ValueError, r"returned the columns \['other'\], expected \['blr_p'\] too"),
        (lambda _: {"blr_p": np.zeros(3, np.float32)}, ValueError, r"shape \(3,\) for 'blr_p'.*100 rows"),
        (lambda _: {"blr_p": np.zeros((100, 1), np.float32)}, ValueError, r"shape \(100, 1\)"),
        (lambda _: {"blr_p": np.zeros(100)}, TypeError, "returned float64 for 'blr_p'; expected float32"),
    ],
)
def test_compute_is_held_to_its_promise(
    tmp_path: Path, compute: Compute, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        annotate(catalog(Rows(tmp_path / "a")), tmp_path / "out", [P], compute, read=["x"], rows=100)


def test_what_is_wrong_is_said_before_any_work(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "in", "in")
    cat = catalog(rows)
    with pytest.raises(NameClashError):
        annotate(cat, tmp_path / "out", [NewColumn("X", pa.int32())], half, read=["x"])
    with pytest.raises(ColumnNotFoundError, match="no column 'y'"):
        annotate(cat, tmp_path / "out", [P], half, read=["y"])
    with pytest.raises(CatalogError, match="got 's3://bucket/out' as output folder, expected a path on this"):
        annotate(cat, Path("s3://bucket/out"), [P], half, read=["x"])
    with pytest.raises(CatalogError, match="replaced by its own annotated copy"):
        annotate(cat, tmp_path, [P], half, read=["x"], overwrite=True)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"file cannot be made: File exists"):
        annotate(cat, tmp_path / "file", [P], half, read=["x"])
    assert rows.read == []


def test_a_link_to_the_source_is_the_source(tmp_path: Path) -> None:
    cat = catalog(Rows(tmp_path / "in" / "rows.dat"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rows.dat").symlink_to(tmp_path / "in" / "rows.dat")
    with pytest.raises(CatalogError, match="its own annotated copy"):
        annotate(cat, tmp_path / "out", [P], half, read=["x"], overwrite=True)


def test_existing_output_is_replaced_only_when_asked(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "in" / "rows.dat")
    cat = catalog(rows)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rows.dat").write_bytes(b"earlier")
    with pytest.raises(OutputExistsError, match="exists already"):
        annotate(cat, tmp_path / "out", [P], half, read=["x"])
    assert rows.read == []
    annotate(cat, tmp_path / "out", [P], half, read=["x"], overwrite=True)
    assert rows.written


def test_a_full_disk_is_seen_before_any_work(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "in" / "rows.dat", n_rows=10**16)
    with pytest.raises(StorageError, match="needs about"):
        annotate(catalog(rows), tmp_path / "out", [P], lambda _: pytest.fail("it worked"), read=["x"])
    assert rows.read == []


def test_left_overs_of_a_killed_run_are_swept(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".blr-0123456789abcdef.tmp").write_bytes(b"half")
    annotate(catalog(Rows(tmp_path / "in" / "a")), tmp_path / "out", [P], half, read=["x"])
    assert list((tmp_path / "out").iterdir()) == []
