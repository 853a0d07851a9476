"""Annotated copies in other formats: what is kept, and what is said of the rest."""

import datetime as dt
import decimal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits as astropy_fits
from astropy.io.votable import from_table
from astropy.io.votable.tree import Info, Link, Param, Resource, TimeSys
from astropy.table import Table

import catalogs
from catalogs import hats
from catalogs.catalog.catalog import Annotation, Catalog, Column, Compute, Partition, computed_batches
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import CatalogError, ColumnNotFoundError, NameClashError, OutputExistsError
from catalogs.files import StorageError
from catalogs.fits import table as fits
from catalogs.fits.fields import FitsField
from catalogs.parquet import dataset as parquet
from catalogs.writing import Written, annotate, converted_key
from tests.catalogs.hats_samples import N as N_HATS
from tests.catalogs.hats_samples import write_collection
from tests.catalogs.parquet_samples import COLUMNS, PROVENANCE, computing, write_rich

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


def test_a_failure_ends_it_at_once_and_abandoning_the_results_ends_the_threads(tmp_path: Path) -> None:
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
def test_compute_is_held_to_its_promise(tmp_path: Path, compute: Compute, error: Any, message: str) -> None:
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


def test_existing_output_is_replaced_only_when_asked_and_left_overs_of_a_killed_run_are_swept(
    tmp_path: Path,
) -> None:
    """A link to the source is the source."""
    rows = Rows(tmp_path / "in" / "rows.dat")
    cat = catalog(rows)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".blr-0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / "out" / "rows.dat").symlink_to(tmp_path / "in" / "rows.dat")
    with pytest.raises(CatalogError, match="its own annotated copy"):
        annotate(cat, tmp_path / "out", [P], half, read=["x"], overwrite=True)
    (tmp_path / "out" / "rows.dat").unlink()
    (tmp_path / "out" / "rows.dat").write_bytes(b"earlier")
    with pytest.raises(OutputExistsError, match="exists already"):
        annotate(cat, tmp_path / "out", [P], half, read=["x"])
    assert rows.read == []
    annotate(cat, tmp_path / "out", [P], half, read=["x"], overwrite=True)
    assert rows.written
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rows.dat"]


def test_a_full_disk_is_seen_before_any_work(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "in" / "rows.dat", n_rows=10**16)
    with pytest.raises(StorageError, match="needs about"):
        annotate(catalog(rows), tmp_path / "out", [P], lambda _: pytest.fail("it worked"), read=["x"])
    assert rows.read == []


N = 300
MARK = (NewColumn("blr_mark", pa.int32(), "meta.code"),)
I64 = 2**63


def mark(batch: pa.RecordBatch) -> Mapping[str, Any]:
    return {"blr_mark": np.arange(batch.num_rows, dtype=np.int32)}


def converted(path: Path, out: Path, form: str, **options: Any) -> Written:
    options |= {"read": ["row"], "provenance": PROVENANCE, "form": form}
    return annotate(catalogs.open(path), out, COLUMNS, computing(N), **options)


def marked(table: pa.Table, folder: Path, **options: Any) -> Written:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "t.parquet")
    cat = parquet.open(folder / "t.parquet")
    return annotate(cat, folder / "out", MARK, mark, read=cat.names[:1], form="fits", **options)


def rows(cat: Catalog) -> dict[str, list[Any]]:
    return pa.Table.from_batches(list(cat.batches(cat.names))).to_pydict()


@pytest.mark.parametrize(
    ("datatype", "values", "form", "null"),
    [
        (pa.uint8(), [0, None, 254], "B", 255),
        (pa.uint8(), [0, None, 255], "I", -(2**15)),
        (pa.uint8(), [1, None, 255], "B", 0),
        (pa.int8(), [-128, None, 127], "I", -(2**15)),
        (pa.int16(), [-(2**15), None], "I", 2**15 - 1),
        (pa.uint16(), [0, None, 2**16 - 1], "J", -(2**31)),
        (pa.int32(), [None, 5], "J", -(2**31)),
        (pa.uint32(), [0, None, 2**32 - 1], "K", -I64),
        (pa.int64(), [None, 1 - I64, I64 - 1], "K", -I64),
        (pa.uint64(), [None, 0], "K", 2**64 - 1),
        (pa.int16(), [None, None], "I", -(2**15)),
    ],
)
def test_nulls_have_an_integer_that_no_value_has(
    tmp_path: Path, datatype: pa.DataType, values: list[int | None], form: str, null: int
) -> None:
    """If need be of a wider type."""
    (out,) = marked(pa.table({"i": pa.array(values, datatype)}), tmp_path)
    cat = fits.open(out)
    assert rows(cat)["i"] == values
    assert cat.column("i").null == null
    with astropy_fits.open(out) as hdus:
        assert hdus[1].columns["i"].format == f"1{form}" or hdus[1].columns["i"].format == form


def test_the_null_of_the_source_is_kept_where_it_is_free() -> None:
    def null_of(datatype: pa.DataType, null: int | None, low: int, high: int) -> int | None:
        field = FitsField(Column("i", datatype, null=null), "i", datatype, nulls=1, low=low, high=high)
        field.settle()
        return field.null

    assert null_of(pa.int32(), -99, 0, 7) == -99
    assert null_of(pa.int32(), 5, 0, 7) == -(2**31)
    with pytest.raises(CatalogError, match=r"every 64-bit integer that could mark nulls .*remove the nulls"):
        null_of(pa.int64(), None, -I64, I64 - 1)


def test_text_of_all_kinds(tmp_path: Path) -> None:
    """FITS holds ASCII of one width: what that costs is said, column by column."""
    kinds: dict[str, tuple[pa.Array, list[Any]]] = {
        "plain": (pa.array(["a", "bcd", ""]), ["a", "bcd", ""]),
        "large": (pa.array(["x", "y", "z"], pa.large_string()), ["x", "y", "z"]),
        "view": (pa.array(["x", "y", "zz"], pa.string_view()), ["x", "y", "zz"]),
        "half": (pa.array(np.array([1, 2, 3], np.float16)), [1.0, 2.0, 3.0]),
        "truth": (pa.array([True, None, False]), [True, None, False]),
        "bytes": (pa.array([b"a", b"\xe9", None], pa.binary()), ["a", "\\xe9", ""]),
        "accent": (pa.array(["Élan", "b", "c"]), ["\\xc9lan", "b", "c"]),
        "blank": (pa.array(["a ", "b", "c"]), ["a", "b", "c"]),
        "dictionary": (pa.array(["p", None, "p"]).dictionary_encode(), ["p", "", "p"]),
        "null": (pa.nulls(3), ["", "", ""]),
        "list": (pa.array([["a", "b"], [], None]), ['["a", "b"]', "[]", ""]),
        "vector": (pa.array([["a", "bé"]] * 3, pa.list_(pa.string(), 2)), [["a", "b\\xe9"]] * 3),
        "map": (pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int8())), ['[["k", 1]]', "[]", ""]),
        "date": (pa.array([dt.date(2026, 1, 2), None, dt.date(1, 1, 1)]), ["2026-01-02", "", "0001-01-01"]),
        "price": (pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-2.25")]), [1.5, np.nan, -2.25]),
    }
    written = marked(pa.table({name: stored for name, (stored, _) in kinds.items()}), tmp_path)
    new = rows(fits.open(written[0]))
    assert str({n: new[n] for n in kinds}) == str({n: expected for n, (_, expected) in kinds.items()})
    told = {w.partition("'")[2].partition("'")[0] for w in written.warnings}
    assert told == {*list(kinds)[5:]}, "nothing is said of the first ones"


def test_null_vectors_and_slices(tmp_path: Path) -> None:
    """Nulls of vectors are of their elements; batches are slices of what is in memory."""
    vector = pa.array([[1.0, 2.0], None, [3.0, None], [5.0, 6.0]], pa.list_(pa.float64(), 2))
    integers = pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int16(), 2))
    lists = pa.array([[1], None, [2, None], []], pa.list_(pa.int32()))
    written = marked(pa.table({"v": vector, "i": integers, "l": lists}), tmp_path, rows=3)
    new = rows(fits.open(written[0]))
    assert str(new["v"]) == "[[1.0, 2.0], [nan, nan], [3.0, nan], [5.0, 6.0]]"
    assert new["i"] == [[1, 2], [None, None], [3, None], [5, 6]]
    assert new["l"] == [[1], [], [2, None], []]


def test_hats_to_files_leaves_margins_out(tmp_path: Path) -> None:
    cat = hats.open(write_collection(tmp_path / "in" / "c"))
    for form in ("parquet", "fits"):
        written = annotate(cat, tmp_path / form, MARK, mark, read=["id"], form=form)
        assert "only the rows are written" in written.warnings[0]
        assert [p.suffix for p in written] == [f".{form}"] * 3
        assert catalogs.open(tmp_path / form / "c").n_rows == N_HATS


def test_several_formats_of_names(tmp_path: Path) -> None:
    names = {
        "a.fits.gz": "a.fits",
        "x/b.csv": "x/b.fits",
        "c": "c.fits",
        "d.2.vot": "d.2.fits",
        "e.XML.bz2": "e.fits",
    }
    assert {name: converted_key(name, "fits") for name in names} == names
    with pytest.raises(CatalogError, match=r"got the format 'hdf5' .* expected parquet or fits"):
        converted(write_rich(tmp_path / "a.parquet", N), tmp_path / "out", "hdf5")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.fits").write_bytes(b"earlier")
    with pytest.raises(OutputExistsError, match=r"a\.fits exists already"):
        converted(tmp_path / "a.parquet", tmp_path / "out", "fits")


def test_too_many_columns_for_fits(tmp_path: Path) -> None:
    table = pa.table({f"c{i}": [1] for i in range(1000)})
    with pytest.raises(CatalogError, match=r"got 1001 columns .* at most 999 .* FITS allows"):
        marked(table, tmp_path)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.filterwarnings("ignore:No table:astropy.utils.exceptions.AstropyUserWarning")
def test_astropy_reads_what_we_made(tmp_path: Path) -> None:
    (out,) = converted(write_rich(tmp_path / "a.parquet", N), tmp_path / "out", "fits")
    table = Table.read(out)
    assert table["id"].mask.tolist() == [i % 7 == 0 for i in range(N)]
    assert table["x"].unit == "mag"
    (back,) = converted(out, tmp_path / "back", "parquet")
    assert Table.read(back)["x"].unit == "mag"


def test_comments_are_said_to_be_left_out_where_there_are_some(tmp_path: Path) -> None:
    said = ("comments are left out",)
    texts = {"row,x\n1,2\n": (), "# of a survey\nrow,x\n1,2\n": said, "row,x\n1,2\n# end\n3,4\n": said}
    for i, (text, expected) in enumerate(texts.items()):
        (tmp_path / f"{i}.csv").write_text(text)
        cat = catalogs.open(tmp_path / f"{i}.csv")
        written = annotate(cat, tmp_path / "out", MARK, mark, read=["row"], form="fits")
        assert written.warnings == expected, text


@pytest.mark.parametrize("form", ["ascii.ecsv", "votable"])
@pytest.mark.parametrize("more", [False, True])
def test_what_is_beside_the_rows_is_said_to_be_left_out_where_there_is_some(
    tmp_path: Path, form: str, *, more: bool
) -> None:
    path = tmp_path / f"a.{form.removeprefix('ascii.')}"
    table = Table({"row": [0, 1], "x": [1.5, 2.5]})
    if form == "votable":
        document = from_table(table)
        if more:
            epoch = Param(document, name="epoch", datatype="double", value="2000")
            document.resources[0].params.append(epoch)
        document.to_xml(str(path))
    else:
        table.meta = {"survey": "deep"} if more else {}
        table.write(path, format=form)
    written = annotate(catalogs.open(path), tmp_path / "out", MARK, mark, read=["row"], form="parquet")
    assert any("left out" in sentence for sentence in written.warnings) is more


def test_every_kind_of_element_beside_a_votables_rows_is_said_to_be_left_out(tmp_path: Path) -> None:
    document = from_table(Table({"row": [0, 1], "x": [1.5, 2.5]}))
    inner = Resource()
    inner.infos.append(Info(name="QUERY_STATUS", value="OK"))
    document.resources[0].resources.append(inner)
    document.resources[0].description = "of a survey"
    document.resources[0].links.append(Link(href="https://example.org"))
    about = {"timeorigin": 0.5, "timescale": "TCB", "refposition": "TOPOCENTER"}
    times = TimeSys(ID="t", **about, config={"version_1_4_or_later": True})
    document.time_systems.append(times)
    document.to_xml(str(tmp_path / "a.vot"))
    (again,) = annotate(catalogs.open(tmp_path / "a.vot"), tmp_path / "same", MARK, mark, read=["row"])
    for path, out in ((tmp_path / "a.vot", "one"), (again, "two")):
        written = annotate(catalogs.open(path), tmp_path / out, MARK, mark, read=["row"], form="parquet")
        assert written.warnings == (
            "everything in the VOTable except the rows (time systems, links, INFO elements, descriptions) is left out",
        )
