"""Labels of tables, reviews and votes: joined by identifier and position, weighed, and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy import units
from astropy.coordinates import SkyCoord
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.metrics import log_loss

import catalogs
from catalogs.catalog.catalog import ColumnMetadata
from catalogs.errors import CatalogError
from catalogs.expressions.expression import parse
from catalogs.sky.photometry import ZERO_POINT, flux_unit, unit_factor
from flows.errors import SpecificationError, TrainingError
from flows.features.reader import FeatureReader, converted, training_reader
from flows.labels.reader import plain_number, read_reviews
from flows.labels.source import LabelNames, LabelPlaces, place_conflicts
from flows.specification.catalog import Label
from flows.specification.toml_file import parse_specification
from flows.training._gather import gather, with_learned_photometry
from flows.training.steps import evaluate
from tests.flows.candidates import judged
from tests.flows.conftest import write_parquet as write
from tests.flows.verbs import classify, train

NAMES = st.sampled_from(["", "7", "07", "007", "0", "00", "NGC 1", "ngc 1", "Ö", "8", "08"])
PAIRS = st.lists(st.tuples(NAMES, st.sampled_from(["", "early", "late", "?"])), max_size=30)


@example(pairs=[("8", "early"), ("8", "late"), ("08", "?")])
@example(pairs=[("8", "early"), ("8", "late"), ("08", "?"), ("008", "early")])
@given(pairs=PAIRS)
def test_names_have_the_label_that_all_rows_give_them(pairs: list[tuple[str, str]]) -> None:
    said = [(name, text) for name, text in pairs if name and text]
    kinds = ["early", "late", "?"]
    codes = np.array([kinds.index(text) for _, text in said], dtype=np.int32)
    asked = ["7", "07", "0", "000", "NGC 1", "Ö", "Ö", "none", "", "0008"]
    for form in (str, plain_number):
        rows = [(form(name), text) for name, text in said]
        names = LabelNames.of(pa.array([name for name, _ in rows], pa.large_string()), codes, kinds)
        labels, differing = agreed(rows)
        assert names.first == next(iter(labels), "")
        assert names.texts([*map(form, asked)]).tolist() == [labels.get(form(name), "") for name in asked]
        assert [*names.content()] == sorted(labels.items())
        assert (len(names), names.conflicts[0]) == (len(labels), len(differing))
        assert {n: set(t) for n, t in names.conflicts[1].items()} == differing


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


CLASSES = {"early": ["E", "S0"], "late": ["Sb", "Sc"]}


def written(folder: Path, **tables: str) -> list[Path]:
    paths = []
    for name, text in tables.items():
        paths.append(folder / f"{name}.csv")
        paths[-1].write_text(text)
    return paths


def test_answers_that_differ_are_votes_and_spellings_of_a_class_agree(tmp_path: Path) -> None:
    paths = written(
        tmp_path,
        a="name,label\nA,early\nB,E\nC,late\nD,?\nE,early\nF,?\n",
        b="name,label\nA,S0\nB,Sc\nC,\nD,late\nE,late\nE,Sb\nF,?\n",
    )
    labels, votes, weights = read_reviews(paths, "name", Label(column="hubble", classes=CLASSES))
    assert labels == {"A": "E", "B": "E", "C": "Sb", "D": "Sb", "E": "Sb", "F": "?"}
    assert votes == {
        "B": {"E": 0.5, "Sc": 0.5},
        "E": {"Sb": pytest.approx(2 / 3), "E": pytest.approx(1 / 3)},
    }
    assert (tuple(votes["B"]), tuple(votes["E"])) == (("E", "Sc"), ("Sb", "E")), "the most frequent first"
    assert weights == {}


def test_weights_are_of_drawn_objects_and_have_mean_one_in_each_list(tmp_path: Path) -> None:
    paths = written(
        tmp_path,
        a="name,how,weight,label\nA,drawn,10,E\nB,drawn,30,E\nC,drawn,999,\nD,top,1,Sc\n",
        b="name,weight,label\nE,2,E\nA,6,E\n",
    )
    label = Label(column="hubble", classes=CLASSES, extra=("a.csv",), review_weights=True)
    assert read_reviews(paths, "name", label)[2] == {"A": 1.0, "B": 1.5, "E": 0.5}
    written(tmp_path, a="name,how,weight,label\nA,drawn,0,E\n")
    said = r"not positive numbers, the first for 'A',.*review_weights = false"
    with pytest.raises(TrainingError, match=said):
        read_reviews(paths, "name", label)
    with pytest.raises(ValueError, match="'review_weights' without 'extra'"):
        Label(column="hubble", review_weights=True)
    with pytest.raises(SpecificationError, match="without the column 'objid'"):
        read_reviews(paths, "objid", label)


def test_an_object_in_dispute_trains_as_the_shares_of_its_answers(folder: Path) -> None:
    """Once for each class, its weights summing to one: on the same side of the split, and no conflict of rows."""
    written(folder, a="name,label\nG00000,early\nG00001,early\nG00002,Sb\n", b="name,label\nG00000,late\n")
    text = (folder / "spec.toml").read_text().replace("[label]\n", '[label]\nextra = ["a.csv", "b.csv"]\n')

    def rows(text: str) -> Any:
        specification = parse_specification(text, source="here", base_folder=str(folder))
        return gather(specification, [catalogs.open(folder / "survey.parquet")])

    found = rows(text)
    mine = np.flatnonzero(found.rows.identifier == b"G00000")
    assert len(mine) == 2
    assert found.rows.weight[mine].tolist() == [0.5, 0.5]
    assert [found.classes[k] for k in found.rows.target[mine]] == ["early", "late"]
    assert len(set(found.rows.held_out[mine])) == len(set(found.rows.group[mine])) == 1
    assert found.sample.labels.repeated == 0
    others = np.delete(found.rows.weight, mine)
    assert (others == 1).all()
    told = found.sample.labels
    assert (told.disputed, told.weighted, told.weighted_as) == (1, 0, None)
    assert told.disputing == {"G00000": ("E", "Sb")}

    drawn = "name,how,weight,label\nG00001,drawn,1,early\nG00002,drawn,3,Sb\n"
    written(folder, a=drawn, b="name,label\nG00000,late\n")
    weighted = rows(text.replace("[label]\n", "[label]\nreview_weights = true\n"))
    index = {name.decode(): i for i, name in enumerate(weighted.rows.identifier.tolist())}
    assert [weighted.rows.weight[index[name]] for name in ("G00000", "G00001", "G00002")] == [1, 0.5, 1.5]
    assert weighted.sample.labels.weighted_as == pytest.approx(4 / 2.5)
    assert weighted.sample.content_hash != rows(text).sample.content_hash


QUESTION = "t01_smooth_or_features"
SMOOTH, FEATURES, STAR = (
    f"{QUESTION}_{answer}" for answer in ("a01_smooth", "a02_features_or_disk", "a03_star_or_artifact")
)


def zoo(n: int = 1200, *, seed: int = 4) -> dict[str, np.ndarray]:
    """Return votes with the names of Galaxy Zoo 2, which scatter three times as much as independent ones."""
    rng = np.random.default_rng(seed)
    colour = rng.normal(size=n)
    p = 1 / (1 + np.exp(-1.5 * colour))
    total = rng.integers(30, 50, n)
    rho = 2 / (total - 1)  # 1 + (total - 1) rho = 3
    smooth = rng.binomial(total, rng.beta(p * (1 / rho - 1) + 1e-9, (1 - p) * (1 / rho - 1) + 1e-9))
    return {
        "dr7objid": np.arange(n) + 587722981736120347,
        "colour": colour,
        f"{QUESTION}_total_count": total,
        f"{SMOOTH}_count": smooth,
        f"{FEATURES}_count": total - smooth,
        f"{SMOOTH}_fraction": smooth / total,
        f"{FEATURES}_fraction": 1 - smooth / total,
    }


VOTES = """
name = "zoo"
[catalog]
paths = ["zoo.parquet"]
id = "dr7objid"
[features]
colour = "colour"
[select]
posterior = "laplace"
[label]
"""
COUNTS = f'votes = {{ smooth = "{SMOOTH}_count", features = "{FEATURES}_count" }}\n'
FRACTIONS = f"""total = "{QUESTION}_total_count"
votes = {{ smooth = "{SMOOTH}_fraction", features = "{FEATURES}_fraction" }}
"""


def test_votes_of_galaxy_zoo_from_file_to_scores(tmp_path: Path) -> None:
    columns = zoo()
    write(tmp_path / "zoo.parquet", columns)
    told = {}
    for name, label in (("counts", COUNTS), ("fractions", FRACTIONS)):
        (tmp_path / f"{name}.toml").write_text(VOTES.replace('"zoo"', f'"{name}"') + label)
        told[name] = train(tmp_path / f"{name}.toml", tmp_path / "models")
    metrics = told["counts"].metrics
    assert metrics.log_loss == pytest.approx(told["fractions"].metrics.log_loss, abs=1e-6)
    assert told["counts"].training.overdispersion == pytest.approx(3, rel=0.15)
    assert metrics.log_loss < metrics.log_loss_baseline
    places = {"out": tmp_path / "out", "store": tmp_path / "models"}
    classify([tmp_path / "zoo.parquet"], model=told["counts"].model, **places)
    table = pq.read_table(tmp_path / "out" / "zoo.parquet").to_pandas()
    share = table[f"{SMOOTH}_fraction"]
    p = table.blr_p_smooth.astype(float)
    # Held-out losses are against the shares of the votes, as those of all rows by hand are, but for chance.
    loss = -(share * np.log(p) + (1 - share) * np.log(1 - p))
    assert metrics.log_loss == pytest.approx(loss.mean(), abs=0.05)
    assert np.corrcoef(p, share)[0, 1] > 0.8


def test_scores_against_votes_are_those_of_weighted_rows() -> None:
    rng = np.random.default_rng(0)
    p, votes = rng.dirichlet(np.ones(3), 50), rng.integers(1, 9, (50, 3)).astype(float)
    shares = votes / votes.sum(axis=1, keepdims=True)
    found = evaluate(judged(p, p, shares), votes.argmax(axis=1))
    rows, truth = np.repeat(np.arange(50), 3), np.tile(np.arange(3), 50)
    assert found.log_loss == pytest.approx(log_loss(truth, p[rows], sample_weight=shares.ravel()))


HEAD = """
name = "made"
[catalog]
paths = ["survey.parquet"]
id = "id"
[label]
column = "kind"
[select]
posterior = "laplace"
[features]
m = "m"
[errors]
m = "m_err"
[photometry.m]
"""


def survey(n: int = 240, *, seed: int = 6) -> dict[str, np.ndarray]:
    """Return fluxes without dust, and the dust as three columns that say the same."""
    rng = np.random.default_rng(seed)
    late = rng.random(n) < 0.5
    flux = 10 ** rng.normal(1.2 + 0.4 * late, 0.3)
    ebv = rng.uniform(0, 0.5, n)
    return {
        "id": np.array([f"G{i}" for i in range(n)]),
        "kind": np.where(late, "late", "early"),
        "flux": flux,
        "sigma": np.full(n, 0.2),
        "mag": 22.5 - 2.5 * np.log10(flux),
        "mag_err": np.full(n, 0.05),
        "ebv": ebv,
        "a_r": 2.285 * ebv,
        "through": 10 ** (-0.4 * 2.285 * ebv),
    }


DUST = {
    "coefficient": '{ e_bv = "ebv", coefficient = 2.285 }',
    "transmission": '{ transmission = "through" }',
    "magnitudes": '{ magnitudes = "a_r" }',
}
BANDS = {
    "asinh": 'flux = "flux"\nerror = "sigma"\nsoftening = 1e-10\n',
    "pogson": 'flux = "flux"\nerror = "sigma"\nscale = "pogson"\n',
    "magnitude": 'magnitude = "mag"\nerror = "mag_err"\n',
}


def evaluated(folder: Path, band: str) -> Any:
    specification = parse_specification(HEAD + band, source="here", base_folder=str(folder))
    catalog = catalogs.open(folder / "survey.parquet")
    found = training_reader(specification).of(catalog).evaluate(next(catalog.batches(catalog.names)))
    assert not found.missing.any()
    return found.X, found.errors


@pytest.mark.parametrize("dust", DUST)
@pytest.mark.parametrize("kind", BANDS)
def test_each_way_to_state_extinction_takes_it_off(tmp_path: Path, kind: str, dust: str) -> None:
    write(tmp_path / "survey.parquet", survey(), flux="nanomaggy")
    clean = evaluated(tmp_path, BANDS[kind])
    already = evaluated(tmp_path, f"{BANDS[kind]}extinction = {DUST[dust]}\ndereddened = true\n")
    reddened = survey()
    reddened["flux"] *= reddened["through"]
    reddened["sigma"] *= reddened["through"]
    reddened["mag"] -= 2.5 * np.log10(reddened["through"])
    write(tmp_path / "survey.parquet", reddened, flux="nanomaggy")
    freed = evaluated(tmp_path, f"{BANDS[kind]}extinction = {DUST[dust]}\n")
    left = evaluated(tmp_path, BANDS[kind])
    for ours, same, other in zip(clean, already, freed, strict=True):
        assert np.array_equal(ours, same)
        np.testing.assert_allclose(other, ours, rtol=1e-9)
    assert np.abs(left[0] - clean[0]).max() > 0.5


def test_one_softening_of_catalogues_in_two_units(tmp_path: Path) -> None:
    """Half of the survey in nJy: the softening and the magnitudes are those of all of it in nanomaggies."""
    columns = survey()
    columns["sigma"] = np.where(np.arange(240) < 120, 0.1, 0.4)
    band = 'flux = "flux"\nerror = "sigma"\n'
    write(tmp_path / "survey.parquet", columns, flux="nanomaggy")
    specification = parse_specification(HEAD + band, source="here", base_folder=str(tmp_path))
    all_of_it = catalogs.open(tmp_path / "survey.parquet")
    whole = with_learned_photometry(specification, [all_of_it])
    parts = []
    for name, rows, unit in (("one", slice(120), "nanomaggy"), ("two", slice(120, 240), "nJy")):
        part = {key: values[rows] for key, values in columns.items()}
        factor = unit_factor("nanomaggy", unit)
        part |= {"flux": part["flux"] * factor, "sigma": part["sigma"] * factor}
        parts.append(catalogs.open(write(tmp_path / f"{name}.parquet", part, flux=unit, sigma=unit)))
    mixed = with_learned_photometry(specification, parts)
    softening = whole.photometry["m"].softening
    assert softening == pytest.approx(0.25e-9)  # between the halves
    assert mixed.photometry["m"].softening == pytest.approx(softening, rel=1e-9)
    np.testing.assert_allclose(gather(mixed, parts).rows.X, gather(whole, [all_of_it]).rows.X, rtol=1e-9)


def test_zero_points_are_those_of_astropy() -> None:
    for unit, zero in ZERO_POINT.items():
        one = 1 * (units.nmgy if unit == "nanomaggy" else units.Unit(unit))
        by_astropy = one.to(units.ABmag, units.zero_point_flux(1 * units.AB))
        assert zero == pytest.approx(by_astropy.value, abs=1e-9), unit


def test_mega_is_not_milli() -> None:
    assert flux_unit("MJy") is None
    there = catalogs.Catalog("made", Path("made"), (catalogs.Column("flux", pa.float64(), unit="MJy"),), ())
    for trained in ("mJy", "Jy"):
        column = ColumnMetadata(unit=trained, ucd=None, description=None, datatype="double")
        here = converted(FeatureReader({"f": parse("flux")}), there, trained={"flux": column}, stated={})
        assert here.scales["flux"] == pytest.approx(units.Unit("MJy").to(trained))


def test_a_plain_flux_is_converted_and_a_magnitude_is_not(tmp_path: Path) -> None:
    text = HEAD.split("[features]", maxsplit=1)[0] + '[features]\nf = "log10(flux)"\n'
    columns = survey()
    write(tmp_path / "survey.parquet", columns, flux="nanomaggy")
    (tmp_path / "spec.toml").write_text(text)
    told = train(tmp_path / "spec.toml", tmp_path / "models")
    for unit in ("nJy", "Jy"):
        there = columns | {"flux": columns["flux"] * unit_factor("nanomaggy", unit)}
        write(tmp_path / f"{unit}.parquet", there, flux=unit)
    paths = [tmp_path / f"{name}.parquet" for name in ("survey", "nJy", "Jy")]
    classify(paths, model=told.model, out=tmp_path / "out", store=tmp_path / "models")
    same, *others = (pq.read_table(tmp_path / "out" / p.name)["blr_p_late"].to_numpy() for p in paths)
    for p in others:
        np.testing.assert_allclose(p, same, atol=1e-6)
    write(tmp_path / "mag.parquet", columns, flux="mag")
    with pytest.raises(CatalogError, match="got column 'flux' in 'mag', expected 'nanomaggy'"):
        classify([tmp_path / "mag.parquet"], model=told.model, out=tmp_path / "o", store=tmp_path / "models")
