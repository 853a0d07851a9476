"""Promotion of a challenger to champion: by the rule, by hand, on objects that neither has seen; always recorded."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from blr.calibration import paired_gain
from flows.classification.release_changes import in_release
from flows.errors import ModelError, UsageError
from flows.models.promotion import compare, reject, undo
from flows.models.row_files import (
    ROWS_FILE,
    KnownLabels,
    compare_classes,
    compare_losses,
    judged_rows,
    row_keys,
    unseen_rows,
    write_rows,
)
from flows.models.store import Store
from flows.reports.tables import comparison_tables
from flows.request import PromoteRequest
from tests.flows.verbs import classify, promote

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


def test_the_better_one_is_promoted_by_rule(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a user without a name, as in a container where it is a number, and after a line of the log that was cut."""

    def nobody() -> str:
        raise KeyError("uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    log = store.root / "morphology" / "champion.log"
    log.write_text(log.read_text() + '{"when": "20')
    before, label = store.find("morphology").label, challenger(store, 0.01)
    with pytest.raises(ModelError, match="another version was promoted in the meantime; compare again"):
        promote(label, store=store.root, instead_of="morphology@ffffffffffff")
    told = promote("morphology", store=store.root, how="better")
    assert (told.status, told.model, told.previous) == ("promoted", label, before)
    assert told.who == "an unnamed user"
    assert len(store.history("morphology")) == 2
    assert "held-out log loss" in store.history("morphology")[-1].why
    assert store.champion("morphology") == store.history("morphology")[-1].version == VERSION
    assert promote(label, store=store.root, how="better").status == "is the champion"
    (store.root / "morphology" / "champion").unlink()
    told = promote("morphology", store=store.root, how="better")
    assert (told.status, told.previous, told.why) == ("promoted", None, "the first of its name")


@pytest.mark.parametrize(
    ("gain", "changes", "why"),
    [
        (0.001, {}, "its held-out log loss is better by 0.0010 nats an object, less than 0.005"),
        (-0.00001, {}, "no better, expected by 0.005"),
        (-0.1, {}, "worse by 0.1000 nats an object, expected better by 0.005"),
        (0.1, {"verdict": "red"}, "its verdict is red: a reason"),
        (0.1, {"classes": ("early", "other")}, "its classes are early, other, not early, late"),
    ],
)
def test_the_rule_keeps_the_champion(store: Store, gain: float, changes: dict[str, Any], why: str) -> None:
    before = store.champion("morphology")
    label = challenger(store, gain, **changes)
    told = promote(label, store=store.root, how="better")
    assert told.status == "kept"
    assert why in told.why
    assert store.champion("morphology") == before
    assert promote(label, store=store.root, why="I know better").status == "promoted"


def test_a_champion_that_is_gone_is_replaced(store: Store) -> None:
    """The error about it says that another version is to be promoted."""
    label, before = challenger(store, 0.01), store.find("morphology")
    shutil.rmtree(before.folder)
    with pytest.raises(
        ModelError, match=r"champion is .*choose with `blr models promote morphology@VERSION`"
    ):
        store.load("morphology")
    told = promote(label, store=store.root, how="now")
    assert (told.status, told.previous) == ("promoted", None)
    assert told.why == f"the champion {before.version} is gone"
    assert store.find("morphology").label == label


def test_a_challenger_that_folds_judged_is_said_to_be(store: Store) -> None:
    label = challenger(store, 0.1)
    rows = comparison_tables(compare(PromoteRequest(label, store=store.root)))[0].rows
    assert "held-out log loss" in [row[0] for row in rows]
    model = store.load(label)
    by_folds = replace(model, version="0123456789ac", metrics=replace(model.metrics, judged_by="left-out"))
    store.save(by_folds, card="")
    found = compare(PromoteRequest(by_folds.label, store=store.root))
    assert (found.judged_by, found.champion_judged_by) == ("left-out", "held-out")
    rows = comparison_tables(found)[0].rows
    assert "log loss (left-out; the champion's held-out)" in [row[0] for row in rows]
    assert "left-out objects" in found.skill


def decide(work: Any, label: str, **asked: object) -> Any:
    return work(PromoteRequest(label, **asked))


def test_a_promotion_is_undone_and_the_log_keeps_all(store: Store) -> None:
    first = store.find("morphology").label
    label = challenger(store, 0.1)
    promote(label, store=store.root)
    before = (store.root / "morphology" / "champion.log").read_text()
    planned = undo(PromoteRequest("morphology", store=store.root), dry_run=True)
    assert (planned.status, store.find("morphology").label) == ("planned", label)
    done = decide(undo, "morphology", store=store.root, by="B", why="purity fell")
    assert (done.status, done.model, done.previous) == ("undone", first, label)
    assert store.find("morphology").label == first
    assert (store.root / "morphology" / "champion.log").read_text().startswith(before)
    assert [d.kind for d in store.history("morphology")] == ["promoted", "promoted", "undone"]
    said = r"got no champion of 'morphology' before .*, expected a previous champion to go back to"
    with pytest.raises(ModelError, match=said):
        decide(undo, "morphology", store=store.root)


def test_undoing_twice_goes_back_by_two_and_promotions_after_it_count(store: Store) -> None:
    versions = [store.champion("morphology"), "0" * 12, "1" * 12]
    model = store.load("morphology")
    for version in versions[1:]:
        store.save(replace(model, version=version), card="")
        promote(f"morphology@{version}", store=store.root)
    for expected in (versions[1], versions[0]):
        decide(undo, "morphology", store=store.root)
        assert store.champion("morphology") == expected
    promote(f"morphology@{versions[2]}", store=store.root)
    decide(undo, "morphology", store=store.root)
    assert store.champion("morphology") == versions[0]


def test_a_veto_is_kept_shown_and_binds_the_rule_until_a_person_promotes(store: Store) -> None:
    label, first = challenger(store, 0.1), store.find("morphology").label
    with pytest.raises(UsageError, match="--why: got no reason to reject"):
        decide(reject, label, store=store.root)
    told = decide(reject, label, store=store.root, by="C. Critic", why="loses the dwarfs")
    assert (told.status, told.who, told.previous) == ("rejected", "C. Critic", first)
    assert store.find("morphology").label == first
    kept = promote(label, store=store.root, how="better")
    assert kept.status == "kept"
    assert "C. Critic rejected it on 20" in kept.why
    assert "loses the dwarfs" in comparison_tables(kept.comparison)[0].note
    assert promote(label, store=store.root, by="D").status == "promoted"
    assert not compare(PromoteRequest(label, store=store.root)).vetoes
    with pytest.raises(UsageError, match="got the champion, which cannot be rejected"):
        decide(reject, label, store=store.root, why="x")


def test_what_would_change_in_the_last_release(
    trained: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast sample against the slow way: two classifications, compared row by row."""
    files = [trained / "survey.parquet", trained / "survey.fits"]
    label = challenger(store, 0.1)
    model = store.load(label)
    # A challenger with other priors: some objects change class.
    shifted = replace(model.classifier, log_prior_shift=np.array([2.0, -2.0]))
    store.save(replace(model, version="0123456789ac", classifier=shifted), card="")
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    column = []
    for of, out in (("morphology", tmp_path / "a"), ("morphology@0123456789ac", tmp_path / "b")):
        classify(files, model=of, store=store.root, out=out)
        batches = [b for path in files for b in catalogs.open(out / path.name).batches(["blr_class"])]
        column.append(np.concatenate([np.asarray(batch.column(0).to_pylist()) for batch in batches]))
    asked = PromoteRequest("morphology@0123456789ac", store=store.root, release=tmp_path / "a")
    found = compare(asked, in_release=in_release).in_release
    assert (found["compared"], found["n_rows"]) == (len(column[0]), 800)
    assert (found["n_files"], found["troubles"]) == (2, ())
    assert found["changed"] == int(np.count_nonzero(column[0] != column[1])) > 0
    by_class = {(t["was"], t["now"]): t["objects"] for t in found["transitions"]}
    assert by_class == Counter((a, b) for a, b in zip(*column, strict=True) if a != b)
    tables = comparison_tables(compare(asked, in_release=in_release))
    assert tables[1].rows[1][:2] == ("would change class", f"{found['changed']:,}")
    (row,) = (row[:2] for row in tables[0].rows if "change class" in row[0])
    assert row == ("would change class in release 1", f"{found['changed']:,} of {found['compared']:,}")
    assert compare(replace(asked, release=None), in_release=in_release).in_release is None


def made(n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return identifiers, some repeated and some missing, features with gaps, and classes."""
    rng = np.random.default_rng(3)
    names = np.array([f"G{i % 40}" if i % 7 else "" for i in range(n)], dtype=object)
    X = rng.integers(0, 3, (n, 2)).astype(float)  # so coarse that objects share their features
    X[rng.random((n, 2)) < 0.2] = np.nan
    return names, X, rng.integers(0, 3, n)


def slowly(
    names: np.ndarray, X: np.ndarray, target: np.ndarray, other: np.ndarray, Y: np.ndarray
) -> list[int]:
    """Return the classes of rows (other, Y), object by object."""
    by_object = defaultdict(set)
    for name, x, k in zip(names, X, target, strict=True):
        if name:
            by_object[name, repr(x.astype(np.float32).tolist())].add(int(k))
    keys = ((name, repr(y.astype(np.float32).tolist())) for name, y in zip(other, Y, strict=True))
    found = (by_object.get(key, set()) for key in keys)
    return [next(iter(k)) if len(k) == 1 else -1 for k in found]


def test_classes_are_those_of_the_object_with_the_name_and_the_features() -> None:
    names, X, target = made()
    known = KnownLabels.of(*row_keys(names, X), target)
    rng = np.random.default_rng(4)
    rows = rng.permutation(60)
    other, Y = np.r_[names[rows], names], np.r_[X[rows] + 1e-12, X[::-1]]
    found = known.classes(Y, lambda some: other[some])
    assert found.tolist() == slowly(names, X, target, other, Y)
    assert (found >= 0).any()
    assert (found < 0).any()


def test_numbers_are_the_same_names_as_texts() -> None:
    X = np.array([[0.1], [0.2]])
    known = KnownLabels.of(*row_keys(np.array(["7", "12"], dtype=object), X), np.array([1, 0]))
    for names in (np.array([7, 12]), np.array([7.0, 12.0]), np.array(["7 ", "12"])):
        assert known.classes(X, names.__getitem__).tolist() == [1, 0]


def test_labels_of_another_model_are_refused(tmp_path: Path) -> None:
    names, X, target = made()
    key, features = row_keys(names, X)
    write_rows({"key": key, "features": features, "target": target}, tmp_path)
    with pytest.raises(ModelError, match="got labelled rows of another model, expected 2 classes"):
        KnownLabels.read(tmp_path, classes=2)
    pq.write_table(pa.table({"key": [1]}), tmp_path / ROWS_FILE)
    with pytest.raises(ModelError, match="cannot be read as the table of labelled rows"):
        KnownLabels.read(tmp_path, classes=3)
    pq.write_table(pa.table({"probability": [0.5]}), tmp_path / ROWS_FILE)
    with pytest.raises(ModelError, match="cannot be read as the table of labelled rows"):
        unseen_rows(tmp_path, classes=2, features=1)


def rows(names: list[int], losses: list[float], groups: list[int] | None = None) -> np.ndarray:
    """Return rows of these names and losses, each a group of its own if nothing is said."""
    integers, floats = (
        (("name", "u8"), ("group", "u8"), ("label", "i2"), ("assigned", "i2")),
        ("log_loss", "f8"),
    )
    made = np.zeros(len(names), [*integers, floats])
    made["name"], made["group"], made["log_loss"] = names, names if groups is None else groups, losses
    return made


def test_an_object_of_several_rows_counts_once_and_groups_widen_the_interval() -> None:
    found = compare_losses(rows([1, 1, 2], [0.1, 0.3, 0.5]), rows([2, 1, 1, 1], [0.5, 1.0, 1.0, 1.0]))
    assert (found.n, found.gain) == (2, pytest.approx(0.4))
    names, losses = list(range(20)), list(np.linspace(0, 1, 20))
    champion = rows(names, [loss + 0.1 * (-1) ** (i // 10) for i, loss in enumerate(losses)])
    apart = compare_losses(rows(names, losses), champion)
    together = compare_losses(rows(names, losses, [i // 10 for i in names]), champion)
    assert together.n_groups == 2
    assert together.high - together.low > apart.high - apart.low


def test_classes_are_compared_on_common_objects() -> None:
    def of(names: list[int], losses: list[float], label: list[int], assigned: list[int]) -> np.ndarray:
        made = rows(names, losses)
        made["label"], made["assigned"] = label, assigned
        return made

    ours = of([1, 2, 3, 4, 9], [0.1, 0.2, 0.3, 0.4, 9.0], [0, 0, 1, 1, 0], [0, 0, 1, 0, 1])
    theirs = of([4, 3, 2, 1], [0.5, 0.5, 0.5, 0.5], [1, 1, 0, 0], [1, 1, 1, 0])
    a, b = compare_classes(ours, theirs, ("a", "b"))
    assert (a["name"], b["name"]) == ("a", "b")
    assert (a["completeness"], a["champion_completeness"]) == (1.0, 0.5)
    assert (a["purity"], a["champion_purity"]) == (2 / 3, 1.0)
    assert (b["completeness"], b["champion_completeness"]) == (0.5, 1.0)
    assert (b["purity"], b["champion_purity"]) == (1.0, 2 / 3)
    by_hand = paired_gain(np.array([0.1, 0.2]), np.array([0.5, 0.5]))
    assert (a["gain"].gain, a["gain"].low) == (by_hand.gain, by_hand.low)


def test_promotion_goes_by_the_common_objects(store: Any) -> None:
    """The challenger's own number is better, on other objects; on those of both it is worse."""
    champion, label = store.find("morphology"), challenger(store, 0.5)
    mine = judged_rows(champion.folder)
    half = len(mine) // 2

    def write(more: float) -> None:
        columns = {key.replace("label", "target"): mine[key][:half].copy() for key in mine.dtype.names}
        columns |= {"judged": np.ones(half, dtype=bool), "log_loss": columns["log_loss"] + more}
        write_rows(columns, store.find(label).folder)

    write(0.02)
    told = promote(label, store=store.root, how="better")
    assert told.status == "kept"
    assert f"its log loss on {half:,} objects that neither model has seen is worse by 0.0200" in told.why
    write(-0.02)
    table = comparison_tables(compare(PromoteRequest(label, store=store.root)))[0]
    assert [row[0] for row in table.rows[:2]] == [
        "gain on objects new to both",
        f"log loss on {half:,} objects new to both",
    ]
    told = promote(label, store=store.root, how="better")
    assert (told.status, told.comparison.common.n) == ("promoted", half)
    assert "objects new to both smaller by 0.0200 nats" in store.history("morphology")[-1].why
