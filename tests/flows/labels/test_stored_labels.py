"""Labels of tables: the join by identifier and by position."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.coordinates import SkyCoord
from hypothesis import example, given
from hypothesis import strategies as st

import catalogs
from catalogs.hats import write_hats
from catalogs.profile.split import healpix_pixels
from flows.labels.reader import plain_number
from flows.labels.source import LabelNames, LabelPlaces, LabelSource, place_conflicts
from flows.specification.toml_file import parse_specification
from tests.flows.verbs import train

NAMES = st.sampled_from(["", "7", "07", "007", "0", "00", "NGC 1", "ngc 1", "Ö", "8", "08"])
PAIRS = st.lists(st.tuples(NAMES, st.sampled_from(["", "early", "late", "?"])), max_size=30)


@example(pairs=[("8", "early"), ("8", "late"), ("08", "?")])
@example(pairs=[("8", "early"), ("8", "late"), ("08", "?"), ("008", "early")])
@given(pairs=PAIRS)
def test_names_have_the_label_that_all_rows_give_them(pairs: list[tuple[str, str]]) -> None:
    said = [(name, text) for name, text in pairs if name and text]
    kinds = ["early", "late", "?"]
    codes = np.array([kinds.index(text) for _, text in said], dtype=np.int32)
    stored = LabelNames.of(pa.array([name for name, _ in said], pa.large_string()), codes, kinds)
    asked = ["7", "07", "0", "000", "NGC 1", "Ö", "Ö", "none", "", "0008"]
    assert stored.first == next(iter(agreed(said)[0]), "")
    for names, known in (
        (stored, agreed(said)),
        (stored.numbered(), agreed([(plain_number(n), t) for n, t in said])),
    ):
        labels, differing = known
        keys = asked if names is stored else [*map(plain_number, asked)]
        assert names.texts(keys).tolist() == [labels.get(key, "") for key in keys]
        assert [*names.content()] == sorted(labels.items())
        assert (len(names), names.conflicts[0]) == (len(labels), len(differing))
        assert {n: set(t) for n, t in names.conflicts[1].items()} == {
            n: set(t) for n, t in sorted(differing.items())
        }


def agreed(said: list[tuple[str, str]]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the labels of names, and the names whose labels differ, with them."""
    texts: dict[str, set[str]] = {}
    for name, text in said:
        texts.setdefault(name, set()).add(text)
    differing = {n: some for n, some in texts.items() if len(some) > 1}
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
def test_places_have_the_label_of_the_nearest_one(radius: float) -> None:
    rng = np.random.default_rng(int(radius))
    ra, dec, texts = places(600, rng, radius)
    ra[5] = dec[5] = np.nan
    known = np.isfinite(ra) & (texts != "")
    differing = place_conflicts(ra[known], dec[known], texts[known], radius)
    at = np.delete(np.flatnonzero(known), list(differing))
    stored = LabelPlaces.of(ra, dec, texts, radius)
    assert dict(stored.content()) == {f"{float(ra[i])!r} {float(dec[i])!r}": texts[i] for i in at.tolist()}
    assert len(stored) == len(at) > 100
    assert stored.conflicts[0] == len(differing) > 5
    here = rng.permutation(600)
    at_ra = (ra[here] + rng.normal(0, radius / 7200, 600)) % 360
    at_dec = np.clip(dec[here] + rng.normal(0, radius / 7200, 600), -90, 90)
    found, number = stored.nearest(at_ra, at_dec)
    there, here = (SkyCoord(*place, unit="deg") for place in ((ra[at], dec[at]), (at_ra, at_dec)))
    nearest, separation, _ = here[np.isfinite(at_ra)].match_to_catalog_sky(there)
    index = np.full(600, -1)
    index[np.isfinite(at_ra)] = np.where(separation.arcsec <= radius, nearest, -1)
    assert found.tolist() == np.where(index >= 0, texts[at][index], "").tolist()
    assert ((number >= 0) == (index >= 0)).all()
    assert len(np.unique(number)) == len(np.unique(index))
    assert number.max() < len(stored)
    assert (index >= 0).sum() > 100


@pytest.mark.parametrize("by", ["identifier", "position"])
def test_a_training_with_a_table(make: SimpleNamespace, tmp_path: Path, by: str) -> None:
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


def test_both_are_hats(tmp_path: Path) -> None:
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
    source = LabelSource.of(specification)
    wrong = 0
    for batch in catalogs.open(tmp_path / "survey").batches(["id", "ra", "dec"]):
        values = {name: batch[name].to_numpy() for name in ("id", "ra", "dec")}
        found = source.texts(values)
        wrong += np.count_nonzero((found != labels["kind"][values["id"]]) & (found != ""))
    assert source.n_joined > 0.95 * n
    assert wrong < 0.01 * n, "of rows that are nearer to another one's label"
