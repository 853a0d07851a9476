"""Classes that the features cannot tell apart: what a training says of them can be pasted into its specification."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

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
