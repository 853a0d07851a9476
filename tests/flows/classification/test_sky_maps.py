"""`blr map` on a made catalogue whose truth is known; columns of prediction sets."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.table import Table

import catalogs
from blr.census.prediction_sets import learn_sets
from catalogs.errors import CatalogError, ExpressionError
from catalogs.fits.healpix import read_healpix, write_healpix
from catalogs.profile.split import healpix_pixels
from flows.classification.scoring import sets_of
from flows.classification.sky_maps import make_map
from flows.cli._schemas import schema_of
from flows.cli.app import run as cli
from flows.errors import UsageError
from flows.models.row_files import ROWS_FILE, unseen_rows
from flows.models.store import Store
from flows.request import MapRequest
from flows.runs.manifest import ObjectColumns
from flows.runs.results import MapResult
from flows.specification.toml_file import parse_specification
from tests.flows.conftest import SPECIFICATION, survey
from tests.flows.verbs import classify

N = 3000


@pytest.fixture(scope="module")
def mapped(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with annotated copies `out` of a catalogue with positions, labels of 400, and a sky map."""
    folder = tmp_path_factory.mktemp("mapped")
    rng = np.random.default_rng(5)
    columns = survey(N, seed=11)
    columns["ra"] = rng.uniform(0, 360, N)
    columns["dec"] = np.degrees(np.arcsin(rng.uniform(-1, 1, N)))
    late = np.isin(columns["hubble"], ["Sb", "Sc"])
    early = np.isin(columns["hubble"], ["E", "S0"])
    keep = (late | early) & (columns["type"] == "G")
    columns = {name: values[keep] for name, values in columns.items()}
    pq.write_table(pa.table(columns), folder / "sky.parquet")
    classify([folder / "sky.parquet"], model="morphology", store=trained / "models", out=folder / "out")
    n = int(keep.sum())
    drawn = rng.choice(n, 400, replace=False)
    labels = {"name": columns["name"][drawn], "label": np.where(early[keep][drawn], "early", "late")}
    pd.DataFrame(labels).to_csv(folder / "labels.csv", index=False)
    depth = ("DEPTH", np.linspace(20, 24, 192), "mag", "depth")
    write_healpix(folder / "depth.fits", np.arange(192), [depth], order=2)
    return folder


def truth(folder: Path) -> pd.DataFrame:
    frame = pd.read_parquet(folder / "out/sky.parquet")
    frame["early"] = frame["hubble"].isin(["E", "S0"])
    frame["selected"] = frame["blr_class"] == "early"
    return frame[frame["blr_p_early"].notna()]


def made(folder: Path, tmp_path: Path, **asked: Any) -> MapResult:
    request = {"labels": folder / "labels.csv", "order": 1, "folder": tmp_path / "maps"} | asked
    return make_map(MapRequest(folder / "out", "early", **request))


TRUE = {
    "fraction": lambda f: f.early.mean(),
    "contamination": lambda f: 1 - f[f.selected].early.mean(),
    "completeness": lambda f: f[f.early].selected.mean(),
}


@pytest.mark.parametrize("what", TRUE)
def test_the_truth_lies_in_the_interval_and_the_labels_are_counted(
    mapped: Path, tmp_path: Path, what: str
) -> None:
    result, frame = made(mapped, tmp_path, what=what), truth(mapped)
    whole = result.whole
    assert whole["low"] <= TRUE[what](frame) <= whole["high"]
    assert whole["high"] - whole["low"] < 0.16
    labels = pd.read_csv(mapped / "labels.csv").merge(frame, on="name")
    n, k = {
        "fraction": (len(labels), labels.early.sum()),
        "contamination": (labels.selected.sum(), (labels.selected & ~labels.early).sum()),
        "completeness": (labels.early.sum(), (labels.selected & labels.early).sum()),
    }[what]
    assert (whole["k"], whole["n"]) == (k, n)
    p = frame["blr_p_early"].astype(float)
    expected = {
        "fraction": p.mean(),
        "contamination": 1 - p[frame.selected].mean(),
        "completeness": p[frame.selected].sum() / p.sum(),
    }[what]
    assert whole["expected"] == pytest.approx(expected, abs=1e-6)
    assert result.labelled == len(labels)
    assert result.unmatched == 400 - len(labels)


def test_the_units_that_columns_do_not_say_are_those_of_the_specification() -> None:
    """Radians of columns without units were taken for degrees."""
    catalog = catalogs.open(pa.table({"ra": [1.0], "dec": [0.5]}))
    known = ObjectColumns(ra="ra", dec="dec", unit="rad")
    assert known.place(catalog) == ("ra", "dec", "rad")


def test_others_read_the_map(mapped: Path, tmp_path: Path) -> None:
    result, frame = made(mapped, tmp_path), truth(mapped)
    table = Table.read(result.files[0])
    chosen = frame[frame.selected]
    pixel = healpix_pixels(chosen.ra.to_numpy(), chosen.dec.to_numpy(), 1)
    np.testing.assert_array_equal(table["PIXEL"], np.unique(pixel))
    area = 4 * np.pi * np.degrees(1) ** 2 / 48
    counts = table["DENSITY"].quantity.to_value("deg-2") * area
    np.testing.assert_allclose(counts, np.unique(pixel, return_counts=True)[1])
    assert np.all(table["LOW"] < table["FRACTION"])
    assert np.all(table["FRACTION"] < table["HIGH"])
    assert np.all(table["K_LABELLED"] <= table["N_LABELLED"])
    assert table["N_LABELLED"].sum() == result.whole["n"]
    assert np.any(table["K_LABELLED"] == 0)
    assert "blr map of contamination, class early" in fits.getheader(result.files[0], 1)["HISTORY"][0]
    whole = catalogs.open(result.files[1])
    rows = pa.Table.from_batches(list(whole.batches(whole.names))).to_pandas()
    again = read_healpix(result.files[0], column="FRACTION").at(rows.ra.to_numpy(), rows.dec.to_numpy())
    np.testing.assert_array_equal(rows.fraction, again)
    assert whole.column("density").unit == "deg-2"
    weighted = np.average(table["EXPECTED"], weights=table["DENSITY"])
    assert weighted == pytest.approx(result.whole["expected"])


def test_over_columns_and_sky_maps(mapped: Path, tmp_path: Path) -> None:
    result = made(mapped, tmp_path, over=["bmag - jmag", "depth"], sky_map=[f"depth={mapped / 'depth.fits'}"])
    colour, depth = result.over
    assert (colour["expression"], depth["expression"], depth["unit"]) == ("bmag - jmag", "depth", "mag")
    assert len(colour["bins"]) == 8
    # Early types are the red ones: where objects are red, few of the selected are late.
    assert colour["bins"][-1]["fraction"] < colour["bins"][0]["fraction"]
    assert sum(part["n"] for part in depth["bins"]) == result.whole["n"]
    assert sum(part["objects"] for part in depth["bins"]) == pytest.approx(result.whole["objects"])
    frame = truth(mapped)
    chosen = frame[frame.selected]
    sky = read_healpix(mapped / "depth.fits")
    there = sky.at(chosen.ra.to_numpy(), chosen.dec.to_numpy())
    assert depth["bins"][0]["start"] == pytest.approx(there.min())
    held = []
    for part in depth["bins"]:
        late = np.mean(~chosen.early[(there >= part["start"]) & (there <= part["stop"])])
        held.append(part["low"] <= late <= part["high"])
    assert np.mean(held) >= 0.75


def test_without_labels_it_is_the_classifiers_own(mapped: Path, tmp_path: Path) -> None:
    result = made(mapped, tmp_path, labels=None)
    assert result.whole["expected"] is not None
    assert (result.whole["fraction"], result.whole["low"], result.whole["n"]) == (None, None, 0)
    assert "no labels" in result.remarks[0]
    assert np.isnan(Table.read(result.files[0])["FRACTION"].filled(np.nan)).all()


def test_lists_answer_with_weights(mapped: Path, tmp_path: Path) -> None:
    """Objects that were picked for being uncertain stand for no others; "other" is of no class, "?" is no answer."""
    labels = pd.read_csv(mapped / "labels.csv")
    labels["how"] = np.where(np.arange(400) < 100, "top", "drawn")
    labels.loc[100:139, "label"] = "other"
    labels.loc[380:389, "label"] = "?"
    labels.loc[390:, "label"] = ""
    rare = labels.label.to_numpy() != "early"
    found = []
    for k, weight in enumerate((np.full(400, 3.0), np.where(rare, 10.0, 5.0), np.where(rare, 0.1, 5.0))):
        labels.assign(weight=weight).to_csv(tmp_path / f"{k}.csv", index=False)
        found.append(made(mapped, tmp_path, labels=tmp_path / f"{k}.csv", what="fraction", overwrite=True))
    assert {(result.unanswered, result.labelled + result.unmatched) for result in found} == {(20, 280)}
    assert any("100 objects were chosen because" in remark for remark in found[0].remarks)
    even, few, many = (result.whole["fraction"] for result in found)
    assert few < even < many


def test_the_command_line(mapped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["map", str(mapped / "out"), "--class", "early", "--labels", str(mapped / "labels.csv")]
    arguments += ["--folder", str(tmp_path / "maps"), "--order", "1"]
    assert cli([*arguments, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "planned"
    assert not (tmp_path / "maps").exists()
    with pytest.MonkeyPatch.context() as full:
        full.setattr(
            "flows.classification.sky_maps.write_hats", lambda *_, **__: Path("/dev/full").write_bytes(b"1")
        )
        assert cli(arguments) == 1
    assert list((tmp_path / "maps").iterdir()) == []
    capsys.readouterr()
    assert cli([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema_of("map"))
    assert json.loads((tmp_path / "maps/early-contamination.json").read_text()) == document
    assert cli([*arguments, "--overwrite", "--over", "bmag"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(words in said for words in ("Contamination of early over bmag", "48 pixels of order 1")), said
    assert cli(arguments) != 0
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"order": 9}, UsageError, "--order: got 9, expected at most 8"),
        ({"over": ["bmag -"]}, ExpressionError, "bmag -"),
        ({"over": ["bmagg"]}, CatalogError, "bmagg"),
        ({"label": "klass"}, UsageError, "--label: got 'klass'"),
        ({"identifier": "nom"}, UsageError, "--id: got 'nom'"),
        ({"sky_map": ["depth"]}, UsageError, "--sky-map: got 'depth', expected NAME=FILE"),
        ({"sky_map": ["depth=x.fits@polar"]}, UsageError, "the frame one of equatorial"),
        ({"sky_map": ["depth=none.fits"]}, CatalogError, "is not a file"),
    ],
)
def test_impossible_values_are_refused(
    mapped: Path, tmp_path: Path, asked: dict[str, Any], error: type[Any], message: str
) -> None:
    with pytest.raises(error, match=message):
        made(mapped, tmp_path, **asked)
    assert not (tmp_path / "maps").exists()


def test_labels_that_contradict(mapped: Path, tmp_path: Path) -> None:
    name = truth(mapped).name.iloc[0]
    other = "got the class 'quasar' of .*, expected 'other' or one of the model's: early, late"
    for rows, message in (
        ([(name, "early"), (name, "late")], "got 'early' and 'late' for"),
        ([(name, "quasar")], other),
    ):
        pd.DataFrame(rows, columns=["name", "label"]).to_csv(tmp_path / "labels.csv", index=False)
        with pytest.raises(UsageError, match=message):
            made(mapped, tmp_path, labels=tmp_path / "labels.csv")


SETS = "\n[output]\nsets = 0.9\n"


def run(trained: Path, folder: Path, *names: str, text: str = SETS, **options: Any) -> Any:
    (folder / "sets.toml").write_text((trained / "spec.toml").read_text() + text)
    chosen = {"store": trained / "models", "specification": folder / "sets.toml"} | options
    return classify([trained / name for name in names], model="morphology", out=folder / "out", **chosen)


def test_bits_are_classes_above_their_threshold(trained: Path, tmp_path: Path) -> None:
    result = run(trained, tmp_path, "survey.parquet", "survey.fits")
    table = pq.read_table(tmp_path / "out/survey.parquet")
    assert table.column_names[-1] == "blr_set"
    assert pa.types.is_int32(table["blr_set"].type)
    rows = unseen_rows(Store(trained / "models").find("morphology").folder, classes=2, features=2)
    frame, least = (
        table.to_pandas(),
        learn_sets(rows.probability, rows.y, level=0.9, weight=rows.weight).least,
    )
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
    assert sets.sizes[0] == np.sum(frame["blr_set"] == 0)
    assert sets.sizes[-1] == np.sum(frame["blr_set"] == 3)
    assert sets.classes["late"]["count"] == np.sum(known & (frame["blr_set"] & 2 > 0))
    assert sets.classes["late"]["bit"] == 1
    assert np.dot(sets.sizes, range(3)) == sum(of_class["count"] for of_class in sets.classes.values())
    told = {b"blr.set_bit_0": b"early", b"blr.set_bit_1": b"late", b"blr.set_level": b"0.9"}
    assert told.items() <= table.schema.metadata.items()
    history = " ".join(map(str, fits.getheader(tmp_path / "out/survey.fits", 1)["HISTORY"]))
    assert "blr set_bit_1 = late" in history
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["columns"]["blr_set"]["datatype"] == "int32"
    assert result.summary.sets.source == "held-out"
    both = [one.sets.sizes for one in result.summary.files.values()]
    assert list(result.summary.sets.sizes) == np.add(*both).tolist()


def test_other_class_shares_leave_the_sets_as_they_are(trained: Path, tmp_path: Path) -> None:
    run(trained, tmp_path, "survey.parquet")
    shares = "\n[shift]\nclass_prior = { early = 0.1, late = 0.9 }\n"
    (tmp_path / "other").mkdir()
    run(trained, tmp_path / "other", "survey.parquet", text=shares + SETS)
    plain, moved = (pd.read_parquet(f / "out/survey.parquet") for f in (tmp_path, tmp_path / "other"))
    assert (plain["blr_p_early"] - moved["blr_p_early"]).abs().max() > 0.1
    np.testing.assert_array_equal(plain["blr_set"], moved["blr_set"])


def test_few_labels_of_a_class_fill_the_sets_and_it_is_said(trained: Path) -> None:
    model = Store(trained / "models").load("morphology")
    wanted = parse_specification(SPECIFICATION + "\n[output]\nsets = 0.998\n", source="spec")
    record, _ = sets_of(model, wanted)
    shift = model.specification.shift.model_copy(update={"density_weights": True})
    weighted = replace(model, specification=model.specification.model_copy(update={"shift": shift}))
    assert sets_of(weighted, wanted)[0].source == "cannot be said"
    early = record.classes["early"]
    assert early["least"] is None
    assert early["spread"] == 0
    assert re.fullmatch(r"in every set: \d+ labelled rows, at least 499 are needed at 0.998", early["remark"])


def test_a_model_without_unseen_rows_is_refused_before_any_work(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "models", tmp_path / "models")
    (lost,) = (tmp_path / "models").rglob(ROWS_FILE)
    lost.unlink()
    with pytest.raises(UsageError, match="whose folder has no labelled rows with left-out probabilities"):
        run(trained, tmp_path, "survey.parquet", store=tmp_path / "models")
    assert not (tmp_path / "out").exists()


def test_labels_chosen_by_features_state_no_sets(trained: Path, tmp_path: Path) -> None:
    text = '\n[shift]\nassumes = "features"\n' + SETS
    result = run(trained, tmp_path, "survey.parquet", text=text)
    assert result.summary.sets.source == "cannot be said"
    assert "the labels may be biased" in result.summary.sets.reason
    assert set(pd.read_parquet(tmp_path / "out/survey.parquet")["blr_set"]) == {-1}
    kept = json.loads((tmp_path / "out/manifest.json").read_text())["specification_hash"]
    (tmp_path / "other").mkdir()
    run(trained, tmp_path / "other", "survey.parquet")  # other settings, since other sets
    assert json.loads((tmp_path / "other/out/manifest.json").read_text())["specification_hash"] != kept
