"""Tables in memory as catalogues: the metadata of their Parquet and FITS copies, and columns recognised there."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units as u
from astropy.coordinates import SkyCoord
from astropy.io import fits as astropy_fits
from astropy.table import Column, MaskedColumn, QTable, Table
from astropy.time import Time

import catalogs
from catalogs.catalog.new_columns import NewColumn, Provenance
from catalogs.errors import FormatError
from catalogs.parquet import dataset as parquet
from catalogs.writing import Written
from tests.catalogs.memory_trips import NEW, compute

N = 5
PROVENANCE = Provenance({"model": "m@1"}, {0: ("LOW_CONFIDENCE", "near one half, " + "or nearly so, " * 8)})
MARK = (NewColumn("mark", pa.float32()),)


def mark(batch: pa.RecordBatch) -> Mapping[str, Any]:
    return {"mark": np.zeros(batch.num_rows, np.float32)}


def annotated(table: Any, folder: Path, **options: Any) -> Written:
    cat = catalogs.open(table)
    return catalogs.annotate(cat, folder, NEW, compute, read=["row"], provenance=PROVENANCE, **options)


def with_header() -> Table:
    """Return a table as `Table.read` makes it of FITS."""
    angle = np.arange(N) * u.deg
    table = Table({"row": np.arange(N), "sky": SkyCoord(angle, angle, frame="fk5")})
    table.meta = {
        "EXTNAME": "DATA",
        "TELESCOP": "VISTA",
        "EXPTIME": 12.5,
        "NEXP": 3,
        "GOOD": True,
        "OBSERVER": "O'Neill " + "and others " * 10 + "too",
        "DATE-OBS": "2026-01-01",
        "AIRMASS": float("nan"),
        "CHECKSUM": "stale",
        "TTYPE1": "not a card of this table",
        "comments": ["first", "  indented"],
        "HISTORY": ["reduced", "calibrated"],
        "seeing": 0.8,
        "sites": {"name": "Paranal", "height": [2635, "m"]},
        "epoch": Time("2026-01-01"),
        "pair": (1, 2),
        "note": "Élan:  'vital' \\ # " * 40,
        "lines": "one\n  two\n\nthree " + "x" * 300,
        "TWICE": [1, 2],
    }
    return table


def test_header_cards_are_cards_again_in_fits(tmp_path: Path) -> None:
    """In order, texts of any length, numbers and truth values; what cards cannot say astropy reads from COMMENT."""
    written = annotated(with_header(), tmp_path, form="fits")
    assert written.warnings == ()
    with astropy_fits.open(written[0], checksum=True) as hdus:
        header = hdus[1].header
        assert hdus[1]._checksum_valid
        cards = ["TELESCOP", "EXPTIME", "NEXP", "GOOD", "OBSERVER", "DATE-OBS"]
        assert [k for k in header if k in cards] == cards
        assert [header[k] for k in ("TELESCOP", "EXPTIME", "NEXP", "GOOD", "OBSERVER")] == [
            with_header().meta[k] for k in ("TELESCOP", "EXPTIME", "NEXP", "GOOD", "OBSERVER")
        ]
        assert type(header["NEXP"]) is int
        assert header["GOOD"] is True
        assert header["TTYPE1"] == "row"
        assert list(header["COMMENT"])[:2] == ["first", "  indented"]
        assert list(header["HISTORY"])[:2] == ["reduced", "calibrated"]
    back = Table.read(written[0])
    assert back["sky"].frame.name == "fk5"
    assert back.meta["seeing"] == 0.8
    assert back.meta["sites"] == {"name": "Paranal", "height": [2635, "m"]}
    assert back.meta["epoch"] == Time("2026-01-01")
    for key in ("pair", "note", "lines", "TWICE"):
        assert back.meta[key] == with_header().meta[key]
    assert np.isnan(back.meta["AIRMASS"])
    assert back.meta["comments"] == ["first", "  indented"]
    assert catalogs.open(written[0]).metadata["blr.model"] == "m@1"


def test_what_others_wrote_to_parquet_goes_to_fits_too(tmp_path: Path) -> None:
    """The `meta` of astropy's files and the `attrs` of pandas'; both were left out without a word."""
    table = with_header()
    table.write(tmp_path / "a.parquet")
    kinds = pd.Categorical(["b", "a"], ["b", "a"], ordered=True)
    frame = pd.DataFrame({"row": [0, 1], "c": kinds}, index=[5, 7])
    frame.attrs = {"survey": "VHS", "bands": ["J", "Ks"], "long": "x" * 300}
    frame.to_parquet(tmp_path / "b.parquet")
    (out,) = annotated(tmp_path / "a.parquet", tmp_path / "a", form="fits")
    assert astropy_fits.getheader(out, 1)["TELESCOP"] == "VISTA"
    assert Table.read(out)["sky"].frame.name == "fk5"
    written = annotated(tmp_path / "b.parquet", tmp_path / "b", form="fits")
    assert written.warnings == (
        "pandas' note that __index_level_0__ are the index of the frame is left out",
        "the order of the categories of c is left out",
        "the metadata 'long', of 300 characters, are left out",
    )
    comments = list(astropy_fits.getheader(written[0], 1)["COMMENT"])
    assert comments == ["survey = VHS", 'bands = ["J", "Ks"]']


def test_slim_fits_does_not_speak_of_columns_that_it_has_not(tmp_path: Path) -> None:
    written = annotated(with_header(), tmp_path, form="fits", mode="slim", keep=("row",))
    assert written.warnings == (
        "the metadata by which astropy restores times, coordinates, magnitudes and similar columns is left out",
    )
    back = Table.read(written[0])
    assert back.colnames == ["row", "blr_p", "blr_class"]
    assert (back.meta["TELESCOP"], back.meta["seeing"]) == ("VISTA", 0.8)


WRITERS = {
    "fits": lambda table, path: table.write(path, format="fits"),
    "ecsv": lambda table, path: table.write(path, format="ascii.ecsv"),
    "parquet": lambda table, path: table.write(path, format="parquet"),
    "frame.parquet": lambda table, path: table.to_parquet(path),
    "arrow.parquet": pq.write_table,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_others_write_of_annotated_tables_is_known_as_annotated(tmp_path: Path, kind: str) -> None:
    """Their provenance is there, and the next annotation replaces ours; nobody's own columns of such names."""
    table: Any = {"fr": pd.DataFrame, "ar": pa.table}.get(kind[:2], Table)({"row": np.arange(N)})
    once = catalogs.annotate_table(table, NEW, compute, read=["row"], provenance=PROVENANCE)
    path = tmp_path / f"a.{kind}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        WRITERS[kind](once, path)
    cat = catalogs.open(path)
    flag = f"LOW_CONFIDENCE: {PROVENANCE.flags[0][1].strip()}"
    assert cat.metadata["blr.model"] == "m@1"
    assert cat.metadata["blr.flag.0"].strip() == flag
    (again,) = catalogs.annotate(
        cat, tmp_path / "again", NEW, compute, read=["row"], provenance=Provenance({"model": "m@2"})
    )
    found = catalogs.open(again)
    assert found.names == ("row", "blr_p", "blr_class")
    assert found.metadata["blr.model"] == "m@2"
    (other,) = catalogs.annotate(
        cat, tmp_path / "other", MARK, mark, read=["row"], provenance=Provenance({"model": "o@1"})
    )
    found = catalogs.open(other)
    assert (found.metadata["blr.model"], found.metadata["blr.previous.model"]) == ("o@1", "m@1")


@pytest.mark.parametrize(
    "names", [[0, 1], pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]), pd.date_range("2026", periods=2)]
)
def test_pandas_reads_copies_of_frames_whose_names_are_no_text(tmp_path: Path, names: Any) -> None:
    """Also where it wrote the file itself, which it could read no more once there were names of another kind."""
    frame = pd.DataFrame([[1, 2], [3, 4]], columns=names, index=[7, 8])
    frame.to_parquet(tmp_path / "a.parquet")
    cat = parquet.open(tmp_path / "a.parquet")
    (out,) = catalogs.annotate(cat, tmp_path / "out", MARK, mark, read=cat.names[:1])
    back = pd.read_parquet(out)
    assert list(back.columns) == [*cat.names[:2], "mark"]
    assert back.index.tolist() == [7, 8]
    assert back.iloc[:, :2].to_numpy().tolist() == [[1, 2], [3, 4]]


def test_what_a_table_says_and_no_file_holds_is_told(tmp_path: Path) -> None:
    table = Table({"row": np.arange(N)}, meta={"lock": object(), "ok": 1})
    table["row"].meta = {"of": compute, "ucd": "meta.id"}
    table.add_index("row")
    cat = catalogs.open(table)
    assert cat.left_behind == annotated(table, tmp_path).warnings
    assert cat.left_behind == (
        "the index of row is left out: `Table.add_index` makes it again",
        "the table's metadata 'lock', of type object, are left out, since YAML cannot hold them",
        "'row': its metadata 'of', of type function, are left out, since YAML cannot hold them",
    )
    assert cat.column("row").ucd == "meta.id"
    assert table.meta["lock"] is not None
    assert table["row"].meta["of"] is compute, "the table itself stays as it is"
    frame = pd.DataFrame({"row": [1.0]})
    frame.attrs = {"when": Time("2026-01-01"), 3: "three", "pair": (1, 2), "ok": {"a": None}}
    cat = catalogs.open(frame)
    assert [w.partition(",")[0] for w in cat.left_behind] == [
        "the attribute 'when'",
        "the attribute 3",
        "the attribute 'pair'",
    ]
    assert json.loads(cat.metadata["pandas"])["attributes"] == {"ok": {"a": None}}
    assert frame.attrs["pair"] == (1, 2)


@pytest.mark.parametrize(
    ("values", "datatype", "expected"),
    [
        ([1, None, 2**60 + 1], pa.int64(), [1, None, 2**60 + 1]),
        ([{"a": 1}, None, {"a": 2}], pa.struct([("a", pa.int64())]), [{"a": 1}, None, {"a": 2}]),
        (["a", b"b", None], pa.string(), ["a", "b", None]),
        ([[1, 2], np.array([3]), None], pa.list_(pa.int64()), [[1, 2], [3], None]),
    ],
)
def test_objects_of_one_kind(values: list[Any], datatype: pa.DataType, expected: list[Any]) -> None:
    """Numbers had become lists of one, structures a recursion without end."""
    cells = np.empty(3, object)
    cells[:] = values
    cat = catalogs.open(Table({"c": Column(cells)}))
    found = pa.Table.from_batches(cat.batches(["c"]))["c"]
    assert found.to_pylist() == expected
    assert pa.types.is_nested(found.type) == pa.types.is_nested(datatype)
    masked = np.ma.MaskedArray(cells, [True, False, False])
    cat = catalogs.open(Table({"c": MaskedColumn(masked)}))
    assert pa.Table.from_batches(cat.batches(["c"]))["c"].to_pylist()[0] is None


@pytest.mark.parametrize("values", [[1, "a", None], [object()] * 3, [{"a": 1}, "x", 2]])
def test_objects_of_several_kinds_are_refused_with_their_name(values: list[Any]) -> None:
    cells = np.empty(3, object)
    cells[:] = values
    table = QTable({"row": [1, 2, 3], "odd": Column(cells)})
    with pytest.raises(FormatError, match=r"'odd', of object, has no single type .* remove the column"):
        catalogs.open(table)
    new = catalogs.annotate_table(table, MARK, mark, read=["row"])
    assert new["odd"].tolist() == values, "what is not read may be anything"


def test_durations_and_extensions_in_fits_are_told(tmp_path: Path) -> None:
    """Numbers with their unit; they were texts of numbers without one, called times."""
    waits = pd.to_timedelta([90, None], unit="s").as_unit("ms")
    months = pd.period_range("2026", periods=2, freq="M")
    frame = pd.DataFrame({"row": [0.0, 1.0], "wait": waits, "month": months})
    written = annotated(frame, tmp_path, form="fits")
    assert written.warnings == (
        "'wait': durations are written as whole numbers, in ms",
        "'month': pandas.period is written as Arrow stores it, int64",
    )
    found = catalogs.open(written[0])
    assert found.column("wait").unit == "ms"
    assert pa.Table.from_batches(found.batches(["wait"]))["wait"].to_pylist() == [90_000, None]


def test_a_table_read_from_fits_is_as_the_file(tmp_path: Path) -> None:
    """Astropy masks empty texts of FITS, which are empty texts in the file; what is no number is null in both."""
    table = Table(
        {
            "row": np.arange(3.0),
            "id": MaskedColumn([2**60 + 1, 5, 6], mask=[0, 1, 0], fill_value=-99),
            "kind": ["E", "", "Sc"],
            "mag": [20.5, np.nan, 21.0],
        }
    )
    table.write(tmp_path / "a.fits")
    memory, file = catalogs.open(Table.read(tmp_path / "a.fits")), catalogs.open(tmp_path / "a.fits")
    here, there = (pa.Table.from_batches(c.batches(c.names)).to_pydict() for c in (memory, file))
    assert np.isnan(there["mag"].pop(1))
    assert here["mag"].pop(1) is None
    assert here == there
    assert here["kind"] == ["E", "", "Sc"]
    written = annotated(Table.read(tmp_path / "a.fits"), tmp_path / "out")
    assert written.warnings == ()
    assert Table.read(written[0])["kind"].tolist() == ["E", "", "Sc"]


def test_names_of_an_index_are_changed_in_the_file_only() -> None:
    frame = pd.DataFrame({"row": [1, 2]}, index=pd.Index([5, 6], name=0))
    assert catalogs.open(frame).names == ("row", "0")
    assert frame.index.name == 0


def test_a_frame_that_parquet_cannot_hold_is_refused_and_annotated() -> None:
    """Arrow takes no sparse columns; the writer of Parquet takes no categories of intervals in an index."""
    sparse = pd.DataFrame({"row": [0, 1], "c": pd.arrays.SparseArray([0, 1])})
    intervals = pd.CategoricalIndex(pd.cut([1.0, 2.0], [0, 1, 2]), name="bin")
    for frame in (sparse, pd.DataFrame({"row": [0, 1]}, index=intervals)):
        with pytest.raises(FormatError, match="got a DataFrame that Arrow cannot convert"):
            catalogs.open(frame)
        assert catalogs.annotate_table(frame, MARK, mark, read=["row"])["mark"].tolist() == [0, 0]
