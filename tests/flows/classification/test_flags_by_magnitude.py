"""Without positions, a report shows what is flagged by magnitude.

The counts are those of the copies' rows, in whatever files and pieces these come.
"""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from blr.decisions import WORTH_A_LOOK
from tests.flows.verbs import classify, train

BINS = 12
"""Tenths of the training rows, and what is beyond both ends."""


@pytest.fixture(scope="module")
def folder(make: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with models with and without a magnitude, and catalogues; not to be written to."""
    folder = tmp_path_factory.mktemp("magnitudes")
    make.parquet(folder / "survey.parquet", make.survey())
    for name, more in (("bright", 'kmag = "kmag"\n'), ("colours", "")):
        text = make.specification.replace('"morphology"', f'"{name}"')
        text = text[: text.rindex("[[candidate]]")].replace("[[candidate]]", f"{more}[[candidate]]", 1)
        (folder / f"{name}.toml").write_text(f"{text}\n[target]\nwhere = \"type == 'G'\"\n")
        train(folder / f"{name}.toml", folder / "models")
    deep = make.survey(600, seed=7)
    for band in ("bmag", "kmag"):
        deep[band] = deep[band] + 0.8  # some are fainter than any labelled one
    deep["kmag"][::9] = np.nan
    make.parquet(folder / "deep.parquet", deep)
    unknown = {key: np.full(40, np.nan) if key.endswith("mag") else x[:40] for key, x in deep.items()}
    make.parquet(folder / "unknown.parquet", unknown)
    return folder


def shown(folder: Path, out: Path, *names: str, model: str = "bright") -> dict[str, Any]:
    """Classify catalogues; return what the report shows."""
    inputs = [folder / f"{name}.parquet" for name in names]
    classify(inputs, model=model, store=folder / "models", out=out)
    content: dict[str, Any] = json.loads((out / "_report/shown.json").read_text())
    return content


def picture(out: Path, title: str) -> str:
    """Return the SVG of the picture with a title that is the second of the report."""
    figure = r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]*)">\s*<figcaption><b>\2<'
    image, found = re.findall(figure, (out / "report.html").read_text())[1]
    assert found == title
    return base64.b64decode(image).decode()


def test_counts_are_those_of_the_rows(folder: Path, tmp_path: Path) -> None:
    """Each magnitude by hand against the tenths of the labelled rows."""
    flagged = shown(folder, tmp_path / "out", "deep")["flagged"]
    assert flagged["name"] == "kmag"
    edges = np.array(flagged["edges"])
    assert len(edges) == BINS - 1
    rows = pq.read_table(tmp_path / "out/deep.parquet").to_pandas()
    rows = rows[rows.type == "G"]
    look = (rows.blr_flags.to_numpy() & WORTH_A_LOOK) != 0
    bins = [
        rows.kmag < edges[0],
        *((rows.kmag >= low) & (rows.kmag < high) for low, high in pairwise(edges)),
        rows.kmag >= edges[-1],
        rows.kmag.isna(),
    ]
    assert flagged["n"] == [int(inside.sum()) for inside in bins]
    assert flagged["flagged"] == [int((inside & look).sum()) for inside in bins]
    assert min(flagged["n"][-3:]) > 0  # the last tenth, beyond the labelled rows, and without a value
    labelled = pq.read_table(folder / "survey.parquet").to_pandas()
    labelled = labelled[(labelled.type == "G") & labelled.hubble.isin(["E", "S0", "Sb", "Sc"])].kmag
    assert edges[0] == labelled.min()
    assert edges[-1] == pytest.approx(labelled.max())
    text = picture(tmp_path / "out", "What needs a look, by kmag")
    assert ">kmag (mag)</text>" in text
    assert ">none</text>" in text


def test_a_model_without_a_magnitude_has_no_such_picture(folder: Path, tmp_path: Path) -> None:
    assert "flagged" not in shown(folder, tmp_path / "out", "deep", model="colours")
    assert "What needs a look, by" not in (tmp_path / "out/report.html").read_text()


def test_without_any_value_the_answer_is_no(folder: Path, tmp_path: Path) -> None:
    assert "flagged" not in shown(folder, tmp_path / "out", "unknown")
    page = (tmp_path / "out/report.html").read_text()
    assert "What needs a look, by" not in page
    assert "No: none of these objects has a class." in page


def test_positions_have_the_map_of_the_sky(make: SimpleNamespace, tmp_path: Path) -> None:
    place = {"ra": np.linspace(10, 20, 400), "dec": np.linspace(-5, 5, 400)}
    make.parquet(tmp_path / "survey.parquet", make.survey() | place, ra="deg", dec="deg")
    text = make.specification.replace('id = "name"', 'id = "name"\nra = "ra"\ndec = "dec"')
    (tmp_path / "spec.toml").write_text(text)
    train(tmp_path / "spec.toml", tmp_path / "models")
    content = shown(tmp_path, tmp_path / "out", "survey", model="morphology")
    assert content["sky"] is not None
    assert picture(tmp_path / "out", "What needs a look, on the sky")
