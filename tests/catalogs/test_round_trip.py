"""The round-trip page says what is found, and nothing changes silently."""

from pathlib import Path

import pytest

import catalogs
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
    run,
    without_comments,
)
from tests.catalogs.round_trip import PAGE, SILENT, Trip, page, trips
from tests.catalogs.round_trip_samples import LABELS, WRITERS


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Trip]:
    return trips(tmp_path_factory.mktemp("trips"))


@pytest.fixture(scope="module")
def in_memory() -> tuple[Verdicts, Verdicts]:
    return memory_trips()


def test_nothing_changes_silently(found: list[Trip], in_memory: tuple[Verdicts, Verdicts]) -> None:
    silent = [(t.source, t.target, w) for t in found for w, word in t.verdicts.items() if word == SILENT]
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


@pytest.mark.skipif(STILTS is None, reason=NO_STILTS)
def test_votlint_finds_no_more_in_our_votable_than_in_the_original(found: list[Trip]) -> None:
    ((ours,),) = (trip.copies for trip in found if trip.source == trip.target == "votable")
    paths = ours.parents[1] / ours.name, ours
    before, after = (run(STILTS, "votlint", str(p)).stdout.splitlines() for p in paths)
    assert [line for line in after if line.startswith("ERROR")] == []
    assert len(after) <= len(before), after


@pytest.mark.skipif(FITSVERIFY is None, reason=NO_FITSVERIFY)
def test_fitsverify_finds_nothing_in_any_copy(found: list[Trip]) -> None:
    copies = [copy for trip in found for copy in trip.copies if copy.suffix == ".fits"]
    assert len(copies) >= len(WRITERS)
    assert problems_by_fitsverify(copies) == []
