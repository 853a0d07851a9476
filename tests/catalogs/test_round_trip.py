"""The round-trip page says what is found, and nothing changes silently."""

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import votable
from astropy.table import Table

import catalogs
from catalogs.catalog.new_columns import NewColumn
from tests.catalogs.memory_trips import Verdicts, memory_page, memory_trips
from tests.catalogs.other_readers import (
    FITSVERIFY,
    NO_FITSVERIFY,
    NO_STILTS,
    STILTS,
    STILTS_FORMATS,
    as_stilts_reads,
    comparable,
    problems_by_fitsverify,
    without_comments,
)
from tests.catalogs.round_trip import PAGE, SILENT, Trip, page, trips
from tests.catalogs.round_trip_samples import LABELS, WRITERS

MARK = (NewColumn("blr_mark", pa.int32()),)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Trip]:
    return trips(tmp_path_factory.mktemp("trips"))


@pytest.fixture(scope="module")
def in_memory() -> tuple[Verdicts, Verdicts]:
    return memory_trips()


def test_nothing_changes_silently(found: list[Trip], in_memory: tuple[Verdicts, Verdicts]) -> None:
    silent = [
        (t.source, t.target, what) for t in found for what, word in t.verdicts.items() if word == SILENT
    ]
    for verdicts in in_memory:
        silent += [(label, to, w) for label, v in verdicts.items() for to, w in v.items() if w == SILENT]
    assert silent == []


def test_a_table_in_memory_keeps_everything(in_memory: tuple[Verdicts, Verdicts]) -> None:
    assert {v["`annotate_table`"] for verdicts in in_memory for v in verdicts.values()} == {"kept"}


def test_copies_in_the_same_format_lose_nothing(found: list[Trip]) -> None:
    """But CSV, which has no place for provenance."""
    words = {word for t in found if t.source == t.target for word in t.verdicts.values()}
    assert words == {"kept", "columns kept; CSV has no place for their provenance"}
    assert not any(t.warnings for t in found if t.source == t.target)


def test_the_page_says_what_is_found(found: list[Trip], in_memory: tuple[Verdicts, Verdicts]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(found) + memory_page(*in_memory), (
        "docs/round-trip.md is not what is found; run `python -m tests.catalogs.round_trip`, and read what changed"
    )


def test_every_kind_of_column_is_in_some_sample(found: list[Trip]) -> None:
    assert {t.source for t in found} == set(WRITERS)
    assert set(LABELS.values()) <= {what for t in found for what in t.verdicts}


@pytest.mark.skipif(STILTS is None, reason=NO_STILTS)
def test_stilts_reads_every_copy(found: list[Trip], tmp_path: Path) -> None:
    """All values, but of arrays of texts, of which it writes no VOTable that can be read.

    Of CSV it rounds integers beyond 64 bits with sign, and takes all text for Latin-1.
    """
    copies, plain = [c for trip in found for c in trip.copies if c.suffix in STILTS_FORMATS], []
    assert {trip.target for trip in found if trip.copies[0] in copies} == {"fits", "votable", "csv"}
    left_out = {copy: {"texts", "u64", "accent"} if copy.suffix == ".csv" else {"texts"} for copy in copies}
    for number, copy in enumerate(copies):
        # To STILTS, a comment above a CSV file's header is the header.
        plain.append(without_comments(copy, tmp_path / f"{number}.csv") if copy.suffix == ".csv" else copy)
    read = as_stilts_reads(plain, tmp_path / "all.vot", list(left_out.values()))
    for copy, cat in zip(copies, read, strict=True):
        ours = catalogs.open(copy)
        assert cat.names == tuple(n for n in ours.names if n not in left_out[copy])
        assert cat.n_rows == ours.n_rows
        for name in cat.names:
            assert comparable(cat, name) == comparable(ours, name), (copy, name)


@pytest.mark.skipif(FITSVERIFY is None, reason=NO_FITSVERIFY)
def test_fitsverify_finds_nothing_in_any_copy(found: list[Trip]) -> None:
    copies = [copy for trip in found for copy in trip.copies if copy.suffix == ".fits"]
    assert len(copies) >= len(WRITERS)
    assert problems_by_fitsverify(copies) == []


@pytest.mark.parametrize("datatype", [np.int16, np.int32, np.float32, np.complex64])
def test_lists_of_any_length_keep_their_bytes_in_votables(tmp_path: Path, datatype: type) -> None:
    """Astropy forgets the type of their elements, and would write as many bytes as NumPy's own types have."""
    cells = np.empty(6, object)
    cells[:] = [np.ma.MaskedArray(np.arange(n % 4, dtype=datatype), mask=False) for n in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = Table({"row": np.arange(6), "list": cells})
        votable.from_table(table).to_xml(str(tmp_path / "t.vot"), tabledata_format="binary2")
    old = catalogs.open(tmp_path / "t.vot")
    before = pa.Table.from_batches(list(old.batches(["row", "list"])))

    def compute(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {"blr_mark": batch.column("row").to_numpy().astype(np.int32)}

    (out,) = catalogs.annotate(old, tmp_path / "out", MARK, compute, read=["row"])
    after = pa.Table.from_batches(list(catalogs.open(out).batches(["row", "list", "blr_mark"])))
    assert after.select(["row", "list"]).to_pydict() == before.to_pydict()
    assert after["blr_mark"].to_pylist() == list(range(6))
