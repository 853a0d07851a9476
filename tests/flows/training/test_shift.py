"""Training sets unlike their target, end to end: the right correction for each shift, and the record of it in files.

Two surveys.  In one the target has a tenth of late types where half of the labelled are; early and late look the same
in both.  In the other labels are of blue objects and the target is red; equal colours mean equal probabilities, which
no straight line describes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from blr.classifier import Classifier
from catalogs.errors import CatalogError
from flows.classification._class_shares import chosen_shift
from flows.cli.app import run
from flows.errors import SpecificationError, TrainingError, UsageError
from flows.models.description import TargetShift
from flows.models.model import read_model, read_tree
from flows.models.store import Store
from flows.reports.counts import class_count_table
from flows.specification.specification import Shift
from flows.specification.toml_file import parse_specification
from tests.flows.verbs import classify, reprocess, train

SPECIFICATION = """
name = "types"

[catalog]
paths = ["train.parquet"]
id = "name"

[label]
column = "type"
classes = { early = ["early"], late = ["late"] }

[features]
colour = "colour"
size = "size"

[shift]
"""
AGAINST = 'target = "target.parquet"\n'


def write(path: Path, late: np.ndarray, X: np.ndarray) -> None:
    columns = {
        "name": np.array([f"G{i:05d}" for i in range(len(late))]),
        "type": np.where(late, "late", "early"),
        "colour": X[:, 0],
        "size": X[:, 1],
    }
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=300)
        return
    made = [fits.Column("name", "6A", array=columns["name"])]
    made += [fits.Column(name, "D", array=columns[name]) for name in ("colour", "size")]
    fits.BinTableHDU.from_columns(made).writeto(path)


def by_class(n: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    late = rng.random(n) < share
    return late, rng.normal(np.where(late, 1.0, -1.0)[:, None], 1.2, (n, 2))


def by_colour(n: int, centre: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal([centre, 0.0], 1.0, (n, 2))
    logit = 4.0 - 2.5 * (X[:, 0] - 1.5) ** 2 + X[:, 1]
    return rng.random(n) < 1 / (1 + np.exp(-logit)), X


@pytest.fixture(scope="module")
def surveys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both surveys, the truth of their targets beside them; not to be written to."""
    folder, rng = tmp_path_factory.mktemp("surveys"), np.random.default_rng(3)
    made = {"classes": (by_class, 0.5, 0.1), "colours": (by_colour, 0.0, 2.0)}
    for name, (draw, here, there) in made.items():
        (folder / name).mkdir()
        write(folder / name / "train.parquet", *draw(800, here, rng))
        target = draw(1500, there, rng)
        write(folder / name / "target.parquet", *target)
        write(folder / name / "target.fits", *target)
        np.save(folder / name / "late.npy", target[0])
    return folder


Trained = Callable[[str, str], SimpleNamespace]


@pytest.fixture(scope="module")
def trained(surveys: Path) -> Trained:
    """Return what trains on a survey with a table [shift], once each; reports, which take seconds, are not drawn."""
    done: dict[tuple[str, str], SimpleNamespace] = {}

    def train_with(survey: str, shift: str) -> SimpleNamespace:
        if (survey, shift) not in done:
            folder = surveys / survey
            spec = folder / f"spec{len(done)}.toml"
            spec.write_text(SPECIFICATION + shift)
            told = train(spec, folder / f"models{len(done)}")
            done[survey, shift] = SimpleNamespace(
                **vars(told), store=str(folder / f"models{len(done)}"), spec=str(spec)
            )
        return done[survey, shift]

    return train_with


def loss(surveys: Path, survey: str, told: SimpleNamespace, out: Path, **options: object) -> float:
    target = surveys / survey / "target.parquet"
    classify([target], model="types", store=told.store, out=out, **options)
    p = pq.read_table(out / "target.parquet")["blr_p_late"].to_numpy().astype(float)
    happened = np.where(np.load(surveys / survey / "late.npy"), p, 1 - p)
    return float(-np.mean(np.log(np.maximum(happened, 1e-7))))  # float32 may have rounded to 0


def test_other_class_shares_want_their_correction_and_no_weights(
    surveys: Path, trained: Trained, tmp_path: Path
) -> None:
    plain = loss(surveys, "classes", trained("classes", ""), tmp_path / "plain")
    weighted = loss(
        surveys, "classes", trained("classes", AGAINST + "density_weights = true"), tmp_path / "w"
    )
    em = trained("classes", AGAINST + 'class_prior = "em"')
    corrected = loss(surveys, "classes", em, tmp_path / "em")
    assert corrected < plain - 0.05
    assert corrected < weighted - 0.05
    told = em.training.shift
    assert told.class_prior["late"] == pytest.approx(0.1, abs=0.03)
    assert told.log_loss < told.log_loss_uncorrected - 0.03
    assert told.log_loss == pytest.approx(corrected, abs=0.05)


def test_other_features_want_weights_and_no_class_shares(
    surveys: Path, trained: Trained, tmp_path: Path
) -> None:
    unweighted = trained("colours", AGAINST)
    weighted = trained("colours", AGAINST + "density_weights = true")
    assert trained("colours", "").candidates == unweighted.candidates  # the comparison changes no model
    shift = unweighted.training.shift
    assert 0.85 < shift.auc_low < shift.auc < shift.auc_high < 1
    plain = loss(surveys, "colours", unweighted, tmp_path / "plain")
    better = loss(surveys, "colours", weighted, tmp_path / "weighted")
    em = loss(surveys, "colours", unweighted, tmp_path / "em", class_prior="em")
    assert better < plain - 0.1
    assert better < em - 0.1
    said = [t.training.shift.log_loss for t in (weighted, unweighted)]  # of held-out labelled rows
    assert said[0] < said[1] - 0.1


def test_weights_sum_to_their_effective_number_and_are_in_every_output(
    surveys: Path, trained: Trained, tmp_path: Path
) -> None:
    told = trained("colours", AGAINST + "density_weights = true")
    shift = told.training.shift
    assert 10 < shift.n_effective < 0.7 * shift.n_training
    kept = read_model(Path(told.path) / "model.asdf").classifier.members[0].posterior
    judged = Classifier.from_dict(read_tree(Path(told.path) / "judged.asdf")).members[0].posterior
    assert judged.n_effective == pytest.approx(shift.n_effective, rel=1e-9)
    assert judged.n_effective < kept.n_effective < 1.6 * judged.n_effective  # of a fifth more rows
    assert "density_weights = true" in (Path(told.path) / "card.md").read_text()
    assert f"count as {shift.n_effective:,.1f}" in (Path(told.path) / "card.md").read_text()
    loss(surveys, "colours", told, tmp_path)
    metadata = pq.read_schema(tmp_path / "target.parquet").metadata
    assert metadata[b"blr.training_weights"].startswith(b"density ratio against target.parquet (sha256 ")
    assert "training_weights" in json.loads((tmp_path / "summary.json").read_text())["shift"]


def test_the_version_follows_the_target_where_the_model_does(surveys: Path, tmp_path: Path) -> None:
    for file in ("train.parquet", "target.parquet"):
        (tmp_path / file).write_bytes((surveys / "colours" / file).read_bytes())
    versions = {}
    for key, shift in {"seen": AGAINST, "weighted": AGAINST + "density_weights = true"}.items():
        (tmp_path / "spec.toml").write_text(SPECIFICATION + shift)
        versions[key] = train(tmp_path / "spec.toml", tmp_path / "models", dry_run=True).model
    write(tmp_path / "target.parquet", *by_colour(500, 1.0, np.random.default_rng(4)))
    for key, shift in {"seen": AGAINST, "weighted": AGAINST + "density_weights = true"}.items():
        (tmp_path / "spec.toml").write_text(SPECIFICATION + shift)
        now = train(tmp_path / "spec.toml", tmp_path / "models", dry_run=True).model
        assert (now == versions[key]) == (key == "seen")


def test_shares_are_in_every_output(surveys: Path, trained: Trained, tmp_path: Path) -> None:
    told = trained("classes", AGAINST + 'class_prior = "em"')
    used = told.training.shift.class_prior
    target = surveys / "classes" / "target.fits"
    classify([target], model="types", store=told.store, out=tmp_path)
    summary, manifest = (json.loads((tmp_path / f"{f}.json").read_text()) for f in ("summary", "manifest"))
    assert summary["shift"]["class_priors"] == pytest.approx(used)
    assert summary["shift"]["class_priors_source"] == "EM over target.parquet"
    assert manifest["classes"] == pytest.approx(used)
    with fits.open(tmp_path / "target.fits") as hdus:
        history = " ".join(str(hdus[1].header["HISTORY"]).split("\n"))
    assert f"class_priors = early {used['early']:.6g}, late {used['late']:.6g}" in history
    assert "class_priors_training = early 0." in history
    assert "class_priors_source = EM over target.parquet" in history


def test_shares_at_classification_are_those_of_a_training_with_them(
    surveys: Path, trained: Trained, tmp_path: Path
) -> None:
    plain = trained("classes", "")
    given = {"early": 0.9, "late": 0.1}
    by_option = loss(surveys, "classes", plain, tmp_path / "a", class_prior=given)
    spec = Path(trained("classes", "class_prior = { early = 0.9, late = 0.1 }").spec)
    by_spec = loss(surveys, "classes", plain, tmp_path / "b", specification=spec)
    in_training = trained("classes", "class_prior = { early = 0.9, late = 0.1 }")
    by_training = loss(surveys, "classes", in_training, tmp_path / "c")
    assert by_option == by_spec == by_training
    em = loss(surveys, "classes", plain, tmp_path / "d", class_prior="em")
    assert em == pytest.approx(by_option, abs=0.01)
    again = classify(
        [surveys / "classes" / "target.parquet"],
        model="types",
        store=plain.store,
        out=tmp_path / "d",
        class_prior="em",
    )
    assert again.status == "nothing to do"
    assert again.summary.shift.class_priors_source == "EM over target.parquet"
    assert_no_error(again.summary)
    given_shares = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert all(found["error"] > 0 for found in given_shares["classes"].values())


def assert_no_error(summary: Any) -> None:
    """Assert that no count has an error, in the whole and in each file, and that the tables say why."""
    for counts in (summary, *summary.files.values()):
        assert "EM over target.parquet" in counts.no_error
        for estimate in counts.classes.values():
            assert (estimate["error"], estimate["error_objects"], estimate["error_weights"]) == (
                None,
                None,
                None,
            )
    for table in (class_count_table("all", summary), class_count_table("all", summary, summary)):
        assert "without an error: the class shares are an estimate" in table.note.lower()
        place = table.columns.index("±")
        assert {row[place] for row in table.rows} == {"–"}
    assert {row[-1] for row in class_count_table("all", summary, summary).rows} == {"–"}


def test_a_classification_takes_neither_weights_nor_shares_beside_them(
    surveys: Path, trained: Trained, tmp_path: Path
) -> None:
    weighted = trained("colours", AGAINST + "density_weights = true")
    with pytest.raises(UsageError, match="weighted by density ratio, expected one of the two"):
        loss(surveys, "colours", weighted, tmp_path, class_prior="em")
    with pytest.raises(UsageError, match="whose training rows had no such weights"):
        loss(surveys, "colours", trained("colours", ""), tmp_path, specification=Path(weighted.spec))
    em = Path(trained("classes", AGAINST + 'class_prior = "em"').spec)
    with pytest.raises(UsageError, match="shares that stay the same"):  # a release does not estimate anew
        reprocess(em, store=trained("classes", "").store, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        ('class_prior = "bayes"', "shift.class_prior: got 'bayes', expected \"em\", or a table"),
        ("class_prior = { early = 0.5, late = 0.6 }", "got shares that sum to 1.1, expected 1"),
        ("class_prior = { early = 30, late = 70 }", "got 30 as the share of 'early'"),
        ("class_prior = { early = 0.5, spiral = 0.5 }", "expected one share for each class: early, late"),
        (
            "class_prior = 'em'\n[[candidate]]\nlikelihood = 'probit'",
            "candidate.0 of likelihood 'probit'",  # shares move logits alone
        ),
        (
            AGAINST + 'density_weights = true\nclass_prior = "em"',
            "shift: got density_weights and class_prior, expected one of",
        ),
    ],
)
def test_impossible_shares_are_named(shift: str, said: str) -> None:
    with pytest.raises(SpecificationError, match=re.escape(said)):
        parse_specification(SPECIFICATION + shift, source="spec")


def test_votes_have_no_class_shares(trained: Trained) -> None:
    """EM over vote fractions found 0.82 where 0.59 of the votes were."""
    votes = SPECIFICATION.replace(
        'column = "type"\nclasses = { early = ["early"], late = ["late"] }', "votes = { a = 'x', b = 'y' }"
    )
    assert parse_specification(votes + "density_weights = true", source="spec").shift.density_weights
    with pytest.raises(SpecificationError, match="votes change with the class shares"):
        parse_specification(votes + 'class_prior = "em"', source="spec")
    model = Store(Path(trained("classes", "").store)).load("types")
    of_votes = model.specification.model_copy(
        update={"label": parse_specification(votes, source="spec").label}
    )
    with pytest.raises(UsageError, match="which was trained on votes"):
        chosen_shift(replace(model, specification=of_votes), Shift(), asked="em")


@pytest.mark.parametrize("key", ['class_prior = "em"', "density_weights = true"])
def test_a_target_is_needed(surveys: Path, tmp_path: Path, key: str) -> None:
    (tmp_path / "train.parquet").write_bytes((surveys / "colours" / "train.parquet").read_bytes())
    (tmp_path / "spec.toml").write_text(SPECIFICATION + key)
    with pytest.raises(SpecificationError, match=f"shift.{key.split(maxsplit=1)[0]}: got no target"):
        train(tmp_path / "spec.toml", tmp_path / "models")
    (tmp_path / "spec.toml").write_text(SPECIFICATION + key + "\n" + AGAINST)
    with pytest.raises(UsageError, match=r"shift\.target"):
        train(tmp_path / "spec.toml", tmp_path / "models")


@pytest.mark.parametrize("release", ["absent", "damaged", "tiny"])
def test_a_target_that_cannot_be_compared_stops_a_training_only_if_shift_names_it(
    surveys: Path, tmp_path: Path, release: str
) -> None:
    (tmp_path / "train.parquet").write_bytes((surveys / "colours" / "train.parquet").read_bytes())
    (tmp_path / "spec.toml").write_text(SPECIFICATION.replace("[shift]", '[target]\npaths = ["release*"]'))
    if release == "damaged":
        (tmp_path / "release.fits").write_bytes(b"SIMPLE  =")
    if release == "tiny":
        write(tmp_path / "release.parquet", *by_colour(2, 1.0, np.random.default_rng(0)))
    assert train(tmp_path / "spec.toml", tmp_path / "models", limit=200).training.shift == TargetShift()
    (tmp_path / "spec.toml").write_text(SPECIFICATION + 'target = "release*"')
    with pytest.raises((CatalogError, TrainingError, UsageError)):
        train(tmp_path / "spec.toml", tmp_path / "models", limit=200)


def test_the_command(
    surveys: Path, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = trained("classes", "").store
    common = ["classify", str(surveys / "classes" / "target.parquet"), "--model", "types", "--store", store]
    chosen = ["--out", str(tmp_path), "--class-prior", "early=0.9,late=0.1", "--direct", "--json"]
    assert run([*common, *chosen]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["shift"]["class_priors"]["late"] == pytest.approx(
        0.1
    )
    assert run([*common, *chosen[:2], "--class-prior", "early=0.9", "--direct"]) == 2
    assert "got shares that sum to 0.9" in capsys.readouterr().err
