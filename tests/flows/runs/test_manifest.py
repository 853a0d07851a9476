"""Manifests and records of other versions: missing keys have defaults, and the bytes stay the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalogs.errors import CatalogError
from flows.documents import read_document, to_document, write_document
from flows.runs.allowed_roots import OutputFolder
from flows.runs.manifest import MANIFEST, SUMMARY, Manifest
from flows.runs.outputs import FileState, Output
from flows.runs.staging import Staging
from flows.runs.summary import Summary

OLD = Path(__file__).resolve().parents[2] / "fixtures" / "0.1.0-32f3ce9" / "annotated"
STATE = FileState("0" * 64, 10, 1, 2)


def copied(folder: Path, **changed: Any) -> Path:
    """Return a folder with the old manifest and summary, some keys of the manifest changed, or gone where None."""
    manifest = json.loads((OLD / MANIFEST).read_text()) | changed
    (folder / MANIFEST).write_text(json.dumps({k: v for k, v in manifest.items() if v is not None}))
    (folder / SUMMARY).write_bytes((OLD / SUMMARY).read_bytes())
    return folder


def test_an_old_manifest_and_an_old_summary_keep_their_bytes(tmp_path: Path) -> None:
    manifest = Manifest.read(OLD)
    manifest.write(tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == (OLD / MANIFEST).read_bytes()
    write_document(tmp_path / SUMMARY, read_document(Summary, OLD / SUMMARY))
    assert (tmp_path / SUMMARY).read_bytes() == (OLD / SUMMARY).read_bytes()


def test_what_a_manifest_does_not_say_has_a_default(tmp_path: Path) -> None:
    said = Manifest.read(copied(tmp_path))
    absent = dict.fromkeys(("release", "totals", "quarantined", "classes", "columns", "flags", "position"))
    before = Manifest.read(copied(tmp_path, **absent))
    assert (before.release, before.totals, before.quarantined, before.prefix) == (1, None, (), None)
    assert before.outputs == said.outputs


def test_a_quarantined_file_that_could_not_be_read_has_no_state(tmp_path: Path) -> None:
    file = {"name": "a.fits", "input_path": "../a.fits", "reason": "no such file"}
    (quarantined,) = Manifest.read(copied(tmp_path, quarantined=[file])).quarantined
    assert to_document(quarantined) == file | {"input": None}


@pytest.mark.parametrize("totals", [{"n_rows": 3}, {"n_rows": "three"}])
def test_totals_in_the_form_of_another_version_are_ignored(tmp_path: Path, totals: dict[str, Any]) -> None:
    assert Manifest.read(copied(tmp_path, totals=totals)).totals is None


@pytest.mark.parametrize(
    "changed", [{"model_id": "one"}, {"inputs": []}, {"outputs": None}, {"format": "another"}]
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(CatalogError, match=r"manifest.json: got a file that is not a manifest"):
        Manifest.read(copied(tmp_path, **changed))


def test_a_file_without_its_counts_is_known_to_lack_them(tmp_path: Path) -> None:
    copied(tmp_path)
    summary = json.loads((OLD / SUMMARY).read_text())
    del summary["files"]["a.parquet"]["tally"]
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    assert [output.summary is None for output in Manifest.read(tmp_path).outputs] == [True, False]


def test_a_record_in_the_staging_is_the_output_again(tmp_path: Path) -> None:
    counts = Manifest.read(OLD).outputs[0].summary
    staging = Staging.of(OutputFolder(tmp_path), "m@1", "hash")
    staging.open()
    staging.file("a.parquet").write_bytes(b"0123456789")
    seen = staging.file("a.parquet").stat()
    output = Output(
        "a.parquet", "1" * 64, 10, 60, "../a.parquet", STATE, seen.st_mtime_ns, seen.st_ino, counts
    )
    staging.record(output)
    assert staging.find("a.parquet", STATE) == output
    assert staging.find("a.parquet", replace(STATE, sha256="2" * 64)) is None
    record = staging.folder / "a.parquet.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"name": "../a.parquet"}))
    assert staging.find("a.parquet", STATE) is None, "it leads out of the folder"
