"""Champion and challenger on the objects that neither has seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blr.calibration import paired_gain
from flows.models.promotion import compare
from flows.models.row_files import JudgedRows, compare_classes, compare_losses, write_rows
from flows.models.store import Store
from flows.reports.tables import comparison_tables
from flows.request import PromoteRequest
from tests.flows.models.test_promotion import challenger, store
from tests.flows.verbs import promote

__all__ = ["store"]  # the fixture


def rows(names: list[int], losses: list[float], groups: list[int] | None = None) -> JudgedRows:
    """Return rows of these names and losses, each a group of its own if nothing is said."""
    name = np.array(names, dtype=np.uint64)
    group = name if groups is None else np.array(groups, dtype=np.uint64)
    return JudgedRows(name, group, np.array(losses), *np.zeros((2, len(name)), np.int16))


def test_an_object_of_several_rows_counts_once() -> None:
    found = compare_losses(rows([1, 1, 2], [0.1, 0.3, 0.5]), rows([2, 1, 1, 1], [0.5, 1.0, 1.0, 1.0]))
    assert (found.n, found.gain) == (2, pytest.approx(0.4))


def test_groups_of_the_coarser_split_widen_the_interval() -> None:
    names, losses = list(range(20)), list(np.linspace(0, 1, 20))
    champion = rows(names, [loss + 0.1 * (-1) ** (i // 10) for i, loss in enumerate(losses)])
    apart = compare_losses(rows(names, losses), champion)
    together = compare_losses(rows(names, losses, [i // 10 for i in names]), champion)
    assert together.n_groups == 2
    assert together.high - together.low > apart.high - apart.low


def test_classes_are_compared_on_common_objects() -> None:
    def of(names: list[int], losses: list[float], label: list[int], assigned: list[int]) -> JudgedRows:
        classes = (np.array(x, np.int16) for x in (label, assigned))
        plain = rows(names, losses)
        return JudgedRows(plain.name, plain.group, plain.log_loss, *classes)

    ours = of([1, 2, 3, 4, 9], [0.1, 0.2, 0.3, 0.4, 9.0], [0, 0, 1, 1, 0], [0, 0, 1, 0, 1])
    theirs = of([4, 3, 2, 1], [0.5, 0.5, 0.5, 0.5], [1, 1, 0, 0], [1, 1, 1, 0])
    a, b = compare_classes(ours, theirs, ("a", "b"))
    assert (a["name"], b["name"]) == ("a", "b")
    assert (a["completeness"], a["champion_completeness"]) == (1.0, 0.5)
    assert (a["purity"], a["champion_purity"]) == (2 / 3, 1.0)
    assert (b["completeness"], b["champion_completeness"]) == (0.5, 1.0)
    assert (b["purity"], b["champion_purity"]) == (1.0, 2 / 3)
    by_hand = paired_gain([0.1, 0.2], [0.5, 0.5])
    assert (a["gain"].gain, a["gain"].low) == (by_hand.gain, by_hand.low)


def test_a_training_keeps_the_rows_that_judged_it(trained: Path) -> None:
    stored = Store(trained / "models")
    model, kept = stored.load("morphology"), JudgedRows.read(stored.find("morphology").folder)
    assert len(kept.name) == model.metrics.n
    assert kept.log_loss.mean() == pytest.approx(model.metrics.log_loss)
    assert len(np.unique(kept.name)) == len(kept.name)


def test_promotion_goes_by_the_common_objects(store: Any) -> None:
    """The challenger's own number is better, on other objects; on those of both it is worse."""
    champion, label = store.find("morphology"), challenger(store, 0.5)
    mine = JudgedRows.read(champion.folder)
    half = len(mine.name) // 2
    worse = replace(mine[np.arange(half)], log_loss=mine.log_loss[:half] + 0.02)
    judged = np.ones(half, dtype=bool)

    def write(rows: JudgedRows) -> None:
        columns = {"target": rows.label, "judged": judged, **vars(rows)}
        del columns["label"]
        write_rows(columns, store.find(label).folder)

    write(worse)
    told = promote(label, store=store.root, how="better")
    assert told.status == "kept"
    assert f"its log loss on {half:,} objects that neither model has seen is worse by 0.0200" in told.why
    write(replace(worse, log_loss=worse.log_loss - 0.04))
    table = comparison_tables(compare(PromoteRequest(label, store=store.root)))[0]
    assert [row[0] for row in table.rows[:2]] == [
        "gain on objects new to both",
        f"log loss on {half:,} objects new to both",
    ]
    told = promote(label, store=store.root, how="better")
    assert (told.status, told.comparison.common.n) == ("promoted", half)
    assert "objects new to both smaller by 0.0200 nats" in store.history("morphology")[-1].why
