"""`blr init` on one file of labelled and unlabelled rows: most of the file is what is to be classified."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from astropy.table import Table

from flows.draft.inspection import StartedSpecification
from flows.models.model import read_model
from tests.flows.starting import start_of
from tests.flows.verbs import train


def partly_labelled(folder: Path, *, labelled: int, unlabelled: int, mark: str = "") -> StartedSpecification:
    """Write a catalogue whose first rows are labelled, the others have the `mark`; return what init makes of it."""
    rng = np.random.default_rng(8)
    n = labelled + unlabelled
    red = rng.random(n) < 0.4
    kind = np.where(red, "early", "late").astype("U8")
    kind[labelled:] = mark
    columns = {"objid": np.arange(n) + 7_000_000, "g_r": rng.normal(0.5 + 0.3 * red, 0.2), "kind": kind}
    Table({**columns, "size": rng.lognormal(0.2 * red, 0.3)}).write(folder / "field.csv")
    return start_of(folder / "field.csv")


def trial(text: str, folder: Path) -> Path:
    """Write a specification with its first candidate alone; return the path."""
    head, *candidates = text.split("[[candidate]]")
    target = text[text.index("\n[target]") :]
    (folder / "spec.toml").write_text(f"{head}[[candidate]]{candidates[0]}{target}")
    return folder / "spec.toml"


@pytest.mark.parametrize("mark", ["", "?", "unknown"])
def test_the_file_is_the_target_where_most_of_its_rows_have_no_label(tmp_path: Path, mark: str) -> None:
    start = partly_labelled(tmp_path, labelled=300, unlabelled=900, mark=mark)
    assert tomllib.loads(start.text)["target"] == {"paths": ["field.csv"]}
    assert any("Most rows have no label (900; 300 train)" in line for line in start.summary)


def test_codes_of_minus_one_are_rows_without_a_label(tmp_path: Path) -> None:
    rng, code = np.random.default_rng(8), np.repeat([0, 1, -1], [90, 90, 120])
    Table({"objid": np.arange(300) + 7_000_000, "g_r": rng.normal(code), "code": code}).write(
        tmp_path / "field.csv"
    )
    start = start_of(tmp_path / "field.csv", "code")
    said = tomllib.loads(start.text)
    assert (said["label"]["exclude"], said["target"]) == (["-1"], {"paths": ["field.csv"]})
    assert any("Some rows have no label (120; 180 train)" in line for line in start.summary)
    version = train(trial(start.text, tmp_path), tmp_path / "models").version
    training = read_model(tmp_path / "models" / "field" / version / "model.asdf").training
    assert (training.unlabelled, training.other_labels) == (120, {})


def test_few_rows_without_a_label_make_no_target(tmp_path: Path) -> None:
    start = partly_labelled(tmp_path, labelled=900, unlabelled=300)
    assert "target" not in tomllib.loads(start.text)
    assert not any("target" in line for line in start.summary)


def test_a_training_compares_the_labelled_rows_with_the_whole_file(tmp_path: Path) -> None:
    text = partly_labelled(tmp_path, labelled=300, unlabelled=900).text
    trained = train(trial(text, tmp_path), tmp_path / "models")
    shift = read_model(tmp_path / "models" / "field" / trained.version / "model.asdf").training.shift
    assert shift.target is not None
    assert shift.auc_low is not None
    assert shift.target["n_rows"] == 1200
    assert shift.auc_low < 0.55  # the labelled rows are drawn from the file at random
