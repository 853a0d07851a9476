"""The description of a model: the types of its parts, and the form of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.documents import from_document, to_document
from flows.errors import DocumentError, ModelError
from flows.models.description import (
    ComparedTarget,
    Metrics,
    SetDifference,
    ShareCorrection,
    TargetLoss,
    TargetShift,
)
from flows.models.model import Model, read_facts, read_tree, write_tree
from flows.models.store import Store


@pytest.fixture(scope="module")
def model(trained: Path) -> Model:
    return Store(trained / "models").load("morphology")


def test_the_file_has_the_keys_of_the_types(model: Model) -> None:
    tree = model.to_tree()
    assert list(tree["metrics"]) == [name for name in Metrics.__dataclass_fields__ if name != "grouping"]
    assert Model.from_tree(tree).metrics == model.metrics
    assert Model.from_tree(tree).training == model.training
    assert Model.from_tree(tree).candidates == model.candidates
    assert Model.from_tree(tree).columns == model.columns


def test_a_part_of_another_type_is_named(trained: Path, tmp_path: Path) -> None:
    tree = dict(read_tree(Store(trained / "models").find("morphology").path))
    with pytest.raises(DocumentError, match=r"a model: got 'many' for 'n'"):
        Model.from_tree(tree | {"metrics": tree["metrics"] | {"n": "many"}}, source="a model")
    write_tree(tree | {"metrics": tree["metrics"] | {"n": "many"}}, tmp_path / "model.asdf")
    with pytest.raises(ModelError, match="got a damaged model file"):
        read_facts(tmp_path / "model.asdf")


DIFFERENCE = SetDifference(
    target=ComparedTarget(name="target.fits", n_rows=9, n_compared=3, content_hash="ab"),
    auc=0.7,
    auc_low=0.6,
    auc_high=0.8,
    advice="weights are worth it",
    density_weights=False,
    n_training=5,
    n_effective=4.5,
)
CORRECTION = ShareCorrection(
    class_prior={"a": 0.1, "b": 0.9}, class_prior_training={"a": 0.5, "b": 0.5}, class_prior_source="as given"
)
LOSS = TargetLoss(n_effective_held_out=3.5, log_loss=0.4)


@pytest.mark.parametrize("difference", [None, DIFFERENCE])
@pytest.mark.parametrize("correction", [None, CORRECTION])
@pytest.mark.parametrize("loss", [None, LOSS, replace(LOSS, log_loss_uncorrected=0.5)])
def test_a_shift_is_of_the_parts_that_there_are(
    difference: SetDifference | None, correction: ShareCorrection | None, loss: TargetLoss | None
) -> None:
    shift = TargetShift.of(difference, correction, loss)
    assert (shift.difference, shift.correction, shift.loss) == (difference, correction, loss)
    document = to_document(shift)
    assert from_document(TargetShift, document, source="shift") == shift
    assert list(document) == [
        key for part in (difference, correction, loss) if part is not None for key in to_document(part)
    ]
