"""`[output] sets`: the column of prediction sets, what headers and summaries say of it, and when there is none."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from blr.census.prediction_sets import learn_sets
from flows.classification.scoring import sets_of
from flows.cli.app import run as cli
from flows.errors import SpecificationError, UsageError
from flows.models.row_files import ROWS_FILE, UnseenRows
from flows.models.store import Store
from flows.specification.toml_file import parse_specification
from flows.tables import classify_table
from tests.flows.conftest import SPECIFICATION
from tests.flows.verbs import classify

SETS = "\n[output]\nsets = 0.9\n"


def specified(trained: Path, folder: Path, text: str = SETS) -> Path:
    path = folder / "sets.toml"
    path.write_text((trained / "spec.toml").read_text() + text)
    return path


def run(trained: Path, folder: Path, *names: str, text: str = SETS, **options: Any) -> Any:
    return classify(
        [trained / name for name in names],
        model="morphology",
        store=trained / "models",
        out=folder / "out",
        specification=specified(trained, folder, text),
        **options,
    )


def rule(trained: Path, level: float = 0.9) -> Any:
    stored = Store(trained / "models").find("morphology")
    rows = UnseenRows.read(stored.folder, classes=2, features=2)
    return learn_sets(rows.probability, rows.target, level=level, weight=rows.weight)


def test_bits_are_classes_above_their_threshold(trained: Path, tmp_path: Path) -> None:
    result = run(trained, tmp_path, "survey.parquet", "survey.fits")
    table = pq.read_table(tmp_path / "out/survey.parquet")
    assert table.column_names[-1] == "blr_set"
    assert pa.types.is_int32(table["blr_set"].type)
    frame, least = table.to_pandas(), rule(trained).least
    p = frame[["blr_p_early", "blr_p_late"]].to_numpy(float)
    known = np.isfinite(p[:, 0])
    assert 0 < known.sum() < len(known)
    clear = known & (np.abs(p - least) > 1e-6).all(axis=1)
    expected = (p >= least) @ [1, 2]
    np.testing.assert_array_equal(frame["blr_set"][clear], expected[clear])
    np.testing.assert_array_equal(frame["blr_set"][~known], -1)
    np.testing.assert_array_equal(fits.getdata(tmp_path / "out/survey.fits")["blr_set"], frame["blr_set"])
    sets = result.summary.files["survey.parquet"].sets
    assert sum(sets.sizes) == known.sum()
    assert sets.empty == np.sum(frame["blr_set"] == 0)
    assert sets.full == np.sum(frame["blr_set"] == 3)
    assert sets.classes["late"].count == np.sum(known & (frame["blr_set"] & 2 > 0))
    assert sets.classes["late"].bit == 1
    assert sets.mean_size == pytest.approx(
        np.mean([sets.classes[c].count for c in ("early", "late")]) * 2 / known.sum()
    )


def test_files_name_the_bits_and_the_level(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, "survey.parquet", "survey.fits")
    metadata = pq.read_schema(tmp_path / "out/survey.parquet").metadata
    assert metadata[b"blr.set_bit_0"] == b"early"
    assert metadata[b"blr.set_bit_1"] == b"late"
    assert metadata[b"blr.set_level"] == b"0.9"
    history = " ".join(map(str, fits.getheader(tmp_path / "out/survey.fits", 1)["HISTORY"]))
    assert "blr set_bit_1 = late" in history
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["columns"]["blr_set"]["datatype"] == "int32"
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["sets"]["source"] == "held-out"
    assert (
        summary["sets"]["sizes"] == np.add(*(f["sets"]["sizes"] for f in summary["files"].values())).tolist()
    )


def test_an_annotation_with_sets_is_known_again(trained: Path, tmp_path: Path) -> None:
    """In a CSV file too, which has no place for metadata: annotating again replaces the columns."""
    frame = pd.read_parquet(trained / "survey.parquet")
    frame.to_csv(tmp_path / "survey.csv", index=False)
    options = {"model": "morphology", "store": trained / "models"}
    spec = specified(trained, tmp_path)
    classify([tmp_path / "survey.csv"], out=tmp_path / "once", specification=spec, **options)
    classify([tmp_path / "once/survey.csv"], out=tmp_path / "twice", specification=spec, **options)
    assert (tmp_path / "once/survey.csv").read_text() == (tmp_path / "twice/survey.csv").read_text()
    plain = classify([tmp_path / "once/survey.csv"], out=tmp_path / "plain", **options)
    assert plain.summary.sets is None
    assert "blr_set" not in pd.read_csv(tmp_path / "plain/survey.csv").columns


def test_other_class_shares_leave_the_sets_as_they_are(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, "survey.parquet")
    shares = "\n[shift]\nclass_prior = { early = 0.1, late = 0.9 }\n"
    (tmp_path / "other").mkdir()
    run(trained, tmp_path / "other", "survey.parquet", text=shares + SETS)
    plain, moved = (pd.read_parquet(f / "out/survey.parquet") for f in (tmp_path, tmp_path / "other"))
    assert (plain["blr_p_early"] - moved["blr_p_early"]).abs().max() > 0.1
    np.testing.assert_array_equal(plain["blr_set"], moved["blr_set"])


def test_a_table_in_memory_and_a_trial_have_them_too(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, "survey.parquet")
    spec = specified(trained, tmp_path)
    frame = pd.read_parquet(trained / "survey.parquet")
    annotated = classify_table(frame, model="morphology", store=trained / "models", specification=spec)
    written = pd.read_parquet(tmp_path / "out/survey.parquet")["blr_set"]
    np.testing.assert_array_equal(annotated["blr_set"], written)
    seen = run(trained, tmp_path, "survey.parquet", limit=100)
    assert seen.status == "trial"
    assert sum(seen.summary.sets.sizes) == seen.summary.n_classified
    assert set(seen.rows[0]) >= {"blr_set"}


def test_few_labels_of_a_class_fill_the_sets_and_it_is_said(trained: Path) -> None:
    model = Store(trained / "models").load("morphology")
    wanted = parse_specification(SPECIFICATION + "\n[output]\nsets = 0.998\n", source="spec")
    record, _ = sets_of(model, wanted)
    early = record.classes["early"]
    assert early.least is None
    assert early.spread == 0
    assert re.fullmatch(r"in every set: \d+ labelled rows, at least 499 are needed at 0.998", early.remark)


def test_rows_weighted_by_density_state_no_sets(trained: Path) -> None:
    model = Store(trained / "models").load("morphology")
    weighted = model.specification.model_copy(
        update={"shift": model.specification.shift.model_copy(update={"density_weights": True})}
    )
    wanted = parse_specification(SPECIFICATION + SETS, source="spec")
    record, rule = sets_of(replace(model, specification=weighted), wanted)
    assert record.source == "cannot be said"
    assert "look different in the target" in record.reason
    assert rule is None


def test_a_model_without_unseen_rows_is_refused_before_any_work(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "models", tmp_path / "models")
    (lost,) = (tmp_path / "models").rglob(ROWS_FILE)
    lost.unlink()
    with pytest.raises(UsageError, match="whose folder has no labelled rows with left-out probabilities"):
        classify(
            [trained / "survey.parquet"],
            model="morphology",
            store=tmp_path / "models",
            out=tmp_path / "out",
            specification=specified(trained, tmp_path),
        )
    assert not (tmp_path / "out").exists()


MANY = "classes = {" + ", ".join(f"c{i} = ['{i}']" for i in range(32)) + "}"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (f'column = "hubble"\n{MANY}', "output.sets: got 32 classes, expected at most 31"),
        ('votes = { early = "bmag", late = "kmag" }', r"output.sets: got a share with \[label.votes\]"),
        ('column = "hubble"\nnoise = "estimated"', "output.sets: got a share with label.noise"),
    ],
)
def test_labels_that_allow_no_sets(label: str, message: str) -> None:
    text = re.sub(r"(?s)(\[label\]\n).*(\[features\])", rf"\1{label}\n\2", SPECIFICATION)
    with pytest.raises(SpecificationError, match=message):
        parse_specification(text + SETS, source="spec")


def test_the_command_line_counts_them(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = specified(trained, tmp_path)
    arguments = ["classify", str(trained / "survey.parquet"), "--model", "morphology", "--direct"]
    places = ["--store", str(trained / "models"), "--out", str(tmp_path / "out"), "--spec", str(spec)]
    assert cli([*arguments, *places]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Prediction sets in all files, 90.0% of each class" in said
    assert re.search(r"\d+ sets, of \d\.\d\d classes on average; \d+ are empty and \d+ full", said)


def test_labels_chosen_by_features_state_no_sets(trained: Path, tmp_path: Path) -> None:
    text = '\n[shift]\nassumes = "features"\n' + SETS
    result = run(trained, tmp_path, "survey.parquet", text=text)
    assert result.summary.sets.source == "cannot be said"
    assert "were chosen by their features" in result.summary.sets.reason
    assert set(pd.read_parquet(tmp_path / "out/survey.parquet")["blr_set"]) == {-1}
    kept = json.loads((tmp_path / "out/manifest.json").read_text())["specification_hash"]
    (tmp_path / "other").mkdir()
    run(trained, tmp_path / "other", "survey.parquet")  # other settings, since other sets
    assert json.loads((tmp_path / "other/out/manifest.json").read_text())["specification_hash"] != kept
