"""A challenger in the champion's place: by rule, by hand, and not behind anybody's back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flows.errors import ModelError, UsageError
from flows.models.promotion import compare, comparison_table
from flows.models.request import PromoteRequest
from flows.models.store import Store
from tests.flows.verbs import promote

VERSION = "0123456789ab"


@pytest.fixture
def store(trained: Path, tmp_path: Path) -> Store:
    """Return a copy of the store."""
    shutil.copytree(trained / "models", tmp_path / "models")
    return Store(tmp_path / "models")


def challenger(store: Store, gain: float, *, verdict: str = "green", **changes: object) -> str:
    """Store a model whose held-out log loss is better by that much; return its label."""
    model = store.load("morphology")
    metrics = replace(model.metrics, log_loss=model.metrics.log_loss - gain)
    trust = replace(model.trust, verdict=verdict, reasons=("a reason",))
    store.save(replace(model, version=VERSION, metrics=metrics, trust=trust, **changes), card="")
    return f"morphology@{VERSION}"


def test_the_better_one_is_promoted_by_rule(store):
    before, label = store.find("morphology").label, challenger(store, 0.01)
    told = promote("morphology", store=store.root, how="better")
    assert (told.status, told.model, told.previous) == ("promoted", label, before)
    assert "held-out log loss" in store.history("morphology")[-1].why
    assert store.champion("morphology") == VERSION
    assert promote(label, store=store.root, how="better").status == "is the champion"


@pytest.mark.parametrize(
    ("gain", "changes", "why"),
    [
        (0.001, {}, "better by 0.0010 nats an object, less than 0.005"),
        (-0.1, {}, "better by -0.1000 nats"),
        (0.1, {"verdict": "red"}, "its verdict is red: a reason"),
        (0.1, {"classes": ("early", "other")}, "its classes are early, other, not early, late"),
    ],
)
def test_the_rule_keeps_the_champion(store, gain, changes, why):
    before = store.champion("morphology")
    label = challenger(store, gain, **changes)
    told = promote(label, store=store.root, how="better")
    assert told.status == "kept"
    assert why in told.why
    assert store.champion("morphology") == before
    assert promote(label, store=store.root, why="I know better").status == "promoted"


def test_a_dry_run_changes_nothing(store):
    before = store.champion("morphology")
    told = promote(challenger(store, 0.1), store=store.root, dry_run=True)
    assert (told.status, store.champion("morphology")) == ("planned", before)


def test_a_decision_about_another_champion_does_not_hold(store):
    label = challenger(store, 0.1)
    with pytest.raises(ModelError, match="another one was promoted meanwhile; compare again"):
        promote(label, store=store.root, instead_of="morphology@ffffffffffff")


def test_the_comparison(store):
    label = challenger(store, 0.1)
    found = compare(PromoteRequest(label, store=store.root))
    assert (found.better, found.same_rows, found.challenger) == (True, True, label)


def test_the_first_of_its_name(store):
    (store.root / "morphology" / "champion").unlink()
    told = promote("morphology", store=store.root, how="better")
    assert (told.status, told.previous, told.why) == ("promoted", None, "the first of its name")


def test_a_promotion_killed_after_its_line_in_the_log_is_finished(store, monkeypatch):
    label = challenger(store, 0.1)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("flows.models.store.atomic_write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            promote(label, store=store.root)
    lines = len(store.history("morphology"))
    assert promote(label, store=store.root).status == "promoted"
    assert len(store.history("morphology")) == lines


def test_a_line_that_was_cut_is_passed_over(store):
    log = store.root / "morphology" / "champion.log"
    log.write_text(log.read_text() + '{"when": "20')
    label = challenger(store, 0.1)
    promote(label, store=store.root)
    assert store.history("morphology")[-1].version == VERSION
    assert len(store.history("morphology")) == 2


def test_a_challenger_that_folds_judged_is_said_to_be(store):
    label = challenger(store, 0.1)
    assert (
        comparison_table(compare(PromoteRequest(label, store=store.root))).rows[0][0] == "held-out log loss"
    )
    model = store.load(label)
    by_folds = replace(model, version="0123456789ac", metrics=replace(model.metrics, judged_by="left-out"))
    store.save(by_folds, card="")
    found = compare(PromoteRequest(by_folds.label, store=store.root))
    assert (found.judged_by, found.champion_judged_by) == ("left-out", "held-out")
    assert comparison_table(found).rows[0][0] == "log loss (left-out; the champion's held-out)"
    assert "left-out objects" in found.skill


def test_without_the_flow_nobody_is_asked(store):
    with pytest.raises(UsageError, match="got 'ask' without Prefect"):
        promote("morphology", store=store.root, how="ask")
