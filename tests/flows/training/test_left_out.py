"""Left-out rows that lack features are predicted as the model serves them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import blr
from blr.basis.kinds import fit_basis
from blr.classifier import Classifier, Member
from blr.missing.domain import Domain
from blr.missing.excess import excess_spread
from blr.missing.moments import FeatureMoments
from blr.selection.folds import assign_folds
from flows.models.store import Store
from flows.models.unseen_rows import read_unseen_rows
from flows.training._candidate_data import CandidateData
from flows.training._candidate_parts import Part
from flows.training._left_out import IncompleteRows, LeftOut, integrated_share, left_out, mixed
from flows.training._rows import TrainingRows
from flows.training.request import TrainRequest
from flows.training.steps import train

Floats = NDArray[np.float64]


def incomplete(n: int, K: int = 2, *, seed: int = 1) -> CandidateData:
    """Return rows of K classes whose second feature tells most, and is missing in half of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    X = np.column_stack([y + rng.normal(size=n), 3.0 * y + rng.normal(size=n)])
    missing = np.column_stack([np.zeros(n, dtype=bool), rng.random(n) < 0.5])
    missing[0] = True  # a row without any feature has no probabilities of its own
    rows = TrainingRows(np.where(missing, 0.0, X), missing, y, np.zeros(n, dtype=bool))
    filled = FeatureMoments.estimate(rows.X, missing).impute(rows.X, missing)
    return CandidateData(rows, filled, tuple("abcde"[:K]))


def part_of(data: CandidateData) -> Part:
    basis = fit_basis("linear", data.filled)
    K = len(data.classes)
    prior = blr.GaussianPrior.isotropic(basis.n_functions, 0.3, intercept=0)
    likelihood = "logistic" if K == 2 else "softmax"
    q = blr.fit(basis(data.filled), data.rows.target, prior, likelihood, classes=range(K))
    return Part(0, None, basis, q, q, 0.0)


def judged(data: CandidateData, part: Part, fold: NDArray[np.intp], *, n_influential: int = 0) -> LeftOut:
    rows = IncompleteRows.of(data, ("u", "v"), (0, 1))
    return left_out([part], fold, rows, n_influential=n_influential, refined=False, on_part=lambda: None)


@pytest.mark.parametrize("K", [2, 3])
def test_each_row_is_scored_by_a_classifier_that_has_not_seen_its_fold(K: int) -> None:
    """The slow twin fits without each fold, and asks a classifier of that fit for one row after the other."""
    data = incomplete(60, K)
    part, rows = part_of(data), data.rows
    fold = assign_folds(rows.target)
    found = judged(data, part, fold)
    assert found.by == "folds"
    moments = FeatureMoments.estimate(rows.X, rows.missing)
    moments = replace(moments, spread=excess_spread(moments, rows.X, rows.missing))
    Phi = part.basis(data.filled)
    for i in range(60):
        seen = fold != fold[i]
        q = blr.fit(
            Phi[seen],
            rows.target[seen],
            part.laplace.prior,
            part.laplace.problem.likelihood.name,
            classes=range(K),
        )
        member = Member(part.basis, q, (0, 1))
        classifier = Classifier(("u", "v"), data.classes, (member,), moments, Domain(moments, np.inf))
        plain = q.prediction(Phi[[i]]).probability[0]
        served = plain if i == 0 else classifier.score(rows.X[[i]], rows.missing[[i]]).probability[0]
        assert found.filled[i] == pytest.approx(plain, abs=1e-6)
        assert found.at(1.0)[i] == pytest.approx(served, abs=1e-3)
    lacking = rows.missing[:, 1].copy()
    lacking[0] = False
    assert (found.at(1.0) != found.filled).any(axis=1).tolist() == lacking.tolist()
    assert found.at(0.3) == pytest.approx(0.7 * found.filled + 0.3 * found.at(1.0))


def test_one_step_is_near_the_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    data = incomplete(400)
    part, fold = part_of(data), np.arange(400)
    by_folds = judged(data, part, fold)
    monkeypatch.setattr("flows.training._left_out.FOLD_WORK", 0.0)
    by_step = judged(data, part, fold)
    assert (by_folds.by, by_step.by) == ("folds", "one step")
    apart = np.abs(by_step.at(1.0) - by_folds.at(1.0))
    assert apart.mean() < 1e-3
    assert apart.max() < 0.02
    assert by_step.at(1.0).sum(axis=1) == pytest.approx(np.ones(400))


def test_complete_rows_have_one_prediction() -> None:
    data = incomplete(60)
    whole = replace(data, rows=replace(data.rows, missing=np.zeros((60, 2), dtype=bool)))
    assert IncompleteRows.of(whole, ("u", "v"), (0, 1)) is None
    assert IncompleteRows.of(data, ("u", "v"), (0,)) is None  # the candidate uses a feature that no row lacks
    found = LeftOut(np.eye(2), np.eye(2))
    assert found.at(1.0) is found.filled
    assert integrated_share(found) == 1.0


def test_many_rows_are_predicted_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.training._left_out.MOST_INCOMPLETE", 20)
    data = incomplete(300)
    rows = IncompleteRows.of(data, ("u", "v"), (0, 1))
    assert rows is not None
    chosen = np.flatnonzero(rows.missing.any(axis=1))
    assert 10 <= len(chosen) <= 20
    assert chosen[-1] > 250


def simulated(truth: float, n: int = 4000) -> LeftOut:
    """Return left-out probabilities of rows whose classes are drawn with so large a share integrated out."""
    rng = np.random.default_rng(3)
    p, flat = rng.uniform(0.02, 0.98, n), rng.uniform(0.3, 0.9, n)
    filled = np.column_stack([p, 1 - p])
    integrated = 0.5 + (filled - 0.5) * flat[:, None]
    drawn = ((1 - truth) * filled + truth * integrated)[:, 0] > rng.random(n)
    return LeftOut(filled, np.column_stack([drawn, ~drawn]).astype(float), integrated)


@pytest.mark.parametrize("truth", [0.0, 0.5, 1.0])
def test_left_out_rows_say_how_much_is_integrated(truth: float) -> None:
    assert integrated_share(simulated(truth)) == pytest.approx(truth, abs=0.12)


def test_few_rows_leave_the_whole_excess() -> None:
    assert integrated_share(simulated(1.0, n=8)) > 0.7


def test_arrays_come_back_from_their_file(tmp_path: Path) -> None:
    for one in (simulated(0.5, n=9), LeftOut(np.eye(2), np.eye(2))):
        one.write(tmp_path / "candidate-000.npy")
        back = LeftOut.read(tmp_path / "candidate-000.npy")
        assert np.array_equal(back.at(0.4), one.at(0.4))
        assert np.array_equal(back.share, one.share)


def test_a_mixture_has_complete_members_too() -> None:
    """A candidate may use features that no row lacks."""
    some, whole = simulated(0.5, n=9), LeftOut(np.full((9, 2), 0.5), simulated(0.5, n=9).share)
    mixture = mixed([some, whole], [0.25, 0.75])
    assert mixture.at(1.0) == pytest.approx(0.25 * some.at(1.0) + 0.375)
    assert mixture.filled == pytest.approx(0.25 * some.filled + 0.375)


SPECIFICATION = """
name = "moving"
[catalog]
paths = ["rows.csv"]
id = "id"
[label]
column = "kind"
[split]
held_out = 0
[features]
vel = "vel"
has_vel = "isfinite(vel)"
colour = "colour"
[[candidate]]
[[candidate]]
basis = { kind = "polynomial" }
transform = "arcsinh"
[select]
by = "stack"
temperature = "none"
"""


def test_unseen_rows_have_the_probabilities_that_are_served(tmp_path: Path) -> None:
    """The census rests on it: a missing velocity with two peaks made the served probabilities 0.05 to 0.07 lower."""
    rng = np.random.default_rng(4)
    n = 1200
    galaxy = rng.random(n) < 0.75
    colour = 1 + 0.4 * rng.normal(size=n) + 0.3 * galaxy
    velocity = np.where(galaxy, 14000 + 6000 * rng.normal(size=n), 60 * rng.normal(size=n))
    seen = rng.random(n) < np.where(galaxy, 0.42, 0.30)
    lines = [
        f"{i},{colour[i]:.3f},{f'{velocity[i]:.1f}' if seen[i] else ''},{'galaxy' if galaxy[i] else 'star'}"
        for i in range(n)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["id,colour,vel,kind", *lines]) + "\n")
    (tmp_path / "spec.toml").write_text(SPECIFICATION)
    described = train(TrainRequest(tmp_path / "spec.toml", tmp_path / "models", threads=1))
    model = Store(tmp_path / "models").load("moving")
    unseen = read_unseen_rows(Path(str(described.path)), classes=2, features=3)
    assert unseen is not None
    lacking = np.isnan(unseen.X).any(axis=1)
    scores = model.classifier.score(np.nan_to_num(unseen.X), np.isnan(unseen.X))
    k = model.classes.index("galaxy")
    judged_mean, served_mean = unseen.probability[lacking, k].mean(), scores.probability[lacking, k].mean()
    assert judged_mean == pytest.approx(served_mean, abs=0.01)
    assert judged_mean == pytest.approx(galaxy[~seen].mean(), abs=0.03)
