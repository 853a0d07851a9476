"""The specification's `output`: full, slim and selected columns, and thresholds for what is stated."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.table import Table

from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import ColumnNotFoundError, OutputExistsError
from catalogs.files import StorageError
from flows.cli.app import run as cli
from flows.errors import SpecificationError, UsageError
from flows.models.row_files import unseen_rows
from flows.models.store import Store
from flows.specification.toml_file import load_specification, parse_specification
from tests.flows.conftest import SPECIFICATION
from tests.flows.verbs import classify


def run(trained: Path, folder: Path, output: str, *names: str, **options: Any) -> Any:
    """Classify the survey as a specification with that [output] says."""
    inputs = [trained / name for name in names]
    return run_selected(trained, folder, *inputs, text=f"\n[output]\n{output}\n", **options)


def test_full_columns_hold_what_they_say(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, 'columns = "full"', "survey.parquet", "survey.fits")
    table = pq.read_table(tmp_path / "out/survey.parquet").to_pandas()
    names = [c.name for c in standard_columns(["early", "late"], columns="full")]
    assert list(table.columns[-len(names) :]) == names
    known = table.blr_p_late.notna()
    p = np.stack([table.blr_p_early[known], table.blr_p_late[known]], axis=1).astype(float)
    np.testing.assert_allclose(table.blr_entropy[known], -(p * np.log(p)).sum(axis=1), atol=1e-5)
    for c in ("early", "late"):
        assert table[f"blr_low_{c}"][known].le(table[f"blr_high_{c}"][known]).all()
        assert table[f"blr_plugin_{c}"][known].between(0, 1).all()
    mean, sd = table.blr_logit_mean[known].astype(float), table.blr_logit_std[known].astype(float)
    low = 1 / (1 + np.exp(-(mean - 1.959964 * sd)))
    np.testing.assert_allclose(table.blr_low_late[known], low, atol=1e-5)
    for name in ("blr_low_late", "blr_entropy"):
        np.testing.assert_array_equal(fits.getdata(tmp_path / "out/survey.fits")[name], table[name])


def test_slim_copies_keep_the_identity_only_and_need_one(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, 'mode = "slim"', "survey.parquet", "survey.fits")
    table = pq.read_table(tmp_path / "out/survey.parquet")
    names = ["name", *(c.name for c in standard_columns(["early", "late"]))]
    assert table.column_names == names
    assert table["name"].equals(pq.read_table(trained / "survey.parquet")["name"])
    data = fits.getdata(tmp_path / "out/survey.fits")
    assert list(data.names) == names
    np.testing.assert_array_equal(data["blr_p_late"], table["blr_p_late"].to_numpy())
    text = (trained / "spec.toml").read_text().replace('id = "name"\n', "")
    (tmp_path / "spec.toml").write_text(f'{text}\n[output]\nmode = "slim"\n[split]\nby = "type"\n')
    with pytest.raises(SpecificationError, match=re.escape("output.mode: got 'slim' without catalog.id")):
        load_specification(tmp_path / "spec.toml")


def test_slim_copies_of_a_catalogue_without_the_id(trained: Path, tmp_path: Path) -> None:
    bare = pq.read_table(trained / "survey.parquet").rename_columns({"name": "object"})
    pq.write_table(bare, tmp_path / "bare.parquet")
    remedy = "no column 'name', expected by catalog.id of slim copies; .* columns = { 'name' = '...' } under .target"
    with pytest.raises(ColumnNotFoundError, match=remedy):
        run(trained, tmp_path, 'mode = "slim"', str(tmp_path / "bare.parquet"))
    told = 'mode = "slim"\n[target]\ncolumns = { name = "object" }'
    run(trained, tmp_path, told, str(tmp_path / "bare.parquet"))
    assert pq.read_table(tmp_path / "out/bare.parquet").column_names[0] == "object"


def test_slim_copies_are_named_where_there_is_no_room_and_then_have_it(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that has room for a slim copy, and for no whole one."""
    new = sum(c.width or c.datatype.bit_width // 8 for c in standard_columns(["early", "late"]))
    source = trained / "survey.fits"
    slim, whole = 400 * (24 + new), source.stat().st_size + 400 * new
    assert slim < whole
    free = SimpleNamespace(free=(slim + whole) // 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    remedy = r'needs about .*; or ask for slim copies: mode = "slim" under \[output\]'
    with pytest.raises(StorageError, match=remedy):
        run(trained, tmp_path, "", source.name, dry_run=True)
    assert run(trained, tmp_path, 'mode = "slim"', source.name, dry_run=True).status == "planned"
    free.free = slim // 2
    with pytest.raises(StorageError, match=r"on another disk$"):
        run(trained, tmp_path, 'mode = "slim"', source.name, dry_run=True)


def test_copies_in_another_format(trained: Path, tmp_path: Path) -> None:
    """A folder of FITS and its like, damage too: the same rows as Parquet, once, and named so from the start."""
    there = tmp_path / "release"
    there.mkdir()
    for name in ("a.fits", "b.fits", "c.fit"):
        shutil.copy(trained / "survey.fits", there / name)
    (there / "b.fits").write_bytes((there / "a.fits").read_bytes()[:3000])
    spec = tmp_path / "other.toml"
    spec.write_text(f'{(trained / "spec.toml").read_text()}\n[output]\nformat = "parquet"\n')
    given = {"model": "morphology", "store": trained / "models", "specification": spec}
    planned = classify([there], out=tmp_path / "out", dry_run=True, **given)
    told = classify([there], out=tmp_path / "out", **given)
    assert [*planned.files] == ["a.parquet", "c.parquet"]
    assert [*told.quarantined] == ["b.parquet"]
    assert {p.name for p in (tmp_path / "out").glob("?.*")} == {"a.parquet", "c.parquet"}

    classify([trained / "survey.parquet"], out=tmp_path / "same", **(given | {"specification": None}))
    expected = pq.read_table(tmp_path / "same" / "survey.parquet")
    for name in ("a.parquet", "c.parquet"):
        found = pq.read_table(tmp_path / "out" / name)
        for column in (c for c in expected.column_names if c.startswith("blr_")):
            assert found[column].cast(expected[column].type).equals(expected[column]) or (
                np.array_equal(found[column].to_numpy(), expected[column].to_numpy(), equal_nan=True)
            )
    assert classify([there], out=tmp_path / "out", **given).status == "nothing to do"
    (tmp_path / "out" / "c.parquet").unlink()
    shutil.copy(trained / "survey.fits", there / "b.fits")
    again = classify([there], out=tmp_path / "out", **given)
    assert (again.status, again.quarantined) == ("done", {})
    assert {name for name, file in again.files.items() if file["why"]} == {"b.parquet", "c.parquet"}
    with pytest.raises(OutputExistsError, match="of another specification"):
        classify([there / "a.fits"], out=tmp_path / "out", **given, output_format="same")


def test_what_another_format_has_no_place_for_is_said(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pq.read_table(trained / "survey.parquet")
    notes = pa.array([None, "été", "plain"] * table.num_rows)[: table.num_rows]
    pq.write_table(table.append_column("note", notes), tmp_path / "survey.parquet")
    command = ["classify", str(tmp_path / "survey.parquet"), "--model", "morphology"]
    command += ["--store", str(trained / "models"), "--out", str(tmp_path / "out"), "--direct"]
    assert cli([*command, "--format", "fits"]) == 0
    assert "survey.fits: 'note': nulls become empty text" in capsys.readouterr().err
    assert "note" in fits.getdata(tmp_path / "out" / "survey.fits").names
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    left = summary["files"]["survey.fits"]["left_behind"]
    assert [said.split(": ")[0] for said in left] == ["'note'", "'note'"]


FLAGS = "\n[flags]\npurity = { late = 0.9 }\ncompleteness = { early = 0.8 }\n"
SELECTED = FLAGS + "\n[output]\nselected = true\n"
COLUMNS = ["blr_selected_early", "blr_selected_late"]


def run_selected(trained: Path, folder: Path, *inputs: Path, text: str = SELECTED, **options: Any) -> Any:
    path = folder / "selected.toml"
    path.write_text((trained / "spec.toml").read_text() + text)
    places = {"model": "morphology", "store": trained / "models", "out": folder / "out"}
    return classify(list(inputs), specification=path, **places, **options)


def some_rows(trained: Path, folder: Path) -> Path:
    """Return a catalogue of the survey's first 60 rows."""
    path = folder / "some.parquet"
    pq.write_table(pq.read_table(trained / "survey.parquet").slice(0, 60), path)
    return path


def thresholds(out: Path) -> dict[str, Any]:
    return json.loads((out / "manifest.json").read_text())["selected"]


def test_columns_are_probabilities_from_their_threshold(trained: Path, tmp_path: Path) -> None:
    Table.read(trained / "survey.fits").write(tmp_path / "survey.vot", format="votable")
    inputs = trained / "survey.parquet", trained / "survey.fits", tmp_path / "survey.vot"
    run_selected(trained, tmp_path, *inputs)
    table = pq.read_table(tmp_path / "out/survey.parquet")
    assert table.column_names[-2:] == COLUMNS
    frame, said = table.to_pandas(), thresholds(tmp_path / "out")
    in_fits = fits.getdata(tmp_path / "out/survey.fits")
    in_votable = Table.read(tmp_path / "out/survey.vot")
    for name, stated in zip(COLUMNS, ("completeness 0.8", "purity 0.9"), strict=True):
        assert pa.types.is_boolean(table[name].type)
        assert said[name]["stated"] == stated
        p = frame[f"blr_p_{said[name]['class_name']}"]
        np.testing.assert_array_equal(frame[name], p >= said[name]["threshold"])
        np.testing.assert_array_equal(frame[name], p.astype(float) >= said[name]["threshold"])
        np.testing.assert_array_equal(in_fits[name], frame[name])
        np.testing.assert_array_equal(in_votable[name], frame[name])
    metadata = table.schema.metadata
    words = metadata[b"blr.threshold_blr_selected_late"].decode()
    assert words.startswith(
        f"p of late >= {said['blr_selected_late']['threshold']!r}, for purity 0.9; expected 0.9"
    )
    assert b"unseen" not in metadata[b"blr.thresholds_from"]


@pytest.fixture(scope="module")
def selected(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the release of the survey; not to be written to."""
    folder = tmp_path_factory.mktemp("selected")
    run_selected(trained, folder, trained / "survey.parquet", threads=1)
    return folder / "out"


def test_thresholds_are_those_of_the_labelled_rows(trained: Path, selected: Path) -> None:
    """By the slow way: purity and completeness counted at each threshold."""
    said = thresholds(selected)
    rows = unseen_rows(Store(trained / "models").find("morphology").folder, classes=2, features=2)
    late = rows.probability[:, 1] >= said["blr_selected_late"]["threshold"]
    early = rows.probability[:, 0] >= said["blr_selected_early"]["threshold"]
    assert np.average(rows.y[late] == 1, weights=rows.weight[late]) == pytest.approx(0.9, abs=0.05)
    of_class = (rows.y == 0) & np.isfinite(rows.probability[:, 0])
    assert np.average(early[of_class], weights=rows.weight[of_class]) == pytest.approx(0.8, abs=0.05)


def test_the_census_judges_the_column(trained: Path, selected: Path, tmp_path: Path) -> None:
    out = selected
    summary = json.loads((out / "summary.json").read_text())
    (one,) = (s for s in summary["census"]["classes"]["late"]["selections"] if s.get("column"))
    column = pd.read_parquet(out / "survey.parquet")["blr_selected_late"]
    assert (one["column"], one["stated"], one["objects"]) == ("blr_selected_late", "purity 0.9", column.sum())
    assert one["purity_low"] < 0.9
    (tmp_path / "less").mkdir()
    less = SELECTED.replace("0.9", "0.8")
    run_selected(trained, tmp_path / "less", some_rows(trained, tmp_path), text=less)
    manifests = [(f / "manifest.json").read_text() for f in (out, tmp_path / "less/out")]
    hashes = [json.loads(text)["specification_hash"] for text in manifests]
    assert hashes[0] != hashes[1]  # copies depend on what is stated
    assert cli(["census", str(out), "--store", str(trained / "models"), "--dry-run"]) == 0


def test_other_class_shares_move_the_threshold_of_a_purity_alone(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    text = SELECTED.replace("0.9", "0.75")
    run_selected(trained, tmp_path, trained / "survey.parquet", text=text)
    shares = "\n[shift]\nclass_prior = { early = 0.6, late = 0.4 }\n"
    run_selected(trained, tmp_path / "other", trained / "survey.parquet", text=shares + text)
    plain, moved = (thresholds(f / "out") for f in (tmp_path, tmp_path / "other"))
    assert plain["blr_selected_early"] == moved["blr_selected_early"]
    assert moved["blr_selected_late"]["threshold"] > plain["blr_selected_late"]["threshold"]
    frames = [pd.read_parquet(f / "out/survey.parquet") for f in (tmp_path, tmp_path / "other")]
    np.testing.assert_array_equal(frames[0][COLUMNS[0]], frames[1][COLUMNS[0]])
    p = frames[0]["blr_p_late"]  # at the class shares of the training
    np.testing.assert_array_equal(frames[1][COLUMNS[1]], p >= moved["blr_selected_late"]["threshold"])


def test_a_text_table_is_annotated_again(trained: Path, tmp_path: Path) -> None:
    """A CSV file has no place for metadata: its columns are known by themselves, those of prediction sets too."""
    pd.read_parquet(trained / "survey.parquet").to_csv(tmp_path / "survey.csv", index=False)
    run_selected(trained, tmp_path, tmp_path / "survey.csv", text=f"{SELECTED}sets = 0.9\n")
    once = tmp_path / "out/survey.csv"
    (tmp_path / "again").mkdir()
    run_selected(trained, tmp_path / "again", once, text=f"{SELECTED}sets = 0.9\n")
    assert (tmp_path / "again/out/survey.csv").read_text() == once.read_text()
    places = {"model": "morphology", "store": trained / "models", "out": tmp_path / "plain"}
    classify([once], **places)
    assert not {*COLUMNS, "blr_set"} & set(pd.read_csv(tmp_path / "plain/survey.csv").columns)


SETS = "\n[output]\nsets = 0.9\n"
MANY = "classes = {" + ", ".join(f"c{i} = ['{i}']" for i in range(32)) + "}"
BINS = FLAGS + '\n[census]\nby = "j_k"\nedges = [0.9, 1.1]\n\n[output]\nselected = "bins"\n'
NAMES = ["j_k < 0.9", "0.9 <= j_k < 1.1", "j_k >= 1.1", "j_k: missing"]


def binned(frame: pd.DataFrame) -> np.ndarray:
    """Return the bin of each object, by the slow way."""
    colour = (frame.jmag - frame.kmag).where(frame.jmag > 0)
    return np.array([NAMES[3] if np.isnan(x) else NAMES[(x >= 0.9) + (x >= 1.1)] for x in colour])


def test_a_threshold_in_each_bin(trained: Path, tmp_path: Path) -> None:
    run_selected(trained, tmp_path, trained / "survey.parquet", trained / "survey.fits", text=BINS)
    out = tmp_path / "out"
    table, said = pq.read_table(out / "survey.parquet"), thresholds(out)
    frame = table.to_pandas()
    place = binned(frame)
    for name, stated in zip(COLUMNS, ("completeness 0.8", "purity 0.9"), strict=True):
        column = said[name]
        assert (column["stated"], column["by"], column["edges"]) == (stated, "j_k", [0.9, 1.1])
        assert column["threshold"] is None
        assert set(column["thresholds"]) <= set(NAMES)
        assert len(set(column["thresholds"].values())) > 1
        least = np.array([column["thresholds"].get(b, np.inf) for b in place])
        p = frame[f"blr_p_{column['class_name']}"]
        np.testing.assert_array_equal(frame[name], (p >= least) & p.notna())
        assert frame[name].any()
        np.testing.assert_array_equal(fits.getdata(out / "survey.fits")[name], frame[name])
        words = table.schema.metadata[f"blr.threshold_{name}".encode()].decode()
        for bin_name in NAMES:
            least_said = column["thresholds"].get(bin_name)
            assert f"{bin_name}: {'none selected' if least_said is None else least_said}" in words
    header = fits.getheader(out / "survey.fits", 1)
    assert "its bin's" in "".join(map(str, header["HISTORY"])).replace("\n", "")


def test_the_census_judges_a_column_by_bins(trained: Path, selected: Path, tmp_path: Path) -> None:
    run_selected(trained, tmp_path, trained / "survey.parquet", text=BINS)
    out = tmp_path / "out"
    frame = pd.read_parquet(out / "survey.parquet")
    census = json.loads((out / "summary.json").read_text())["census"]
    (one,) = (s for s in census["classes"]["late"]["selections"] if s.get("column"))
    assert (one["threshold"], one["objects"]) == (None, frame["blr_selected_late"].sum())
    place = binned(frame)
    for found in census["bins"]["bins"]:
        own = [s for s in found["classes"]["late"]["selections"] if s.get("column")]
        n = frame["blr_selected_late"][place == found["name"]].sum()
        assert [s["objects"] for s in own] == ([n] if n else [])
    # The copies depend on the bins, but only where columns do.
    folders, some = [out, selected], some_rows(trained, tmp_path)
    for text in (BINS.replace("1.1]", "1.2]"), SELECTED + '\n[census]\nby = "j_k"\n'):
        folder = tmp_path / str(len(folders))
        folder.mkdir()
        run_selected(trained, folder, some, text=text)
        folders.append(folder / "out")
    hashes = [json.loads((f / "manifest.json").read_text())["specification_hash"] for f in folders]
    assert len(set(hashes)) == 3
    assert hashes[1] == hashes[3]
    assert cli(["census", str(out), "--store", str(trained / "models"), "--by", "b_j"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BINS.replace('"j_k"', '"kmag"'), "got 'kmag'"),
        (BINS.replace("late = 0.9", "late = 0.999999"), "expected a value that some threshold reaches"),
        (SELECTED.replace("late = 0.9", "late = 0.999999"), "expected a value that some threshold reaches"),
        ('\n[shift]\nassumes = "features"\n' + SELECTED, "may be biased"),
        (SELECTED.replace("late =", "lat ="), "got the class 'lat'"),
    ],
)
def test_what_no_labelled_row_supports_is_refused(
    trained: Path, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises((UsageError, SpecificationError), match=message):
        run_selected(trained, tmp_path, trained / "survey.parquet", text=text)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "label", "message"),
    [
        ("\n[output]\nselected = true\n", "", "no purity or completeness of a class"),
        (SELECTED.replace("early =", "late ="), "", "expected one of the two"),
        (FLAGS + '\n[output]\nselected = "bins"\n', "", "without census.by"),
        (SELECTED, 'column = "hubble"\nnoise = "estimated"', "got true with label.noise"),
        (SETS, 'column = "hubble"\nnoise = "estimated"', "output.sets: got a share with label.noise"),
        (SETS, 'votes = { early = "bmag", late = "kmag" }', r"output.sets: got a share with \[label.votes\]"),
        (SETS, f'column = "hubble"\n{MANY}', "output.sets: got 32 classes, expected at most 31"),
    ],
)
def test_specifications_that_allow_no_such_column(more: str, label: str, message: str) -> None:
    text = SPECIFICATION
    if label:
        text = re.sub(r"(?s)(\[label\]\n).*(\[features\])", rf"\1{label}\n\2", text)
    with pytest.raises(SpecificationError, match=message):
        parse_specification(text + more, source="spec")


def test_a_release_of_selected_columns_is_checked_and_scored_again(
    trained: Path,
    selected: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """Thresholds are learnt from the labelled rows: the draft has them; the columns are boolean."""
    monkeypatch.chdir(tmp_path)
    of_run = ("--run", str(selected), "--spec", str(selected.parent / "selected.toml"))
    assert cli(["release", "draft", "survey", "1.0", *of_run, "--store", str(trained / "models")]) == 0
    assert cli(["release", "check", "survey", "1.0"]) == 0
    spec = ("--spec", str(selected.parent / "selected.toml"))
    replay = ("--store", str(trained / "models"), "--rows", "50", *spec)
    assert cli(["release", "replay", str(selected / "survey.parquet"), *replay]) == 0
    assert "gives the published values" in capsys.readouterr().out
