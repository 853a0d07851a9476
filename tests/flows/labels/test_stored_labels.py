"""Labels of tables in a file: the join is that of the whole table in memory, by identifier and by position."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import catalogs
from catalogs.files import StorageError
from catalogs.hats import write_hats
from catalogs.profile.split import healpix_pixels
from catalogs.sky.positions import match_positions
from flows.labels import source as stored_labels
from flows.labels.reader import plain_number
from flows.labels.source import LabelNames, LabelPlaces, LabelSource, place_conflicts
from flows.specification.toml_file import parse_specification
from tests.flows.verbs import train

NAMES = st.sampled_from(["", "7", "07", "007", "0", "00", "NGC 1", "ngc 1", "Ö", "8", "08"])
PAIRS = st.lists(st.tuples(NAMES, st.sampled_from(["", "early", "late", "?"])), max_size=30)


@example(pairs=[("8", "early"), ("8", "late"), ("08", "?")], cut=0)
@example(pairs=[("8", "early"), ("8", "late"), ("08", "?"), ("008", "early")], cut=2)
@given(pairs=PAIRS, cut=st.integers(0, 30))
def test_names_are_those_of_the_whole_table(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("names") / "it's a file?.sqlite"
    stored = LabelNames.of([pairs[:cut], pairs[cut:]], path)
    asked = ["7", "07", "0", "000", "NGC 1", "Ö", "Ö", "none", "", "0008"]
    said = [(name, text) for name, text in pairs if name and text]
    labels, differing = agreed(said, {})
    assert stored.first == next(iter(labels), "")
    for names, known in (
        (stored, (labels, differing)),
        (stored.numbered(), agreed([(plain_number(n), t) for n, t in labels.items()], differing)),
    ):
        labels, differing = known
        keys = asked if names is stored else [*map(plain_number, asked)]
        assert names.texts(asked).tolist() == [labels.get(key, "") for key in keys]
        assert [*names.content()] == sorted(labels.items())
        assert (len(names), names.conflicts.n) == (len(labels), len(differing))
        assert {n: set(t) for n, t in names.conflicts.shown.items()} == {
            n: set(t) for n, t in sorted(differing.items())
        }


def agreed(
    said: list[tuple[str, str]], before: dict[str, set[str]]
) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the labels of names, and the names whose labels differ, with them."""
    texts: dict[str, set[str]] = {}
    for name, text in said:
        texts.setdefault(name, set()).add(text)
    differing = before | {n: before.get(n, set()) | some for n, some in texts.items() if len(some) > 1}
    return {n: min(some) for n, some in texts.items() if n not in differing}, differing


def places(n: int, rng: np.random.Generator, radius: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return n places: some near the poles and the meridian, some in clumps of the radius; and labels."""
    ra = np.where(rng.random(n) < 0.2, rng.uniform(-0.01, 0.01, n) % 360, rng.uniform(0, 360, n))
    dec = np.degrees(np.arcsin(rng.uniform(-1, 1, n)))
    dec[: n // 10] = 90 - rng.uniform(0, 3 * radius / 3600, n // 10)
    dec[n // 10 : n // 5] = -90 + rng.uniform(0, 3 * radius / 3600, n // 10)
    clumped = rng.random(n) < 0.5
    of = rng.integers(0, n, n)
    ra = np.where(clumped, (ra[of] + rng.normal(0, radius / 3600, n)) % 360, ra)
    dec = np.where(clumped, np.clip(dec[of] + rng.normal(0, radius / 3600, n), -90, 90), dec)
    return ra, dec, rng.choice(np.array(["", "early", "late"], dtype=object), n, p=[0.1, 0.6, 0.3])


@pytest.mark.parametrize("radius", [0.5, 20.0, 3600.0])
@pytest.mark.parametrize("at_once", [30, 1_000_000])
def test_places_are_those_of_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, radius: float, at_once: int
) -> None:
    monkeypatch.setattr(stored_labels, "MOST_AT_ONCE", at_once)
    rng, n_rows = np.random.default_rng(int(radius)), 600 * at_once  # of the second, pixels are finest
    ra, dec, texts = places(600, rng, radius)
    ra[5] = dec[5] = np.nan
    known = np.isfinite(ra) & (texts != "")
    differing = place_conflicts(ra[known], dec[known], texts[known], radius)
    at = np.delete(np.flatnonzero(known), list(differing))
    batches = [(ra[i : i + 100], dec[i : i + 100], texts[i : i + 100]) for i in range(0, 600, 100)]
    stored = LabelPlaces.of(batches, tmp_path / "places.sqlite", radius, n_rows=n_rows)
    assert dict(stored.content()) == {f"{float(ra[i])!r} {float(dec[i])!r}": texts[i] for i in at.tolist()}
    assert len(stored) == len(at) > 100
    assert stored.conflicts.n == len(differing) > 5
    here = rng.permutation(600)
    at_ra = (ra[here] + rng.normal(0, radius / 7200, 600)) % 360
    at_dec = np.clip(dec[here] + rng.normal(0, radius / 7200, 600), -90, 90)
    found, number = stored.nearest(at_ra, at_dec)
    index = match_positions(at_ra, at_dec, ra[at], dec[at], radius=radius)
    assert found.tolist() == np.where(index >= 0, texts[at][index], "").tolist()
    assert ((number >= 0) == (index >= 0)).all()
    assert len(np.unique(number)) == len(np.unique(index))
    assert number.max() < stored.n_numbers
    assert (index >= 0).sum() > 100


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        StorageError, match=r"unable to open database file.*choose a model store on another disk"
    ):
        LabelNames.of([], tmp_path / "nowhere" / "n.sqlite")

    opened = sqlite3.connect

    def limited(*given: Any, **options: Any) -> sqlite3.Connection:
        con = opened(*given, **options)
        con.execute("PRAGMA max_page_count = 20")
        return con

    monkeypatch.setattr(sqlite3, "connect", limited)
    with pytest.raises(StorageError, match="database or disk is full"):
        LabelNames.of(many_names(20_000), tmp_path / "n.sqlite")


def many_names(n: int) -> Iterator[list[tuple[str, str]]]:
    for start in range(0, n, 4_000):
        yield [
            (f"G{i * 7919 % 1_000_003:07d}", "early" if i % 3 else "late")
            for i in range(start, start + 4_000)
        ]


@pytest.mark.parametrize("by", ["identifier", "position"])
def test_a_training_with_a_table(make: SimpleNamespace, tmp_path: Path, by: str) -> None:
    """The labels are joined from a file, which goes after the training."""
    rng = np.random.default_rng(2)
    columns = make.survey(900)
    columns |= {"ra": rng.uniform(0, 360, 900), "dec": rng.uniform(-80, 80, 900)}
    labels = {
        "name": columns["name"],
        "RA": columns["ra"],
        "DE": columns["dec"],
        "hubble": columns.pop("hubble"),
    }
    pq.write_table(pa.table(labels), tmp_path / "labels.parquet")
    make.parquet(tmp_path / "survey.parquet", columns)
    text, _, _ = make.specification.partition("[[candidate]]\nfeatures")
    key = 'id = "name"' if by == "identifier" else 'ra = "RA"\ndec = "DE"'
    text = text.replace('id = "name"', 'id = "name"\nra = "ra"\ndec = "dec"')
    table = f'[label.table]\npath = "labels.parquet"\n{key}\n[select]\nposterior = "laplace"\n[features]'
    spec = tmp_path / "spec.toml"
    spec.write_text(text.replace("[features]", table))
    stored = train(spec, tmp_path / "stored")
    assert stored.training.labels.joined > 500
    assert not list((tmp_path / "stored").rglob("*.sqlite"))


HATS = """
name = "hats"
[catalog]
paths = ["survey"]
id = "id"
ra = "ra"
dec = "dec"
[label]
column = "kind"
table = { path = "labels", ra = "ra", dec = "dec" }
[features]
x = "x"
"""


def test_both_are_hats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at the edge of a pixel has its label from the neighbouring one."""
    rng = np.random.default_rng(7)
    n = 2000
    ra, dec = rng.uniform(40, 50, n), rng.uniform(-5, 5, n)
    ra[: n // 2] = 45 + np.abs(dec[: n // 2]) * np.sign(
        ra[: n // 2] - 45
    )  # near the edges of four base pixels
    late = rng.random(n) < 0.5
    rows = {"id": np.arange(n), "ra": ra, "dec": dec, "x": rng.normal(late)}
    labels = {
        "ra": ra + rng.choice([-0.7, 0.7], n) / 3600,
        "dec": dec,
        "kind": np.where(late, "late", "early"),
    }
    for name, table in (("survey", rows), ("labels", labels)):
        pixels = healpix_pixels(table["ra"], table["dec"], 10)
        write_hats(tmp_path / name, pa.table(table), pixels, order=10, extra={})
        assert len(catalogs.open(tmp_path / name).partitions) == 4
    specification = parse_specification(HATS, source="a test", base_folder=str(tmp_path))
    monkeypatch.setattr(stored_labels, "MOST_AT_ONCE", 50)
    source = LabelSource.of(specification)
    wrong = 0
    for batch in catalogs.open(tmp_path / "survey").batches(["id", "ra", "dec"]):
        values = {name: batch[name].to_numpy() for name in ("id", "ra", "dec")}
        found = source.texts(values)
        wrong += np.count_nonzero((found != labels["kind"][values["id"]]) & (found != ""))
    assert source.n_joined > 0.95 * n
    assert wrong < 0.01 * n, "of rows that are nearer to another one's label"
