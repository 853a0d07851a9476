"""The census of an output folder: what it holds, what it survives, and which objects it counts by their labels."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from astropy import units
from astropy_healpix import HEALPix

from blr.census.results import Census, ClassCensus, count_changes
from blr.decisions import Flag
from flows.classification._tally import (
    CENSUS_ROWS_FILE,
    ObjectSurvey,
    census_rows,
    read_census_rows,
    rows_of_text,
    rows_text,
    thinned_rows,
    write_census_rows,
)
from flows.classification.census_taking import table_census, take_census
from flows.cli.app import run
from flows.documents import read_document
from flows.errors import OutputFolderError, SpecificationError
from flows.models.store import Store
from flows.reports.catalogue_page import rewrite_census
from flows.request import CensusRequest
from flows.runs.manifest import Manifest, distinct_names
from flows.runs.results import Summary
from tests.flows.conftest import SPECIFICATION
from tests.flows.verbs import classify, reprocess


def summary(out: Path) -> dict[str, object]:
    return json.loads((out / "summary.json").read_text())["census"]


def taken(mine: Path, name: str, text: str, *, of: str = "target") -> Any:
    """Classify a catalogue as a specification with more text says, to a folder of that name."""
    (mine / "spec.toml").write_text(SPECIFICATION + text)
    named = {"specification": mine / "spec.toml"}
    return classify([mine / f"{of}.parquet"], "morphology", mine / "models", mine / name, **named)


@pytest.fixture(scope="module")
def classified(trained: Path, tmp_path_factory: pytest.TempPathFactory, make: SimpleNamespace) -> Path:
    """Return a folder with a catalogue of 3,000 objects, its annotated copies, the models; not to be written to."""
    folder = tmp_path_factory.mktemp("classified")
    shutil.copytree(trained / "models", folder / "models")
    make.parquet(folder / "target.parquet", make.survey(3000, seed=5))
    classify([folder / "target.parquet"], "morphology", folder / "models", folder / "out")
    return folder


@pytest.fixture
def mine(classified: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder, to be written to."""
    return shutil.copytree(classified, tmp_path / "mine")


def test_counts_hold_the_truth_and_name_their_assumption(classified: Path, make: SimpleNamespace) -> None:
    """They take objects with a label of no class for one of the classes, so a reader has to know of them."""
    made = make.survey(3000, seed=5)
    census = summary(classified / "out")
    inside = made["jmag"] > 0  # others have no feature
    early = np.isin(made["hubble"], ["E", "S0"])[inside].sum()
    counts = census["classes"]
    assert census["n_rows"] == inside.sum()
    assert counts["early"]["source"] == "model"
    assert counts["early"]["assumes"] == "shares"
    assert "no test contradicts it" in counts["early"]["reason"]
    # A tenth of the survey's objects has no type and lies between: a count holds them as one of the two.
    assert counts["early"]["low"] < early + 0.1 * 3000
    assert counts["early"]["high"] > early
    assert sum(c["count"] for c in counts.values()) == pytest.approx(census["n_rows"])
    for selected in counts["early"]["selections"]:
        assert selected["purity_low"] <= selected["purity"] <= selected["purity_high"] <= 1
        assert selected["completeness_low"] <= selected["completeness"] <= selected["completeness_high"] <= 1
    page = (classified / "out" / "report.html").read_text()
    assert f">{counts['early']['count']:,.0f}<" in page
    assert "The counts are from the model, assuming" in page
    trained = make.survey()
    others = int(np.sum((trained["hubble"] == "S?") & (trained["type"] == "G")))
    assert census["other_labels"] == {"S?": others}
    words = f"{others} objects of the labelled catalogue have labels of no class, S? ({others}); the counts"
    assert page.count(words) == 1


def test_threads_change_nothing(classified: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for out, threads in ((one, 1), (two, 2)):
        classify([classified / "target.parquet"], "morphology", classified / "models", out, threads=threads)
    assert (one / CENSUS_ROWS_FILE).read_bytes() == (two / CENSUS_ROWS_FILE).read_bytes()
    assert summary(one) == summary(two) == summary(classified / "out")
    planned = take_census(CensusRequest(two), dry_run=True)  # by the store that the manifest names
    assert planned.written is None
    assert planned.census.classes["early"].count == summary(one)["classes"]["early"]["count"]


def test_a_report_written_again_is_the_same_and_an_audits_census_is_not_replaced_unasked(mine: Path) -> None:
    path = mine / "out" / "report.html"
    before = path.read_text()
    assert rewrite_census(mine / "out", read_document(Summary, mine / "out" / "summary.json").census) == path
    again = path.read_text()
    made = r"Made on [^<]* by"
    assert re.sub(made, "", again) == re.sub(made, "", before) != before
    document = json.loads((mine / "out/summary.json").read_text())
    for said in document["census"]["classes"].values():
        said |= {"source": "audit", "assumes": None}
    (mine / "out/summary.json").write_text(json.dumps(document))
    request = CensusRequest(mine / "out", store=mine / "models")
    with pytest.raises(OutputFolderError, match="got a census from an audit"):
        take_census(request)
    assert summary(mine / "out") == document["census"]
    assert take_census(request, dry_run=True).census.classes["early"].source == "model"


def test_a_table_has_the_census_of_its_file(classified: Path, make: SimpleNamespace) -> None:
    frame = pd.DataFrame(make.survey(3000, seed=5))
    found = table_census(frame, model="morphology", store=classified / "models")
    folder = take_census(CensusRequest(classified / "out", store=classified / "models"), dry_run=True)
    for name, counted in found.classes.items():
        assert counted.count == pytest.approx(folder.census.classes[name].count, rel=1e-6)
    binned = table_census(frame, model="morphology", store=classified / "models", by="b_j", edges=[2.5, 3.5])
    assert [one.name for one in binned.bins.bins] == ["b_j < 2.5", "2.5 <= b_j < 3.5", "b_j >= 3.5"]


def test_objects_unlike_the_labelled_ones_cannot_be_counted(mine: Path, make: SimpleNamespace) -> None:
    faint = make.survey(1500, seed=6)
    faint["bmag"] = faint["bmag"] + 1.5
    make.parquet(mine / "faint.parquet", faint)
    done = taken(mine, "faint", "\n[output]\nsets = 0.9\n", of="faint")
    assert "the share may not hold for them" in done.summary.sets.reason
    assert summary(mine / "faint")["contradicted"]
    said = summary(mine / "faint")["classes"]["late"]
    assert said["source"] == "cannot be said"
    assert "the labelled objects do not look like these" in said["reason"]
    request = CensusRequest(mine / "faint", store=mine / "models", assumes="features")
    take_census(request)
    assert "not hold" not in read_document(Summary, mine / "faint" / "summary.json").sets.reason
    assert "not hold" not in Manifest.read(mine / "faint").totals.sets.reason
    assert "not hold" not in (mine / "faint" / "report.html").read_text()
    take_census(replace(request, assumes="shares"))
    assert read_document(Summary, mine / "faint" / "summary.json").sets.reason == done.summary.sets.reason
    assert "not hold" in (mine / "faint" / "report.html").read_text()


def test_a_target_that_differs_mildly_is_counted_under_both_assumptions(
    mine: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make.survey(3000, seed=6)
    made["kmag"] = made["kmag"] - 0.15
    make.parquet(mine / "mild.parquet", made)
    text = '\n[census]\nby = "b_j"\nbins = 2\n\n[flags]\npurity = { early = 0.7 }\n'
    taken(mine, "mild", text, of="mild")
    census = summary(mine / "mild")
    assert census["contradicted"]
    early = census["classes"]["early"]
    assert (early["source"], early["assumes"]) == ("model", "shares or features")
    assert "expected 0.005 or more" in early["reason"]
    request = CensusRequest(mine / "mild", store=mine / "models")
    ends = []
    for assumes in ("shares", "features"):
        alone = take_census(replace(request, assumes=assumes), dry_run=True).census
        one = alone.classes["early"]
        assert (one.assumes, alone.contradicted) == (assumes, assumes == "shares")
        assert ("a test contradicts it" in one.reason) == (assumes == "shares")
        ends.append((one.low, one.high))
    assert min(ends)[0] < early["low"] < max(ends)[0]
    assert min(high for _, high in ends) < early["high"] < max(high for _, high in ends)
    assert [s.get("stated") for s in early["selections"] if s.get("stated")] == ["purity 0.7"]
    assert len(census["bins"]["bins"]) == 2
    assert census["bins"]["bins"][1]["classes"]["early"]["selections"]
    assert "assuming shares or features" in (mine / "mild" / "report.html").read_text()
    arguments = ["census", str(mine / "mild"), "--store", str(mine / "models")]
    assert run(arguments) == 0
    assert "y a test, objects of a class do not look alike" in " ".join(capsys.readouterr().out.split())
    assert summary(mine / "mild") == census  # asked again, tests choose again
    assert run([*arguments, "--assumes", "shares or features"]) == 2  # an answer, not a statement


def test_a_stated_purity_has_a_threshold_and_its_cost(mine: Path) -> None:
    text = "\n[flags]\npurity = { late = 0.8 }\ncompleteness = { late = 0.8 }\n"
    taken(mine, "again", text)
    pure, complete = summary(mine / "again")["classes"]["late"]["selections"][-2:]
    assert pure["stated"] == "purity 0.8"
    assert pure["purity"] >= 0.8
    assert complete["stated"] == "completeness 0.8"
    assert complete["completeness"] >= 0.8
    stored = Store(mine / "models").find("morphology").label
    before = json.loads((mine / "out" / "manifest.json").read_text())["specification_hash"]
    now = json.loads((mine / "again" / "manifest.json").read_text())
    assert (now["specification_hash"], now["model"]) == (before, stored)  # no copy depends on it
    with pytest.raises(SpecificationError, match="got the class 'lat'"):
        taken(mine, "no", text.replace("late =", "lat ="))


def test_a_release_says_how_counts_have_changed(mine: Path, make: SimpleNamespace) -> None:
    (mine / "spec.toml").write_text(make.specification + '\n[target]\npaths = ["release/*.parquet"]\n')
    (mine / "release").mkdir()
    make.parquet(mine / "release" / "a.parquet", make.survey(1200, seed=7))
    options = {"store": mine / "models", "quiet_seconds": 0}
    reprocess(mine / "spec.toml", **options)
    first = summary(mine / "annotated")
    make.parquet(mine / "release" / "b.parquet", make.survey(1200, seed=8))
    result = reprocess(mine / "spec.toml", **options)
    report = json.loads(result.report.read_text())
    now = summary(mine / "annotated")
    change = report["counts"]["early"]
    before, after = (census["classes"]["early"]["count"] for census in (first, now))
    assert change["change"] == pytest.approx(after - before)
    assert change["low"] < change["change"] < change["high"]
    assert result.summary.census is not None
    rows = read_census_rows(mine / "annotated", 6)
    assert len(rows) == 2  # the file left alone has kept its rows
    assert sum(part[:, 0].sum() for part in rows.values()) == pytest.approx(now["n_rows"], rel=1e-3)


def test_a_change_of_counts_adds_the_errors() -> None:
    def census(count: float | None, half: float = 0.0) -> Census:
        low, high = (None, None) if count is None else (count - half, count + half)
        one = ClassCensus(count=count, low=low, high=high, source="model", assumes="shares", reason="")
        return Census(n_rows=100, level=0.95, classes={"a": one})

    change = count_changes(census(10, 3), census(20, 4))["a"]
    assert (change.change, change.low, change.high) == (10, 5, 15)
    assert count_changes(census(None), census(20, 4))["a"].change is None
    assert count_changes(None, census(20, 4)) == {}


def test_bins_are_counted_one_by_one(
    mine: Path, make: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((mine / "out" / "manifest.json").read_text())["specification_hash"]
    taken(mine, "binned", '\n[census]\nby = "b_j"\nbins = 3\n\n[flags]\npurity = { late = 0.75 }\n')
    assert json.loads((mine / "binned/manifest.json").read_text())["specification_hash"] == before
    census = summary(mine / "binned")
    bins = census["bins"]["bins"]
    made = make.survey(3000, seed=5)
    colour = np.where(made["jmag"] > 0, made["bmag"] - made["jmag"], np.nan)
    assert len(bins) == 3  # no object without the colour is classified: the other colour needs it too
    edges = [float(bins[1]["name"].split(" <")[0]), float(bins[2]["name"].split(">= ")[1])]
    early = np.isin(made["hubble"], ["E", "S0"])
    place = np.where(np.isfinite(colour), np.searchsorted(edges, colour, side="right"), -1)
    for i, one in enumerate(bins):
        inside = place == i
        assert one["objects"] == pytest.approx(inside.sum(), rel=0.01)
        assert one["classes"]["early"]["low"] < early[inside].sum() + 0.1 * inside.sum()
        assert one["classes"]["early"]["high"] > early[inside].sum() * 0.9
    total = sum(one["classes"]["early"]["count"] for one in bins)
    assert total == pytest.approx(census["classes"]["early"]["count"], rel=0.05)  # but where shares end at 0
    stated = [s for s in bins[0]["classes"]["late"]["selections"] if s.get("stated")]
    assert [s["stated"] for s in stated] == ["purity 0.75"]
    (whole,) = census["bins"]["selections"]["late"]
    assert whole["thresholds"][bins[0]["name"]] == stated[0]["threshold"]
    assert whole["objects"] <= census["n_rows"]
    assert "Thresholds by b_j, all bins together" in (mine / "binned/report.html").read_text()
    assert "Census by b_j" in (mine / "binned/report.html").read_text()
    request = CensusRequest(mine / "binned", store=mine / "models")
    assert take_census(request, dry_run=True).census.bins is not None  # as it was asked before
    spec = mine / "plain.toml"
    spec.write_text(make.specification + "\n[flags]\npurity = { early = 0.75 }\n")
    other = take_census(replace(request, specification=spec)).census
    assert other.bins is None
    assert other.classes["early"].selections[-1].stated == "purity 0.75"
    kept = json.loads((mine / "binned/manifest.json").read_text())["census_asked"]
    assert kept == {"purity": {"early": 0.75}}
    again = ["census", str(mine / "out"), "--store", str(mine / "models"), "--by", "b_j > 3"]
    assert run([*again, "--dry-run"]) == 0
    assert "not b_j > 3" in capsys.readouterr().out
    assert run([*again[:-1], "bmag"]) == 2
    assert "expected an expression over the model's features (b_j, j_k)" in capsys.readouterr().err


EARLY, LATE = ["E", "S0"], ["Sb", "Sc"]


@pytest.fixture(scope="module")
def both(make: SimpleNamespace) -> dict[str, np.ndarray]:
    """Return the survey that the model was trained on, and 2,000 objects more."""
    first, more = make.survey(), make.survey(2000, seed=5)
    more["name"] = np.array([f"H{i:05d}" for i in range(2000)])
    return {name: np.concatenate([first[name], more[name]]) for name in first}


def counted(columns: dict[str, np.ndarray]) -> dict[str, int]:
    """Return the labels that the model was trained on, of objects that have features."""
    known = (columns["type"] == "G") & (columns["jmag"] > 0) & np.char.startswith(columns["name"], "G")
    return {
        name: int(np.isin(columns["hubble"][known], texts).sum())
        for name, texts in (("early", EARLY), ("late", LATE))
    }


def test_rows_with_a_label_are_counted_by_it(
    trained: Path, tmp_path: Path, make: SimpleNamespace, both: dict[str, np.ndarray]
) -> None:
    make.parquet(tmp_path / "both.parquet", both)
    classify([tmp_path / "both.parquet"], "morphology", trained / "models", tmp_path / "out")
    census = json.loads((tmp_path / "out" / "summary.json").read_text())["census"]
    labels = counted(both)
    for name, count in census["classes"].items():
        assert count["labelled"] == labels[name]
        assert labels[name] <= count["low"] <= count["count"] <= count["high"]
        assert count["source"] == "model"
        assert f"{sum(labels.values()):,} objects have a label and are counted by it" in count["reason"]
    assert sum(c["count"] for c in census["classes"].values()) == pytest.approx(census["n_rows"])
    assert "objects have a label and are counted by it" in (tmp_path / "out" / "report.html").read_text()
    table = table_census(pd.DataFrame(both), model="morphology", store=trained / "models")
    assert {n: c.labelled for n, c in table.classes.items()} == labels


def test_where_all_objects_have_labels_nothing_is_estimated(trained: Path, make: SimpleNamespace) -> None:
    survey = make.survey()
    known = np.isin(survey["hubble"], EARLY + LATE) & (survey["type"] == "G") & (survey["jmag"] > 0)
    labelled = {name: column[known] for name, column in survey.items()}
    found = table_census(pd.DataFrame(labelled), model="morphology", store=trained / "models")
    labels = counted(labelled)
    assert {n: (c.count, c.low, c.high) for n, c in found.classes.items()} == {
        n: pytest.approx((k, k, k)) for n, k in labels.items()
    }
    assert {c.source for c in found.classes.values()} == {"labels"}
    assert {c.assumes for c in found.classes.values()} == {None}
    others = make.survey(400, seed=9)  # G00000 is another galaxy here
    found = table_census(pd.DataFrame(others), model="morphology", store=trained / "models")
    assert {c.labelled for c in found.classes.values()} == {0}


def test_the_weights_of_each_class_add_up_to_its_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    p, X, known = rng.dirichlet(np.ones(3), 5000), rng.normal(size=(5000, 2)), rng.choice([-1, 0, 2], 5000)
    p[::50] = np.nan
    X[7] = 1e308, np.nan  # as a number in another byte order, beyond single precision
    places = [slice(i, i + 700) for i in range(0, 5000, 700)]
    rows = np.concatenate([census_rows(p[at], X[at], 9, known[at]) for at in places])
    truth = {k: int(np.sum((known == k) & ~np.isnan(p[:, 0]))) for k in (-1, 0, 2)}
    write_census_rows(tmp_path, {"a": thinned_rows(rows, 40)})
    stored = read_census_rows(tmp_path, 7)["a"]
    for some in (rows, rows_of_text(rows_text(rows), 7), thinned_rows(rows, 40), stored):
        assert {k: round(float(some[some[:, 1] == k, 0].sum())) for k in truth} == truth
    assert len(stored) == 40
    assert not np.isinf(rows).any()


N, K = 500, 3
RNG = np.random.default_rng(0)
RA, DEC = RNG.uniform(0, 360, N), np.degrees(np.arcsin(RNG.uniform(-1, 1, N)))
P = RNG.dirichlet(np.ones(K), size=N)
P[::50] = np.nan
INFORMATION = np.where(np.isnan(P[:, 0]), np.nan, RNG.random(N))
FLAGS = np.where(RNG.random(N) < 0.4, int(Flag.LOW_CONFIDENCE), int(Flag.MISSING_INPUT)).astype(np.int32)
NAMES = [f"o{i % 400}" for i in range(N)]


def surveyed(size: int, order: int = 1, labelled: Sequence[str] = ()) -> ObjectSurvey:
    survey = ObjectSurvey(("a", "b", "c"), "name", ("ra", "dec", "deg"))
    survey = replace(survey, labelled=distinct_names([*labelled])) if labelled else survey
    for start in [*range(0, N, size)][::order]:
        rows = slice(start, start + size)
        batch = pa.record_batch({"name": NAMES[rows], "ra": RA[rows], "dec": DEC[rows]})
        survey.add(batch, P[rows], INFORMATION[rows], FLAGS[rows])
    return survey


def test_counts_are_those_of_each_pixel() -> None:
    sky = surveyed(N).sky()
    assert sky is not None
    healpix = HEALPix(nside=2 ** sky["order"], order="nested")
    pixel = healpix.lonlat_to_healpix(RA * units.deg, DEC * units.deg)
    assert sum(sky["n"]) == N
    columns = map(sky.get, ("pixels", "n", "flagged", "assigned"))
    for place, n, flagged, assigned in zip(*columns, strict=True):
        own = pixel == place
        assert n == own.sum()
        assert flagged == np.sum(own & (int(Flag.LOW_CONFIDENCE) == FLAGS))
        known = own & np.isfinite(P[:, 0])
        assert assigned == tuple(np.bincount(P[known].argmax(axis=1), minlength=K).tolist())


def test_objects_with_a_label_are_not_worth_a_look() -> None:
    """By the slow way: the first of all that have none, in whatever batches."""
    whole, parts, reversed_parts = surveyed(N), surveyed(37), surveyed(37, order=-1)
    assert whole.sky() == parts.sky() == reversed_parts.sky()
    every = whole.doubtful()
    assert every == parts.doubtful() == reversed_parts.doubtful()
    assert (len(every), every[0]["probabilities"][0] >= every[0]["probabilities"][1]) == (20, True)
    names = [o["id"] for o in every[:15]] + ["o399"]
    found = [[o["id"] for o in surveyed(size, labelled=names).doubtful()] for size in (N, 37)]
    worth = np.flatnonzero((int(Flag.LOW_CONFIDENCE) == FLAGS) & np.isfinite(INFORMATION))
    ordered = [NAMES[i] for i in worth[np.argsort(-INFORMATION[worth])] if NAMES[i] not in names]
    assert found[0] == found[1] == list(dict.fromkeys(ordered))[:20]
    assert surveyed(N, labelled=NAMES).doubtful() == ()
