"""The benchmark of few labels: what it draws, that it stores and resumes, and that its table says what is stored."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("bench_labels")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("labels_table")


def stored(folder: Path) -> list[dict]:
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def arguments(folder: Path, *more: str) -> list[str]:
    return [
        *("--sets", "wine", "--sizes", "60", "--bias", "random", "--splits", "1"),
        *("--results", str(folder / "results"), "--table", str(folder / "LABELS.md"), *more),
    ]


@pytest.mark.long
def test_ours_and_a_peer_are_fitted_once_and_make_the_table(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments(tmp_path, "--methods", "ours", "linear")
    assert bench.main(given) == 0
    fits = stored(tmp_path / "results")
    told = [(f["method"], f["n_labels"], f["failure"]) for f in fits]
    assert told == [("ours", 60, ""), ("linear discriminant", 60, "")]
    assert all(0 < f["log_loss"] < 14 and 0 <= f["calibration_error"] < 1 for f in fits)
    assert fits[0]["code"] == bench.our_code()
    page = (tmp_path / "LABELS.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| wine"))
    assert f"| {fits[0]['log_loss']:.4f} | linear discriminant | {fits[1]['log_loss']:.4f} |" in row

    capsys.readouterr()
    assert bench.main(given) == 0
    assert "0 new fits" in capsys.readouterr().out
    assert (tmp_path / "LABELS.md").read_text() == page


def test_catboost_is_a_peer_where_it_is_installed(bench: Any, tmp_path: Path) -> None:
    remedy = "make bench, or pip install galaxyblr[bench]"
    pytest.importorskip("catboost", reason=f"catboost is not installed: {remedy}")
    bench.main(arguments(tmp_path, "--methods", "CatBoost"))
    (fit,) = stored(tmp_path / "results")
    assert fit["code"].startswith("catboost 1.")
    assert 0 < fit["log_loss"] < np.log(3)


@pytest.mark.parametrize("biased", [False, True])
def test_draws_have_every_class_twice_and_no_test_row(bench: Any, *, biased: bool) -> None:
    whole = bench.SETS["digits"]()
    kept = np.delete(np.arange(len(whole.y)), np.flatnonzero(whole.y == 3)[15:])
    arrays = {name: getattr(whole, name)[kept] for name in ("features", "y", "bias")}
    labelled = replace(whole, columns=whole.columns.take(kept), **arrays)
    bound = np.quantile(labelled.bias, 1 / 3)
    for split in range(5):
        train, test = bench.draw(labelled, 50, split, biased=biased)
        assert len(train) == len(set(train)) == 50
        assert not set(train) & set(test)
        assert np.bincount(labelled.y[train], minlength=10).min() >= 2
        assert np.sum(labelled.bias[train] > bound) <= 2 or not biased
    assert bench.draw(labelled, 5000, 0, biased=biased) is None


def fit(table: Any, method: str, split: int, loss: float, *, code: str = "", size: str = "100") -> Any:
    return table.Fit("stars", size, False, split, method, code, 100, 50, loss, loss, 0.2, 0.03, 1.0)  # noqa: FBT003


@pytest.mark.parametrize(
    ("ours", "word"),
    [([0.1, 0.11, 0.12], "first"), ([0.201, 0.199, 0.203], "tied"), ([0.2, 0.31, 0.2], "behind")],
)
def test_the_verdict_is_of_paired_differences(table: Any, ours: list[float], word: str) -> None:
    fits = [fit(table, "ours", k, loss, code="new") for k, loss in enumerate(ours)]
    fits += [fit(table, "ours", 0, 9.0, code="old", size="200"), fit(table, "weak peer", 0, 0.9)]
    fits += [fit(table, "peer", k, 0.2) for k in range(3)]
    page = table.table_page(fits)
    assert f"| peer | 0.2000 | {np.mean(ours) - 0.2:+.4f} ± " in page
    assert f"| {word} |" in page


def test_a_failure_of_ours_is_no_verdict_on_the_other_splits(table: Any) -> None:
    fits = [fit(table, method, k, loss) for method, loss in (("ours", 0.1), ("peer", 0.2)) for k in range(3)]
    nothing = {"log_loss": None, "calibration_error": None}
    failed = replace(fits[0], split=3, failure="TrainingError: few rows", **nothing)
    page = table.table_page([*fits, failed])
    assert "| failed |" in page
    assert "ours: TrainingError, 1 of 4 |" in page


def test_the_newest_code_is_shown_unless_another_is_asked_for(table: Any) -> None:
    fits = [fit(table, "ours", 0, 0.3, code="old"), fit(table, "ours", 0, 0.1, code="new")]
    assert "| 0.1000 |" in (newest := table.table_page([*fits, fit(table, "peer", 0, 0.2)]))
    assert "| 0.3000 |" not in newest
    assert "| 0.3000 |" in table.table_page([*fits, fit(table, "peer", 0, 0.2)], code="old")


def test_a_line_that_a_kill_cut_off_is_passed_over(bench: Any, table: Any, tmp_path: Path) -> None:
    whole = fit(table, "peer", 0, 0.2)
    line = json.dumps(asdict(whole))
    (tmp_path / "stars.jsonl").write_text(f"{line}\n{line[:40]}")
    assert table.read_fits(tmp_path) == [whole]
    bench.keep(whole, tmp_path)
    assert table.read_fits(tmp_path) == [whole, whole]
