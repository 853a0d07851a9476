"""The manifest of an output folder: what is no manifest is refused, and what was lost is known to be lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from catalogs.errors import CatalogError
from flows.runs.manifest import MANIFEST, SUMMARY, Manifest
from tests.flows.verbs import classify


@pytest.fixture(scope="module")
def annotated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an output folder of two files."""
    inputs = tmp_path_factory.mktemp("tiles")
    for name in ("a.parquet", "b.parquet"):
        shutil.copy(trained / "survey.parquet", inputs / name)
    out = tmp_path_factory.mktemp("annotated")
    classify([str(inputs)], "morphology", trained / "models", out)
    return out


def changed(annotated: Path, folder: Path, document: str, **keys: Any) -> Path:
    """Return a folder with the manifest and the summary; some keys of one document have other values."""
    for name in (MANIFEST, SUMMARY):
        shutil.copy(annotated / name, folder / name)
    tree = json.loads((folder / document).read_text()) | keys
    (folder / document).write_text(json.dumps(tree))
    return folder


def test_a_manifest_is_written_as_it_was_read(annotated: Path, tmp_path: Path) -> None:
    manifest = Manifest.read(annotated)
    assert [output.name for output in manifest.outputs] == ["a.parquet", "b.parquet"]
    manifest.write(tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == (annotated / MANIFEST).read_bytes()


@pytest.mark.parametrize(
    "keys",
    [
        {"model_id": "one"},
        {"table": None},
        {"format": "another"},
        {"totals": {"n_rows": 3}},
    ],
)
def test_what_is_no_manifest_is_refused(annotated: Path, tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(CatalogError, match=r"manifest.json: got a file that is not a manifest"):
        Manifest.read(changed(annotated, tmp_path, MANIFEST, **keys))
