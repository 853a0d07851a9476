"""`blr.fit_default` makes of arrays the classifier that a training makes of a catalogue with the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import blr
import flows
from blr.candidates.candidate import default_candidates
from flows.errors import ModelError
from flows.models.store import Store
from flows.request import TrainRequest
from flows.specification.specification import Candidate
from flows.specification.toml_file import parse_specification
from flows.training.steps import train

SPECIFICATION = """
name = "kinds"
[catalog]
paths = ["rows.csv"]
weight = "w"
[label]
column = "kind"
classes = { a = ["a"], b = ["b"] }
[split]
by = "star"
held_out = 0
[features]
u = "u"
v = "v"
[select]
by = "stack"
"""


def rows(n: int = 140) -> tuple[Any, ...]:
    """Return two features, one with missing values, labels, weights and groups of two rows."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 2)).round(3)
    kind = np.where(X[:, 0] ** 2 + X[:, 1] + 0.5 * rng.normal(size=n) > 1, "b", "a")
    X[::7, 1] = np.nan
    return X, kind, rng.choice([0.5, 1.0, 2.0], n), np.arange(n) // 2


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """Return the default run of a catalogue's rows, that of the same arrays, and the features.

    The catalogue has rows of weight zero besides, far away, which count for nothing.
    """
    folder = tmp_path_factory.mktemp("default")
    X, kind, weight, group = rows()
    cells = zip(X[:, 0], X[:, 1], kind, weight, group, strict=True)
    lines = [f"{u},{'' if np.isnan(v) else v},{k},{w},s{g}" for u, v, k, w, g in cells]
    lines[5:5] = [f"{90 + i},-70,{'ab'[i % 2]},0,far{i}" for i in range(9)]
    (folder / "rows.csv").write_text("\n".join(["u,v,kind,w,star", *lines]) + "\n")
    asked = parse_specification(SPECIFICATION, source="spec.toml", base_folder=str(folder))
    listed = tuple(Candidate.stated(one) for one in default_candidates(len(X), 2, 2))
    request = TrainRequest(asked.model_copy(update={"candidate": listed}), folder / "models", threads=1)
    train(request)
    model = Store(folder / "models").load("kinds")
    trained = blr.fit_default(X, kind, sample_weight=weight, group=group, features=["u", "v"], threads=1)
    return model, trained, X


def test_a_catalogue_and_its_arrays_give_the_same_classifier(both: tuple[Any, Any, Any]) -> None:
    model, trained, X = both
    stored = model.classifier.score(np.nan_to_num(X), np.isnan(X))
    assert_allclose(trained.predict_proba(X), stored.probability, rtol=1e-9)
    assert [row.basis for row in trained.candidates] == [row.basis for row in model.candidates]
    assert_allclose([r.share for r in trained.candidates], [r.share for r in model.candidates], rtol=1e-9)
    assert trained.trust.verdict == model.trust.verdict
    assert trained.log_loss == pytest.approx(model.metrics.log_loss)
    assert trained.skill.gain == pytest.approx(model.metrics.skill.gain)


def test_a_classifier_comes_back_from_its_file(both: tuple[Any, Any, Any], tmp_path: Path) -> None:
    _, trained, X = both
    flows.write_classifier(trained, tmp_path / "trained.asdf")
    again = flows.read_classifier(tmp_path / "trained.asdf")
    assert (again.predict_proba(X) == trained.predict_proba(X)).all()
    assert again.predict(X).tolist() == trained.predict(X).tolist()
    assert (again.candidates, again.trust) == (trained.candidates, trained.trust)
    assert (again.probability == trained.probability).all()
    assert (again.skill, again.table().keys()) == (trained.skill, trained.table().keys())
    assert again.explain(X[1]).logit == trained.explain(X[1]).logit
    (tmp_path / "trained.asdf").write_bytes((tmp_path / "trained.asdf").read_bytes()[:-500])
    with pytest.raises(ModelError, match=r"trained\.asdf"):
        flows.read_classifier(tmp_path / "trained.asdf")
