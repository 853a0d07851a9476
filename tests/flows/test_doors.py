"""Texts from users are read once, where they enter; from there on, they are objects of types of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import flows
from flows.errors import UsageError
from flows.labels.source import LabelSource
from flows.models.store import Store
from flows.runs.model_reference import ModelReference
from flows.specification.toml_file import read_specification
from flows.training.steps import DIRECT, Ingested, TrainingTask, ingest
from tests.flows.verbs import classify, promote, train

FLOWS = Path(flows.__file__).parent


def where(pattern: str) -> set[str]:
    """Return the modules of `flows` whose source holds a pattern."""
    found = re.compile(pattern)
    paths = (path for path in FLOWS.rglob("*.py") if found.search(path.read_text(encoding="utf-8")))
    return {path.relative_to(FLOWS).as_posix() for path in paths}


def test_only_their_own_folder_validates_specifications() -> None:
    assert where(r"\bSpecification\.model_validate") == {
        "specification/toml_file.py",
    }
    # A draft of a release reads the specification that a person may have edited.
    assert where(r"load_specification\(") == {"release/draft.py", "specification/toml_file.py"}


def test_the_steps_of_a_training_take_the_specification_that_was_read(folder: Path) -> None:
    specification, requests = read_specification(folder / "spec.toml"), []

    def first_step(request: TrainingTask) -> Ingested:
        requests.append(request)
        return ingest(request)

    train(specification, folder / "models", dry_run=True, steps=replace(DIRECT, ingest=first_step))
    (request,) = requests
    assert request.specification is specification


def test_one_function_takes_texts_apart_that_name_models() -> None:
    assert where(r'\.partition\("@"\)|"@" in|\.split\("@"') == {"runs/model_reference.py"}
    assert ModelReference.parse("morphology") == ModelReference("morphology")
    assert ModelReference.parse("morphology@0123") == ModelReference("morphology", "0123")
    assert ModelReference("morphology", "0123").label == "morphology@0123"


def test_a_model_is_looked_for_once(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken_apart = []
    parse = ModelReference.parse
    monkeypatch.setattr(ModelReference, "parse", lambda text: taken_apart.append(text) or parse(text))
    store, catalogue = trained / "models", trained / "survey.parquet"
    classify([catalogue], model="morphology", store=store, out=tmp_path / "out", dry_run=True)
    promote("morphology", store=store, dry_run=True)
    assert taken_apart == ["morphology", "morphology"]


def test_labels_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and the report's quality take the same tables, which may come from a URL."""
    read, of = [], LabelSource.of
    monkeypatch.setattr(LabelSource, "of", lambda *given: read.append(given) or of(*given))
    ingest(TrainingTask(read_specification(folder / "spec.toml"), Store(folder / "models")))
    assert len(read) == 1


def test_folders_that_are_written_to_are_checked_where_a_verb_begins() -> None:
    assert where(r"\boutput_folder\(") == {
        "cli/_reprocess.py",
        "classification/census_taking.py",
        "classification/feature_space.py",
        "classification/reprocessing.py",
        "classification/sky_maps.py",
        "classification/steps.py",
        "reviews/audit_draw.py",
        "reviews/audit_estimate.py",
        "reviews/selection.py",
        "runs/release_store.py",
    }
    assert where(r"\bcheck_output\(") == {
        "classification/sky_maps.py",
        "demo/steps.py",
        "models/store_folder.py",
        "release/record.py",
        "runs/allowed_roots.py",
        "runs/release_store.py",
    }
    assert where(r"\bOutputFolder\(") == {
        "runs/allowed_roots.py",
        "runs/release_store.py",
    }
    # A trial's store is a folder of our own.
    assert where(r"\bStore\(Path") == {"training/steps.py"}


def test_a_store_outside_of_the_roots_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLR_ROOTS", str(tmp_path / "survey"))
    assert Store.named(tmp_path / "survey" / "models") == Store(tmp_path / "survey" / "models")
    with pytest.raises(UsageError, match=r"^store: got .*, expected a path inside"):
        Store.named(tmp_path / "models")
