"""Annotating an annotated catalogue, and the columns that users are promised."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from astropy import units as u
from astropy.io import fits as astropy_fits
from astropy.io.votable.ucd import check_ucd
from astropy.table import QTable

import catalogs
from catalogs.catalog.catalog import levels
from catalogs.catalog.new_columns import CREDIBLE, NewColumn, Provenance, standard_columns
from catalogs.errors import ColumnNotFoundError
from catalogs.writing import annotate
from tests.catalogs.felis import EXAMPLES, PAGE, page, schema
from tests.catalogs.parquet_samples import write_rich

N = 300
TWO, THREE = standard_columns(["early", "late"]), standard_columns(["E", "S", "irregular"])
FORMATS = ("fits", "parquet", "vot", "ecsv")


def write(folder: Path, name: str) -> Path:
    """Write a catalogue of that format; its column `row` numbers the rows."""
    folder.mkdir(exist_ok=True)
    path = folder / f"t.{name}"
    if name == "parquet":
        return write_rich(path, N, row_group_size=70)
    if name in {"vot", "ecsv"}:
        plain = QTable({"row": np.arange(N), "x": np.linspace(0, 1, N) * u.mag, "ra": np.linspace(0, 360, N)})
        plain.write(path, format={"vot": "votable", "ecsv": "ascii.ecsv"}[name])
        return path
    cells = np.empty(N, object)
    cells[:] = [np.arange(i % 4, dtype=np.int16) for i in range(N)]
    columns = [
        astropy_fits.Column("row", "K", array=np.arange(N)),
        astropy_fits.Column("x", "E", array=np.linspace(0, 1, N), unit="mag"),
        astropy_fits.Column("v", "PI()", array=cells),
        astropy_fits.Column("ra", "D", array=np.linspace(0, 360, N), unit="deg"),
    ]
    table = astropy_fits.BinTableHDU.from_columns(columns, name="DATA")
    image = astropy_fits.ImageHDU(np.ones((4, 4)), name="IMAGE")
    astropy_fits.HDUList([astropy_fits.PrimaryHDU(), table, image]).writeto(path)
    return path


def values_of(column: NewColumn, shift: int) -> np.ndarray[Any, Any]:
    if pa.types.is_string(column.datatype):
        return np.array(["E", "late", ""])[(np.arange(N) + shift) % 3]
    if column.name.endswith("flags"):
        return (np.arange(N) + shift).astype(np.int32)
    return np.linspace(-5, 5, N).astype(
        column.datatype.to_pandas_dtype()
    ) + column.datatype.to_pandas_dtype()(shift)


def annotated(
    path: Path,
    out: Path,
    columns: Sequence[NewColumn] = TWO,
    model: str = "m@1",
    shift: int = 0,
    **options: Any,
) -> Path:
    whole = {c.name: values_of(c, shift) for c in columns}

    def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
        assert batch.schema.names == ["row"]
        return {name: v[batch.column("row").to_numpy()] for name, v in whole.items()}

    provenance = Provenance({"model": model}, {0: ("LOW_CONFIDENCE", "near one half")})
    (written,) = annotate(
        catalogs.open(path), out, columns, compute, rows=64, read=["row"], provenance=provenance, **options
    )
    return written


def table(path: Path) -> pa.Table:
    cat = catalogs.open(path)
    return pa.Table.from_batches(list(cat.batches(cat.names)))


def same_table(a: pa.Table, b: pa.Table) -> bool:
    return repr(a.to_pydict()) == repr(b.to_pydict())  # NaN is NaN


@pytest.mark.parametrize("name", FORMATS)
def test_another_models_columns_replace_all_of_the_old(tmp_path: Path, name: str) -> None:
    """Also those that the new one does not have, as the probabilities of other classes.

    The same model again gives the same bytes: nothing is stacked, nothing is left.
    """
    source = write(tmp_path / "in", name)
    first = annotated(source, tmp_path / "one")
    assert annotated(first, tmp_path / "again").read_bytes() == first.read_bytes()
    second = annotated(first, tmp_path / "two", THREE, "m@2", shift=1)
    fresh = annotated(source, tmp_path / "fresh", THREE, "m@2", shift=1)
    assert catalogs.open(second).names == catalogs.open(fresh).names
    assert same_table(table(second), table(fresh))
    metadata = dict(catalogs.open(second).metadata)
    assert metadata.pop("blr.replaced_models") == "m@1"
    assert levels(metadata) == levels(catalogs.open(fresh).metadata)
    third = annotated(second, tmp_path / "three", TWO, "m@3")
    assert catalogs.open(third).metadata["blr.replaced_models"] == "m@2, m@1"


@pytest.mark.parametrize("name", FORMATS)
def test_users_keep_their_bits(tmp_path: Path, name: str) -> None:
    """Bits 16 to 23 of the old flags come through, others do not."""
    source = write(tmp_path / "in", name)
    theirs = (np.arange(N) % 256) << 16 | (1 << 24) | 7
    flags = NewColumn("blr_flags", pa.int32())
    provenance = Provenance({"model": "m@1"})
    (first,) = annotate(
        catalogs.open(source),
        tmp_path / "one",
        [flags],
        lambda b: {"blr_flags": theirs[b.column("row").to_numpy()].astype(np.int32)},
        read=["row"],
        provenance=provenance,
    )
    found = table(annotated(first, tmp_path / "two", shift=3))["blr_flags"].to_numpy()
    assert np.array_equal(found, (np.arange(N) + 3) | ((np.arange(N) % 256) << 16))


@pytest.mark.parametrize("name", FORMATS)
def test_other_prefixes_stay(tmp_path: Path, name: str) -> None:
    """Two annotations side by side: each is replaced by itself, with its own provenance."""
    gz = standard_columns(["smooth", "featured"], "gz_")
    both = annotated(annotated(write(tmp_path / "in", name), tmp_path / "one"), tmp_path / "two", gz, "gz@1")
    assert {n.split("_")[0] for n in catalogs.open(both).names if "_" in n} >= {"blr", "gz"}
    again = annotated(both, tmp_path / "three", THREE, "m@2")
    names = catalogs.open(again).names
    assert [n for n in names if n.startswith("gz_")] == [c.name for c in gz]
    assert [n for n in names if n.startswith("blr_")] == [c.name for c in THREE]
    metadata = catalogs.open(again).metadata
    assert (metadata["blr.model"], metadata["blr.previous.model"]) == ("m@2", "gz@1")
    assert same_table(
        table(again).select(["gz_flags", "gz_class"]), table(both).select(["gz_flags", "gz_class"])
    )


@pytest.mark.parametrize("index", [False, True])
def test_columns_in_the_middle_are_taken_out_of_parquet(tmp_path: Path, index: bool) -> None:  # noqa: FBT001
    """The chunks that stay are moved together with their indexes and filters, undecoded."""
    first = annotated(write(tmp_path / "in", "parquet"), tmp_path / "one")
    theirs = pq.read_table(first)
    order = ["row", *(c.name for c in TWO), "theirs"]
    order += [n for n in theirs.column_names if n not in order]
    theirs = theirs.append_column("theirs", pa.array(np.arange(N) % 7, pa.int16())).select(order)
    pq.write_table(
        theirs,
        tmp_path / "edited.parquet",
        row_group_size=70,
        data_page_size=64,
        write_page_index=index,
        bloom_filter_options={"theirs": {"ndv": 100}} if index else None,
    )
    again = annotated(tmp_path / "edited.parquet", tmp_path / "two", THREE, "m@2")
    found = pq.read_table(again)
    kept = [n for n in order if n not in {c.name for c in TWO}]
    assert found.column_names == [*kept, *(c.name for c in THREE)]
    assert same_table(found.select(kept), theirs.select(kept))
    assert same_table(
        pq.read_table(again, columns=["row"], filters=[("theirs", "==", 6)]),
        theirs.filter(pa.compute.equal(theirs["theirs"], 6)).select(["row"]),
    )
    chunk = pq.read_metadata(again).row_group(1).column(kept.index("theirs"))
    assert chunk.has_offset_index == chunk.has_column_index == index
    assert again.stat().st_size < (tmp_path / "edited.parquet").stat().st_size + 30_000


@pytest.mark.parametrize("name", FORMATS)
def test_slim_copies_have_id_position_and_the_new_columns(tmp_path: Path, name: str) -> None:
    source = write(tmp_path / "in", name)
    keep = ["row", "x"]
    slim = annotated(source, tmp_path / "slim", mode="slim", keep=keep)
    whole = annotated(source, tmp_path / "whole")
    assert catalogs.open(slim).names == (*keep, *(c.name for c in TWO))
    assert same_table(table(slim), table(whole).select(catalogs.open(slim).names))
    assert slim.stat().st_size < whole.stat().st_size
    assert catalogs.open(slim).column("x") == catalogs.open(source).column("x")
    assert catalogs.open(slim).metadata["blr.model"] == "m@1"


def test_a_slim_fits_file_is_the_table_alone(tmp_path: Path) -> None:
    slim = annotated(write(tmp_path / "in", "fits"), tmp_path / "slim", mode="slim", keep=("row", "ra"))
    with astropy_fits.open(slim, checksum=True) as hdus:
        assert [h.name for h in hdus] == ["PRIMARY", "DATA"]
        assert hdus[1]._checksum_valid
        assert (hdus[1].header["PCOUNT"], hdus[1].header["TUNIT2"]) == (0, "deg")


def test_a_slim_copy_of_what_needs_the_heap_has_it(tmp_path: Path) -> None:
    slim = annotated(write(tmp_path / "in", "fits"), tmp_path / "slim", mode="slim", keep=("v",))
    assert [len(v) for v in table(slim)["v"].to_pylist()] == [i % 4 for i in range(N)]


def test_a_slim_copy_keeps_users_bits_and_may_drop_a_foreign_clash(tmp_path: Path) -> None:
    """Of a column that goes anyway, the name is free."""
    source = write(tmp_path / "in", "parquet")
    slim = annotated(source, tmp_path / "slim", [NewColumn("X", pa.float32())], mode="slim", keep=("row",))
    assert catalogs.open(slim).names == ("row", "X")


@pytest.mark.parametrize(
    ("keep", "error", "message"),
    [
        ((), Exception, r"got a slim copy that keeps no old column, .*keep=\('id', 'ra', 'dec'\)"),
        (("rwo",), ColumnNotFoundError, "no column 'rwo'; did you mean 'row'"),
    ],
)
def test_a_slim_copy_without_an_id_is_refused(
    tmp_path: Path, keep: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        annotated(write(tmp_path / "in", "fits"), tmp_path / "slim", mode="slim", keep=keep)


COLUMNS = Path(__file__).parents[3] / "docs" / "columns.md"


def test_the_schema_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "docs/columns.felis.yaml is stale; run `python -m tests.catalogs.felis`"
    assert yaml.safe_load(text) == schema()
    for column in (c for t in schema()["tables"] for c in t["columns"]):
        assert column["description"]
        assert check_ucd(column["ivoa:ucd"], check_controlled_vocabulary=True)


def test_the_page_describes_every_full_column() -> None:
    """With its UCD; class names stand in angle brackets."""
    text = COLUMNS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `blr_(\S+)` \| float32 \| `(\S+)` \|", text, flags=re.MULTILINE))
    for classes in EXAMPLES.values():
        extra = standard_columns(classes, columns="full")[len(standard_columns(classes)) :]
        for column in extra:
            name = column.name.removeprefix("blr_")
            for c in classes:
                name = re.sub(rf"(?<=_){c}(?=$|__)", "<class>", name)
            assert rows[name] == column.ucd, column.name
    assert f"{100 * CREDIBLE:g} %" in text
