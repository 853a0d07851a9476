"""Annotating an annotated catalogue, the columns that users are promised, and columns that two files share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from astropy import units as u
from astropy.io import fits
from astropy.io.votable.ucd import check_ucd
from astropy.table import QTable, Table

import catalogs
from catalogs.catalog.catalog import levels
from catalogs.catalog.new_columns import NewColumn, Provenance, check_names, standard_columns
from catalogs.errors import CatalogError, ColumnNotFoundError, NameClashError
from catalogs.writing import annotate
from tests.catalogs.felis import PAGE, page, schema
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
        fits.Column("row", "K", array=np.arange(N)),
        fits.Column("x", "E", array=np.linspace(0, 1, N), unit="mag"),
        fits.Column("v", "PI()", array=cells),
        fits.Column("ra", "D", array=np.linspace(0, 360, N), unit="deg"),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="DATA")
    image = fits.ImageHDU(np.ones((4, 4)), name="IMAGE")
    fits.HDUList([fits.PrimaryHDU(), table, image]).writeto(path)
    return path


def values_of(
    column: NewColumn, shift: int, n: int = N, words: Sequence[str] = ("E", "late", "")
) -> np.ndarray[Any, Any]:
    if pa.types.is_string(column.datatype):
        return np.array(words)[(np.arange(n) + shift) % 3]
    if column.name.endswith("flags"):
        return (np.arange(n) + shift).astype(np.int32)
    kind = column.datatype.to_pandas_dtype()
    return np.linspace(-5, 5, n).astype(kind) + kind(shift)


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
    assert levels(metadata) == levels(catalogs.open(fresh).metadata)


@pytest.mark.parametrize("name", FORMATS)
def test_users_keep_their_bits(tmp_path: Path, name: str) -> None:
    """Bits 16 to 23 of the old flags come through, others do not."""
    source = write(tmp_path / "in", name)
    theirs = (np.arange(N) % 256) << 16 | (1 << 24) | 7
    flags = NewColumn("blr_flags", pa.int32())

    def compute(batch: pa.RecordBatch) -> Mapping[str, Any]:
        return {"blr_flags": theirs[batch.column("row").to_numpy()].astype(np.int32)}

    how: dict[str, Any] = {"read": ["row"], "provenance": Provenance({"model": "m@1"})}
    (first,) = annotate(catalogs.open(source), tmp_path / "one", [flags], compute, **how)
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
    assert same_table(*(table(p).select(["gz_flags", "gz_class"]) for p in (again, both)))


def test_columns_in_the_middle_are_taken_out_of_parquet(tmp_path: Path) -> None:
    """The chunks that stay are moved undecoded, without the page indexes and filters that told their places."""
    first = annotated(write(tmp_path / "in", "parquet"), tmp_path / "one")
    theirs = pq.read_table(first)
    order = ["row", *(c.name for c in TWO), "theirs"]
    order += [n for n in theirs.column_names if n not in order]
    theirs = theirs.append_column("theirs", pa.array(np.arange(N) % 7, pa.int16())).select(order)
    filters = {"write_page_index": True, "bloom_filter_options": {"theirs": {"ndv": 100}}}
    pq.write_table(theirs, tmp_path / "edited.parquet", row_group_size=70, data_page_size=64, **filters)
    again = annotated(tmp_path / "edited.parquet", tmp_path / "two", THREE, "m@2")
    found = pq.read_table(again)
    kept = [n for n in order if n not in {c.name for c in TWO}]
    assert found.column_names == [*kept, *(c.name for c in THREE)]
    assert same_table(found.select(kept), theirs.select(kept))
    assert same_table(
        pq.read_table(again, columns=["row"], filters=[("theirs", "==", 6)]),
        theirs.filter(pa.compute.equal(theirs["theirs"], 6)).select(["row"]),
    )
    assert not pq.read_metadata(again).row_group(1).column(kept.index("theirs")).has_offset_index
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
    with fits.open(slim, checksum=True) as hdus:
        assert [h.name for h in hdus] == ["PRIMARY", "DATA"]
        assert hdus[1]._checksum_valid
        assert (hdus[1].header["PCOUNT"], hdus[1].header["TUNIT2"]) == (0, "deg")
    heap = annotated(tmp_path / "in" / "t.fits", tmp_path / "heap", mode="slim", keep=("v",))
    assert [len(v) for v in table(heap)["v"].to_pylist()] == [i % 4 for i in range(N)]


def test_a_slim_copy_may_drop_a_foreign_clash_and_needs_an_id(tmp_path: Path) -> None:
    """Of a column that goes anyway, the name is free."""
    source = write(tmp_path / "in", "parquet")
    slim = annotated(source, tmp_path / "slim", [NewColumn("X", pa.float32())], mode="slim", keep=("row",))
    assert catalogs.open(slim).names == ("row", "X")
    without = r"got a slim copy that keeps no old column, .*keep=\('id', 'ra', 'dec'\)"
    with pytest.raises(CatalogError, match=without):
        annotated(source, tmp_path / "none", mode="slim", keep=())
    with pytest.raises(ColumnNotFoundError, match="no column 'rwo'; did you mean 'row'"):
        annotated(source, tmp_path / "none", mode="slim", keep=("rwo",))


def test_the_schema_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "docs/columns.felis.yaml is stale; run `python -m tests.catalogs.felis`"
    assert yaml.safe_load(text) == schema()
    for column in (c for t in schema()["tables"] for c in t["columns"]):
        assert column["description"]
        assert check_ucd(column["ivoa:ucd"], check_controlled_vocabulary=True)


PREFIXED = standard_columns(["E", "E-S0", "élan?", "星"], prefix="gz_")


def test_two_classes_have_the_columns_of_the_contract() -> None:
    assert [(c.name, str(c.datatype), c.ucd) for c in TWO] == [
        ("blr_class", "string", "src.class"),
        ("blr_p_early", "float", "stat.probability;src.class"),
        ("blr_p_late", "float", "stat.probability;src.class"),
        ("blr_p_max", "float", "stat.probability"),
        ("blr_logit_mean", "float", "stat.value"),
        ("blr_logit_std", "float", "stat.stdev"),
        ("blr_mutual_info", "float", "stat.value"),
        ("blr_flags", "int32", "meta.code.qual;src.class"),
        ("blr_model", "int64", "meta.version"),
    ]


def test_three_classes_have_no_logit_mean_and_safe_names_and_a_prefix_begins_a_columns() -> None:
    names = "class p_E p_E_S0 p_elan_ p__ p_max logit_std mutual_info flags model"
    assert [c.name for c in PREFIXED] == [f"gz_{name}" for name in names.split()]
    assert PREFIXED[0].width == 6, "bytes of the longest class"
    with pytest.raises(CatalogError, match="two or more"):
        standard_columns(["all"])
    for prefix in ("", "9_", "my blr_", "blr-"):
        with pytest.raises(CatalogError, match="prefix"):
            standard_columns(["a", "b"], prefix=prefix)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["S0", "s0"], "class 's0' would clash with class 'S0'"),
        (["S0/a", "S0-a"], "class 'S0-a' would clash with class 'S0/a'"),
        (["E", "E"], "class 'E' would clash with class 'E'"),
        (["min", "Max"], r"class 'Max' would clash with the column 'blr_p_max' \(the largest"),
    ],
)
def test_classes_of_the_same_column_are_named_with_the_remedy(classes: list[str], message: str) -> None:
    with pytest.raises(NameClashError, match=message + ".*rename the class"):
        standard_columns(classes)


def test_new_names_clash_with_old_ones_in_any_case() -> None:
    with pytest.raises(NameClashError, match="has a column 'BLR_Class' already"):
        check_names(["ra", "BLR_Class"], TWO)
    with pytest.raises(NameClashError, match="two new columns are called 'A'"):
        check_names([], [NewColumn("a", pa.int32()), NewColumn("A", pa.int32())])
    check_names(["ra", "blr_classes"], TWO)


N_ROWS = 3_000
Columns = dict[str, np.ndarray[Any, Any]]


def write_fits(columns: Columns, path: Path) -> None:
    fits.BinTableHDU(Table(columns)).writeto(path.with_suffix(".fits"))


def write_parquet(columns: Columns, path: Path) -> None:
    pq.write_table(pa.table(dict(columns)), path.with_suffix(".parquet"), row_group_size=1_000)


FORMS = {".fits": write_fits, ".parquet": write_parquet}


def columns() -> Columns:
    rng = np.random.default_rng(1)
    texts = np.array([f"NGC {i}" for i in range(N_ROWS)])
    whole, x = rng.integers(0, 9, N_ROWS).astype(np.int32), rng.normal(size=N_ROWS)
    return {"id": np.arange(N_ROWS), "name": texts, "x": np.where(x > 2, np.nan, x), "whole": whole}


def in_one_value(name: str, value: Any) -> Callable[[Columns], None]:
    def change(changed: Columns) -> None:
        changed[name] = changed[name].copy()
        changed[name][N_ROWS - 1] = value

    return change


CHANGES: dict[str, tuple[Callable[[Columns], Any], set[str]]] = {
    "more columns": (lambda c: c.update(p=c["x"] ** 2), set()),
    "a number": (in_one_value("x", 0.25), {"x"}),
    "a text": (in_one_value("name", "NGC 1"), {"name"}),
    "the bits of another type": (lambda c: c.update(whole=c["whole"].view(np.float32)), {"whole"}),
    "rounded": (lambda c: c.update(x=c["x"].astype(np.float32).astype(float)), {"x"}),
    "other rows": (lambda c: c.update({k: v[::-1] for k, v in c.items()}), {"id", "name", "x", "whole"}),
    "fewer rows": (lambda c: c.update({k: v[1:] for k, v in c.items()}), {"id", "name", "x", "whole"}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", CHANGES)
def test_what_differs_is_not_among_the_same_columns(tmp_path: Path, form: str, what: str) -> None:
    change, differ = CHANGES[what]
    changed = columns()
    change(changed)
    FORMS[form](columns(), tmp_path / "one")
    FORMS[form](changed, tmp_path / "other")
    one, other = (catalogs.open((tmp_path / name).with_suffix(form)) for name in ("one", "other"))
    assert {*other.same_columns(one)} == {"id", "name", "x", "whole"} - differ
    assert {*one.same_columns(one)} == {"id", "name", "x", "whole"}


def test_columns_with_another_null_value_or_format_or_with_masks_are_not_the_same(tmp_path: Path) -> None:
    for write in FORMS.values():
        write(columns(), tmp_path / "one")
    write_fits(columns(), tmp_path / "other")
    fits.setval(tmp_path / "other.fits", "TNULL1", value=-2, ext=1)
    Table({"id": [1, 2], "x": np.ma.array([1.5, 2.5], mask=[True, False])}).write(tmp_path / "masked.parquet")
    names = ("one.fits", "other.fits", "one.parquet", "masked.parquet")
    one, other, parquet, masked = (catalogs.open(tmp_path / name) for name in names)
    assert {*other.same_columns(one)} == {"name", "x", "whole"}
    assert not parquet.same_columns(one)
    assert {*masked.same_columns(masked)} == {"id", "x.mask"}


def test_empty_texts_of_fits_are_counted_without_decoding_them(tmp_path: Path) -> None:
    """Blanks, NULs, and what stands after a NUL are no text; a tabulator is one."""
    texts = [b"", b"   ", b" a", b"a", b"\0b", b"  \0b", b"\t", b"    ", b" \0  "] * 300
    made = {"text": np.array(texts, "S4"), "x": np.arange(len(texts)), "last": np.array(texts[::-1], "S5")}
    hdu = fits.BinTableHDU(Table(made))
    stored = hdu.data.view(np.ndarray)
    for name, width in (("text", 4), ("last", 5)):
        padded = [text.ljust(width, b" ") if i % 2 else text for i, text in enumerate(made[name].tolist())]
        stored[name] = np.array(padded, f"S{width}")
    hdu.writeto(tmp_path / "one.fits")
    one = catalogs.open(tmp_path / "one.fits")
    (batch,) = one.batches(["text", "last"])
    empty = {name: batch.column(name).to_pylist().count("") for name in ("text", "last")}
    assert one.same_columns(one) == {"x": None, **empty}
    assert empty["text"] == 6 * 300
