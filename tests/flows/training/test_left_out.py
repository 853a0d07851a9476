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


def judged(data: CandidateData, part: Part) -> LeftOut:
    rows = IncompleteRows.of(data, ("u", "v"), (0, 1))
    return left_out([part], rows, group=data.rows.group, on_part=lambda: None)


def without_each(data: CandidateData, part: Part, group: NDArray[np.intp]) -> LeftOut:
    """Return the slow twin: a fit without each group, of which a classifier scores one row after the other."""
    rows, K = data.rows, len(data.classes)
    moments = FeatureMoments.estimate(rows.X, rows.missing)
    moments = replace(moments, spread=excess_spread(moments, rows.X, rows.missing))
    Phi, filled, integrated = part.basis(data.filled), [], []
    for i in range(len(Phi)):
        seen = group != group[i]
        likelihood = part.laplace.problem.likelihood.name
        q = blr.fit(Phi[seen], rows.target[seen], part.laplace.prior, likelihood, classes=range(K))
        member = Member(part.basis, q, (0, 1))
        classifier = Classifier(("u", "v"), data.classes, (member,), moments, Domain(moments, np.inf))
        filled.append(q.prediction(Phi[[i]]).probability[0])
        none = rows.missing[i].all()  # such a row has no probabilities of its own
        score = classifier.score(rows.X[[i]], rows.missing[[i]]).probability[0]
        integrated.append(filled[-1] if none else score)
    return LeftOut(np.array(filled), np.eye(K)[rows.target], np.array(integrated))


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("of_group", [1, 3])
def test_one_step_is_near_fits_without_the_rows(K: int, of_group: int) -> None:
    data, group = incomplete(150, K), np.arange(150) // of_group
    data = replace(data, rows=replace(data.rows, group=group.astype(np.uint64)))
    part = part_of(data)
    found, twin = judged(data, part), without_each(data, part, group)
    assert np.abs(found.filled - twin.filled).mean() < 1e-3
    assert np.abs(found.filled - twin.filled).max() < 0.03
    assert np.abs(found.at(1.0) - twin.at(1.0)).mean() < 3e-3
    assert found.at(1.0).sum(axis=1) == pytest.approx(np.ones(150))
    assert found.at(0.3) == pytest.approx(0.7 * found.filled + 0.3 * found.at(1.0))


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
