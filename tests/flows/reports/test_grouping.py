"""Classes that the features cannot tell apart: what `init` and a training say of them can be pasted as it is."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.app import run

LINES = {"E/S0": ["E", "S0"], "Sb/Sc": ["Sb", "Sc"]}


def test_groups_are_printed_reported_and_trained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The colour of the survey's galaxies tells E and S0 from Sb and Sc, and nothing else."""
    specification, store = folder / "spec.toml", folder / "models"
    grouped = 'classes = { early = ["E", "S0"], late = ["Sb", "Sc"] }\n'
    four = 'classes = { E = ["E"], S0 = ["S0"], Sb = ["Sb"], Sc = ["Sc"] }\n'
    specification.write_text(specification.read_text().replace(grouped, four))
    assert run(["train", str(specification), "--store", str(store)]) == 0
    printed = capsys.readouterr().out
    assert "The features cannot tell all classes apart (" in printed
    lines = printed.partition("[label.classes]\n")[2].partition("\n\n")[0]
    assert tomllib.loads(lines) == LINES
    (report,) = store.rglob("report.html")
    assert "Classes that could be one" in report.read_text()
    text = specification.read_text().replace(four, "") + f"\n[label.classes]\n{lines}\n"
    specification.write_text(text)
    assert run(["train", str(specification), "--store", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == [*LINES]


def test_init_groups_classes_that_are_alike(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    specification = folder / "new.toml"
    assert (
        run(["init", str(folder / "survey.parquet"), "--label", "hubble", "--out", str(specification)]) == 0
    )
    printed = capsys.readouterr().out
    assert "A quick linear fit cannot tell all classes apart (" in printed
    assert "They stand under [label.classes], ready to use" in printed
    text = specification.read_text()
    assert {*tomllib.loads(text)["label"]["classes"]} == {"E", "S0", "Sb", "Sc"}
    offer = text.partition("# Or groups of classes")[2].partition("\n")[2]
    lines = [line.removeprefix("# ") for line in offer.splitlines() if line.startswith('# "')][:2]
    assert tomllib.loads("\n".join(lines)) == LINES
    before, rest = text.partition("\n[label.classes]")[0], text.partition("[split]")[2]
    specification.write_text("\n".join([before, "[label.classes]", *lines, "[split]", rest]))
    assert run(["train", str(specification), "--store", str(folder / "models"), "--dry-run"]) == 0


def test_init_groups_no_classes_that_are_not_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = np.tile(["a", "b", "c"], 40)
    rows = zip(kind, np.random.default_rng(0).normal(np.tile([0, 2, 4], 40), 1.0), strict=True)
    (tmp_path / "x.csv").write_text("\n".join(["kind,colour", *(f"{k},{x}" for k, x in rows)]))
    assert run(["init", str(tmp_path / "x.csv"), "--label", "kind", "--json"]) == 0
    started = json.loads(capsys.readouterr().out)
    assert started["groups"] == {}
    assert "apart" not in started["text"]


def test_a_class_too_rare_to_be_compared_stays_in_the_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c"], 40_000).astype(object)
    colour = rng.normal(np.where(kind == "c", 3.0, 0.0), 1.0)
    kind[[10, 30_000]] = "odd"
    pq.write_table(pa.table({"kind": kind, "colour": colour}), tmp_path / "x.parquet")
    assert run(["init", str(tmp_path / "x.parquet"), "--label", "kind", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == {"a/b": ["a", "b"], "c": ["c"], "odd": ["odd"]}
