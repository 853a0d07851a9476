"""`blr explain` finds an object in files of several formats; two annotations of a file are compared."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import Table

import catalogs
from blr.decisions import Flag
from flows.classification import release_changes as difference
from flows.classification.explanation import explain
from flows.classification.release_changes import Annotation, compare
from flows.cli.app import run
from flows.documents import from_document, to_document
from flows.errors import ModelError, UsageError
from flows.inputs.opening import find_object, read_object
from flows.models.row_files import ROWS_FILE, labelled_objects, write_rows
from flows.models.store import Store
from flows.reports.catalogue_page import explanation_page, explanation_sentences, logit_sentence
from flows.request import ExplainRequest
from flows.runs.manifest import Manifest
from flows.runs.results import Difference
from flows.tables import classify_table
from tests.flows.verbs import classify, train


def asked(trained: Path, identifier: str, file: str = "survey.parquet", **named: object) -> Any:
    """Return the explanation of an object of the survey."""
    named["store"] = trained / "models"
    return explain(ExplainRequest(str(trained / file), identifier, "morphology", **named))


@pytest.fixture(scope="module")
def classified(trained: Path) -> Any:
    """Return the survey as the model classifies it."""
    table = pq.read_table(trained / "survey.parquet")
    return classify_table(table, model="morphology", store=trained / "models")


def test_a_model_of_labels_that_may_be_wrong_is_explained(tmp_path: Path) -> None:
    x = np.random.default_rng(5).normal(size=200)
    names = [f"G{i}" for i in range(200)]
    table = pd.DataFrame({"name": names, "x": x, "kind": np.where(x > 0, "late", "early")})
    table.to_csv(tmp_path / "c.csv", index=False)
    (tmp_path / "spec.toml").write_text(
        'name = "noisy"\n[catalog]\npaths = ["c.csv"]\nid = "name"\n[label]\ncolumn = "kind"\nnoise = 0.1\n'
        '[split]\nheld_out = 0\n[features]\nx = "x"\n'
    )
    train(tmp_path / "spec.toml", tmp_path / "models")
    found = explain(ExplainRequest(str(tmp_path / "c.csv"), "G3", "noisy", store=tmp_path / "models"))
    for c in found.probabilities:
        assert abs(c["sampled"] - c["moderated"]) < 4 * c["sampled_error"] + 2e-3


def test_it_says_what_the_catalogue_gets(trained: Path, classified: Path) -> None:
    row = int(np.argmax(classified["blr_p_max"].to_numpy() > 0.6))
    told = classified.slice(row, 1).to_pylist()[0]
    found = asked(trained, told["name"])
    assert (found.name, found.row, found.n_rows) == (told["blr_class"], row, 1)
    for c in found.probabilities:
        assert c["moderated"] == pytest.approx(told[f"blr_p_{c['name']}"], abs=1e-6)
        assert abs(c["sampled"] - c["moderated"]) < 4 * c["sampled_error"] + 2e-3
    assert sum(1 << flag["bit"] for flag in found.flags) == told["blr_flags"]
    assert found.logit == pytest.approx(
        found.reference + found.shift + sum(c["contribution"] or 0.0 for c in found.contributions)
    )
    sizes = [abs(c["contribution"]) for c in found.contributions if c["contribution"] is not None]
    assert sizes == sorted(sizes, reverse=True)
    # A logit and its error are not taken for probabilities.
    said = logit_sentence(found)
    words = f"Logit of {found.name} against {found.runner_up}, in nats and no probability: "
    assert said.startswith(f"{words}{found.logit:+.2f} ± {found.logit_std:.2f}.")
    assert said in explanation_page(found)
    assert logit_sentence(replace(found, logit=None, logit_std=None)) == ""


def test_a_labelled_object_is_not_among_the_labelled_ones_like_it(trained: Path) -> None:
    objects = labelled_objects(Store(trained / "models").find("morphology").folder, classes=2, features=2)
    complete = int(np.flatnonzero(np.isfinite(objects["X"]).all(axis=1))[0])
    name = objects["identifier"][complete].decode()
    found = asked(trained, name)
    assert name not in {o["identifier"] for o in found.nearest}
    assert found.nearest[0]["distance"] > 0
    assert len(found.nearest) == 5
    assert all(o["links"] for o in found.nearest) == bool(np.isfinite(objects["position"]).all())


def test_what_is_missing_is_said(trained: Path, tmp_path: Path) -> None:
    table = pq.read_table(trained / "survey.parquet").slice(0, 1)
    table = table.set_column(table.column_names.index("kmag"), "kmag", pa.array([np.nan]))
    pq.write_table(table, tmp_path / "one.parquet")
    found = asked(trained, table["name"][0].as_py(), str(tmp_path / "one.parquet"))
    assert found.missing == ("j_k",)
    assert [c["name"] for c in found.contributions if c["value"] is None] == ["j_k"]
    assert "Not known of it: j_k. These were integrated out." in explanation_sentences(found)
    assert "missing" in explanation_page(found)


def test_an_object_of_which_nothing_is_known_has_no_class_and_one_that_is_not_there_is_an_error(
    trained: Path, classified: Path
) -> None:
    row = int(np.flatnonzero(classified["blr_flags"].to_numpy() & 32)[0])
    found = asked(trained, classified["name"][row].as_py())
    assert (found.name, found.logit, found.contributions, found.nearest) == (None, None, (), ())
    assert "UNCLASSIFIABLE" in explanation_sentences(found)[0]
    assert "no class" in explanation_page(found)
    with pytest.raises(UsageError, match=r"--id: got 'nobody', which no row of .*survey.parquet"):
        asked(trained, "nobody")
    with pytest.raises(UsageError, match=r"got 'idd', expected the column with the names of the objects"):
        asked(trained, "nobody", id_column="idd")


def test_the_command_prints_one_document_and_writes_a_page(
    trained: Path, classified: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = classified["name"][3].as_py()
    page = tmp_path / "why.html"
    arguments = ["explain", str(trained / "survey.parquet"), "--id", name, "--model", "morphology"]
    arguments += ["--store", str(trained / "models")]
    assert run([*arguments, "--json", "--html", str(page)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["identifier"] == name
    text = page.read_text()
    assert document["name"] in text
    assert not re.search(r"<(script|img|link)\b", text)
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.index("Probabilities") < shown.index("What speaks for")
    assert "Labelled objects that are like it" in shown


def test_a_copy_names_the_model_that_made_it(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From anywhere, and of a file or of a whole folder in two formats; a file that is no copy needs `--model`."""
    out = tmp_path / "out"
    files = [trained / "survey.fits", trained / "survey.parquet"]
    done = classify(files, model="morphology", store=trained / "models", out=out)
    name = pq.read_table(trained / "survey.parquet")["name"][3].as_py()
    monkeypatch.chdir(tmp_path)
    for catalogue in ("out/survey.parquet", "out", str(out / "survey.parquet")):
        assert run(["explain", catalogue, "--id", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["model"] == done.model
    assert run(["explain", str(trained / "survey.parquet"), "--id", name]) == 2
    assert "--model: got none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "wanted", "rows"),
    [
        (pa.array([5, 7, None, 7]), "7", [1, 3]),
        (pa.array([5.0, 7.0, np.nan, 7.0]), "7", [1, 3]),
        (pa.array([" a", "b ", None, "b"]), "b", [1, 3]),
        (pa.array(["a", "b", "c", "b"]).dictionary_encode(), "b", [1, 3]),
        (pa.array([2**60 + 1, 2**60 + 2], pa.int64()), str(2**60 + 2), [1]),
        (pa.array([1, 2]), "seven", []),
        (pa.array(["007"]), "7", []),
        (pa.array([b"\xff" * 16], pa.uuid()), "7", []),
    ],
)
def test_an_object_is_found_by_text_and_by_number(
    tmp_path: Path, values: Any, wanted: str, rows: list[Any]
) -> None:
    pq.write_table(pa.table({"name": values, "x": np.arange(len(values))}), tmp_path / "t.parquet")
    found = find_object(catalogs.open(tmp_path / "t.parquet"), "name", wanted)
    assert (found and found[1:]) == ((rows[0], len(rows)) if rows else None)
    assert not found or read_object(found, ("x",)).column(0).to_pylist() == rows[:1]


def test_labelled_objects_come_back(tmp_path: Path) -> None:
    objects = {
        "identifier": np.array(["ä".encode(), b"", b"c"]),
        "position": np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]]),
        "target": np.array([0, 1, 0]),
        "X": np.array([[1.0], [np.nan], [2.0]]),
    }
    write_rows({**objects, "fitted": np.ones(3, dtype=bool)}, tmp_path)
    again = labelled_objects(tmp_path, classes=2, features=1)
    for name, column in objects.items():
        np.testing.assert_array_equal(again[name], column)
    assert not len(labelled_objects(tmp_path / "elsewhere", classes=2, features=1))
    with pytest.raises(ModelError, match="expected 2 classes and 3"):
        labelled_objects(tmp_path, classes=2, features=3)
    (tmp_path / ROWS_FILE).write_bytes(b"no parquet")
    with pytest.raises(ModelError, match="cannot be read as the table of labelled rows"):
        labelled_objects(tmp_path, classes=2, features=1)


def test_the_report_of_a_classification_explains_the_first_objects(trained: Path, tmp_path: Path) -> None:
    """With the contributions and neighbours that `blr explain` gives, from features kept on the way."""
    out = tmp_path / "out"
    classify([trained / "survey.parquet"], model="morphology", store=trained / "models", out=out)
    doubtful = [dict(one) for one in Manifest.read(out).outputs[0].summary.doubtful]
    kept = [one for one in doubtful if one.get("features")]
    assert doubtful[:3] == kept
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("The labelled objects most like it") == 3
    for one in kept:
        explained = asked(trained, one["id"])
        assert one["classes"] == (explained.name, explained.runner_up)
        for c in explained.contributions:
            value = "missing" if c["value"] is None else f"{c['value']:.4g}"
            said = "" if c["contribution"] is None else f"{c['contribution']:+.2f} ± {c['std']:.2f}"
            row = rf"{c['name']}</td>\s*<td[^>]*>{value}</td>\s*<td[^>]*>[^<]*</td>\s*<td[^>]*>{re.escape(said)}</td>"
            assert re.search(row, page), (c, row)
        like = ", ".join(f"{o['identifier']} ({o['name']})" for o in explained.nearest)
        assert f"The labelled objects most like it: {like}." in page


CLASSES = ("early", "late type")


def annotated(n: int, seed: int, ids: Any = None) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    p = rng.random(n).astype(np.float32)
    gone = rng.random(n) < 0.1
    return pd.DataFrame(
        {
            "name": [f"G{i}" for i in range(n)] if ids is None else ids,
            "blr_class": np.where(gone, "", np.where(p < 0.5, *CLASSES)),
            "blr_p_early": np.where(gone, np.nan, 1 - p).astype(np.float32),
            "blr_p_late_type": np.where(gone, np.nan, p).astype(np.float32),
            "blr_flags": np.where(gone, int(Flag.UNCLASSIFIABLE), rng.integers(0, 8, n)).astype(np.int32),
        }
    )


def written(path: Path, frame: pd.DataFrame) -> Annotation:
    if path.suffix == ".fits":
        Table.from_pandas(frame).write(path, overwrite=True)
    else:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=97)
    return path, "blr_", CLASSES


def expected(old: pd.DataFrame, new: pd.DataFrame) -> dict:
    """Return the counts of rows that are matched by position already."""
    changed = (old.blr_class.to_numpy() != new.blr_class.to_numpy()).sum()
    columns = ["blr_p_early", "blr_p_late_type"]
    moves = np.abs(old[columns].to_numpy() - new[columns].to_numpy()).max(axis=1)
    before, after = old.blr_flags.to_numpy(), new.blr_flags.to_numpy()
    return {
        "compared": len(old),
        "class_changed": changed,
        "moved": (np.nan_to_num(moves) > difference.MOVED).sum(),
        "flag_changed": (before != after).sum(),
        "flags_gained": {f.name: ((after & ~before) & int(f) > 0).sum() for f in Flag},
        "flags_lost": {f.name: ((before & ~after) & int(f) > 0).sum() for f in Flag},
    }


@pytest.mark.parametrize("suffix", [".parquet", ".fits"])
def test_by_row(tmp_path: Path, suffix: str) -> None:
    old, new = annotated(1000, 1), annotated(1000, 2)
    a, b = written(tmp_path / f"a{suffix}", old), written(tmp_path / f"b{suffix}", new)
    told = compare(a, b, id_column="name", by_row=True)
    assert told.matched_by == "row"
    assert expected(old, new).items() <= vars(told).items()
    pairs = Counter(zip(old.blr_class, new.blr_class, strict=True))
    moved = {(was, now): n for (was, now), n in pairs.items() if was != now}
    assert {(t["was"], t["now"]): t["objects"] for t in told.transitions} == moved
    assert len(told.examples) == difference.MOST_EXAMPLES
    assert told.examples[0]["moved"] == told.largest_move
    document = json.loads(json.dumps(to_document(told), allow_nan=False))
    assert from_document(Difference, document, source="a record") == told
    assert [*document["examples"][0]] == ["id", "was", "now", "moved"]


@pytest.mark.parametrize("kind", ["text", "int64", "int32 and int64", "float"])
def test_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(difference, "ROWS_AT_ONCE", 100)
    rng = np.random.default_rng(3)
    ids = rng.permutation(5000)[:1200] - 2500
    as_kind = {
        "text": (lambda x: [f"G{i}" for i in x],) * 2,
        "int64": (lambda x: x.astype(np.int64),) * 2,
        "int32 and int64": (lambda x: x.astype(np.int32), lambda x: x.astype(np.int64)),
        "float": (lambda x: x / 7,) * 2,
    }[kind]
    old = annotated(1000, 1, as_kind[0](ids[:1000]))
    new = annotated(1000, 2, as_kind[1](rng.permutation(ids[200:])))
    a, b = written(tmp_path / "a.parquet", old), written(tmp_path / "b.parquet", new)
    told = compare(a, b, id_column="name", by_row=False)
    both = old.merge(new, on="name", suffixes=("_old", "_new"))
    columns = [c for c in old if c != "name"]
    one = both[[f"{c}_old" for c in columns]].set_axis(columns, axis=1)
    other = both[[f"{c}_new" for c in columns]].set_axis(columns, axis=1)
    assert told.matched_by == "id"
    assert expected(one, other).items() <= vars(told).items()
    assert (told.appeared, told.vanished) == (200, 200)


def test_an_object_twice_is_compared_with_its_first_and_a_prefix_with_another(tmp_path: Path) -> None:
    old, new = annotated(4, 1, ["a", "b", "a", "c"]), annotated(4, 1, ["a", "b", "a", "a"])
    a, b = written(tmp_path / "a.parquet", old), written(tmp_path / "b.parquet", new)
    told = compare(a, b, id_column="name", by_row=False)
    assert (told.compared, told.appeared, told.vanished) == (4, 0, 1)
    old, new = annotated(50, 1), annotated(50, 1)
    new = new.rename(columns=lambda c: c.replace("blr_", "x_")).rename(columns={"x_p_early": "x_p_E"})
    a, b = written(tmp_path / "a.parquet", old), written(tmp_path / "b.parquet", new)[0]
    told = compare(a, (b, "x_", ("E", "late type")), id_column="name", by_row=True)
    assert (told.compared, told.moved, told.class_changed) == (50, 0, 0)


@pytest.mark.parametrize("n", [0, 3])
def test_nothing_to_match_by(tmp_path: Path, n: int) -> None:
    a, b = written(tmp_path / "a.parquet", annotated(2, 1)), written(tmp_path / "b.parquet", annotated(n, 2))
    told = compare(a, b, id_column=None, by_row=False)
    assert (told.matched_by, told.compared, told.appeared, told.vanished) == ("nothing", 0, n, 2)
    told = compare(a, b, id_column="name", by_row=False)
    assert (told.compared + told.appeared, told.compared + told.vanished) == (n, 2)
