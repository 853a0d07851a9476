"""The benchmark of the census: targets changed as it says, lines stored once, a table of what is stored."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("bench_census")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "census.jsonl")
    monkeypatch.setattr(module, "TABLE", tmp_path / "CENSUS.md")
    monkeypatch.setattr(module, "SIZES", (200,))
    monkeypatch.setattr(module, "CHANGES", ("same", "x 1/4"))
    monkeypatch.setattr(module, "BATCH", 1)
    return module


def test_lines_are_stored_once_and_make_the_table(bench: Any) -> None:
    bench.run(["breast-cancer"], 1, bench.CHANGES)
    lines = bench.stored()
    assert [line["change"] for line in lines] == ["same", "x 1/4"]
    assert all(line["said"] == line["repeats"] == 1 for line in lines)
    bench.run(["breast-cancer"], 1, bench.CHANGES)
    assert bench.stored() == lines
    page = importlib.import_module("census_table").table_page(lines)
    assert "| breast-cancer | 200 | 1 | 100.0 | 0.0 |" in page
    hits = np.sum(lines[0]["sums"]["default"], axis=1)[1]
    assert f"| same | 1 | 100.0 | 0.0 | {100 * hits / 2:.1f} |" in page
    assert json.loads(json.dumps(lines)) == lines
    older = {name: value for name, value in lines[0].items() if name != "rules"}
    assert importlib.import_module("census_table").table_page([older, *lines]) == page
    # Peers need not be tried again by new rules.
    older["sums"] = older["sums"] | {"QuaPy EMQ": [[2.0], [0.0], [0.0242], [0.0]]}
    assert "| 11.00 | – | – |" in importlib.import_module("census_table").table_page([older, *lines])


def test_the_target_is_changed_and_shares_no_row_with_the_labels(bench: Any) -> None:
    labelled = bench.SETS["breast-cancer"]()
    X = bench.prepared(labelled)
    same, less = (bench.split_of(labelled, X, 200, change, 0) for change in bench.CHANGES)
    assert less.shares[1] < 0.5 * same.shares[1]
    there = {tuple(row) for row in same.target.X}
    assert not any(tuple(row) in there for row in same.labelled.X)
    assert bench.split_of(labelled, X, 1000, "same", 0) is None


def test_quapy_is_a_peer_where_it_is_installed(bench: Any) -> None:
    pytest.importorskip("quapy", reason="quapy is not installed: make bench, or pip install galaxyblr[bench]")
    labelled = bench.SETS["breast-cancer"]()
    found = bench.peers(bench.split_of(labelled, bench.prepared(labelled), 200, "same", 0))
    assert sorted(found) == ["QuaPy EMQ", "QuaPy KDEy", "QuaPy PACC"]
    assert all(abs(shares.sum() - 1) < 1e-6 for shares in found.values())
