"""A trained model: everything that prediction needs, and where it came from, as one tree for one file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from blr.arrays import html_table
from blr.candidates.candidate import CandidateRow
from blr.classifier import Classifier
from catalogs.catalog.catalog import ColumnMetadata
from flows.documents import from_document, to_document
from flows.models.description import Metrics, ModelDescription, TrainingDescription, TrustSummary
from flows.runs.model_reference import VERSION_LENGTH, ModelReference, check_name, check_version
from flows.specification.specification import Specification, canonical_json, specification_hash
from flows.specification.toml_file import parse_specification, specification_toml

__all__ = [
    "SCHEMA_VERSION",
    "Model",
    "Tree",
    "digest",
    "make_version",
    "model_id",
]

SCHEMA_VERSION = 1
"""Raised when an older reader would misread the file."""

Tree = Mapping[str, Any]
"""The content of an ASDF file, or a part of it: scalars, texts and arrays, and lists and mappings of them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Model:
    """A trained model: `train` makes it, `classify` uses it.

    `candidates` is the table of the candidates with their evidence; `selected` is the row that became the model.
    `columns` is the metadata of the columns that the features need, as in the labelled catalogue.  `folder` is the
    folder that the model was read from, or None for a model that has just been made.

    Examples
    --------
    >>> model = flows.Store.named("models").load("morphology")  # doctest: +SKIP
    >>> model  # doctest: +SKIP
    <Model morphology@6c60a42f65d7: classes early, late; 2 features; log loss 0.5581 nats an object on ...>
    """

    name: str
    version: str
    classes: tuple[str, ...]
    features: tuple[str, ...]
    specification: Specification
    classifier: Classifier
    candidates: tuple[CandidateRow, ...]
    selected: int
    trust: TrustSummary
    metrics: Metrics
    training: TrainingDescription
    columns: Mapping[str, ColumnMetadata]
    code_version: str
    folder: Path | None = None

    def __repr__(self) -> str:
        loss = f"log loss {self.metrics.log_loss:.4f} nats an object on {self.metrics.n:,} rows"
        size = f"classes {', '.join(self.classes)}; {len(self.features)} features"
        return f"<Model {self.label}: {size}; {loss}, trust {self.trust.verdict}>"

    def _repr_html_(self) -> str:
        """Return what the model is and how good it is, with the table of its candidates."""
        metrics, training = self.metrics, self.training
        facts = [
            ["classes", ", ".join(self.classes)],
            ["features", ", ".join(self.features)],
            [
                "log loss, nats an object",
                f"{metrics.log_loss:.4f} (class shares alone {metrics.log_loss_baseline:.4f})",
            ],
            ["accuracy", f"{metrics.accuracy:.1%}"],
            ["judged on", f"{metrics.n:,} {metrics.judged_by} rows"],
            ["labelled rows", f"{sum(training.training_counts) + sum(training.held_out_counts):,}"],
            ["trust", "; ".join([self.trust.verdict, *self.trust.reasons])],
        ]
        candidates = [
            ["selected" if i == self.selected else "", row.basis, f"{row.weight:.3f}", row.verdict or "–"]
            for i, row in enumerate(self.candidates)
        ]
        table = html_table(["", "candidate", "probability", "trust"], candidates)
        return html_table(["", self.label], facts) + table

    @property
    def label(self) -> str:
        """`NAME@VERSION`, as the command line takes it."""
        return ModelReference(self.name, self.version).label

    @property
    def id(self) -> int:
        """The 63 bits that each row of an annotated catalogue carries."""
        return model_id(self.name, self.version)

    def described(
        self, status: Literal["trained", "exists", "stored"], *, path: str | None, champion: str | None
    ) -> ModelDescription:
        """Return what people ask of a model that lies in a folder, all but what predicts."""
        return ModelDescription(
            status=status,
            path=path,
            champion=champion,
            model=self.label,
            name=self.name,
            version=self.version,
            model_id=self.id,
            classes=self.classes,
            spellings=()
            if self.specification.label.votes
            else tuple((self.specification.label.classes or {}).get(c, (c,)) for c in self.classes),
            features=self.features,
            candidates=self.candidates,
            selected=self.selected,
            selected_by=self.specification.select.by,
            trust=self.trust,
            metrics=self.metrics,
            training=self.training,
            seed=self.specification.seed,
            specification_hash=specification_hash(self.specification),
            code_version=self.code_version,
        )

    def to_tree(self) -> Tree:
        """Return the tree that the model file holds, its digest included."""
        tree: Tree = {
            "format": "blr-model",
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "version": self.version,
            "model_id": self.id,
            "classes": list(self.classes),
            "features": list(self.features),
            # ASDF sorts keys; the order of classes and features is meant, and TOML keeps it.
            "specification": specification_toml(self.specification),
            "specification_hash": specification_hash(self.specification),
            "classifier": self.classifier.to_dict(),
            "candidates": [to_document(row) for row in self.candidates],
            "selected": self.selected,
            "trust": to_document(self.trust),
            "metrics": to_document(self.metrics),
            "training": to_document(self.training),
            "columns": {name: to_document(column) for name, column in self.columns.items()},
            "code_version": self.code_version,
        }
        return {**tree, "digest": digest(tree)}

    @classmethod
    def from_tree(cls, tree: Tree, *, source: str = "the model") -> Model:
        """Return the model in a tree that `to_tree` made; `source` names the tree in an error."""
        columns = tree["columns"].items()
        model = cls(
            name=check_name(tree["name"]),
            version=check_version(tree["version"]),
            classes=tuple(tree["classes"]),
            features=tuple(tree["features"]),
            specification=parse_specification(tree["specification"], source="the model's specification"),
            classifier=Classifier.from_dict(tree["classifier"]),
            candidates=tuple(from_document(CandidateRow, row, source=source) for row in tree["candidates"]),
            selected=tree["selected"],
            trust=from_document(TrustSummary, tree["trust"], source=source),
            metrics=from_document(Metrics, tree["metrics"], source=source),
            training=from_document(TrainingDescription, tree["training"], source=source),
            columns={name: from_document(ColumnMetadata, column, source=source) for name, column in columns},
            code_version=str(tree["code_version"]),
        )
        model._check()
        return model

    def _check(self) -> None:
        """Raise ValueError where the parts of a stored model do not fit together."""
        own, K, F, training = self.classifier, len(self.classes), len(self.features), self.training
        sizes = {F, own.moments.n_features, own.domain.moments.n_features}
        of_members = {(m.posterior.problem.n_classes, {*m.columns} <= {*range(F)}) for m in own.members}
        if own.features != self.features or len(sizes) > 1 or of_members != {(K, True)}:
            raise ValueError(f"its classifier is not of {K} classes and the features {self.features}")
        unknown = set(self.features).difference(self.specification.features)
        if unknown:
            raise ValueError(f"its specification has no feature {min(unknown)!r:.80}")
        lists = {
            "training_counts": training.training_counts,
            "held_out_counts": training.held_out_counts,
            "class_share": training.class_share,
            "confusion": self.metrics.confusion or training.class_share,
        }
        for name, values in (*lists.items(), *(("confusion", row) for row in self.metrics.confusion)):
            if len(values) != K:
                raise ValueError(f"its {name} has {len(values)} values, expected one for each of {K} classes")
        if type(self.selected) is not int or not 0 <= self.selected < len(self.candidates):
            raise ValueError(f"it selects the candidate {self.selected!r:.80} of {len(self.candidates)}")
        # What people are shown of it: texts and finite numbers.
        json.dumps(to_document(self.described("stored", path=None, champion=None)), allow_nan=False)


def make_version(specification: Specification, content_hash: str, code_version: str) -> str:
    """Return the version: a hash of what goes in, never of fitted numbers, so the same on every machine."""
    text = "\n".join((canonical_json(specification), content_hash, code_version))
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_LENGTH]


def model_id(name: str, version: str) -> int:
    """Return the model's number: 63 bits, for signed 64-bit columns."""
    head = hashlib.sha256(f"{name}@{version}".encode()).digest()[:8]
    return int.from_bytes(head, "big") >> 1


def digest(tree: Tree) -> str:
    """Return the SHA-256 over a tree's scalars, lists and arrays.

    ASDF's own checksums cover the blocks of arrays alone, not the numbers written in its text.
    """
    total = hashlib.sha256()
    _feed(total, {key: value for key, value in tree.items() if key not in _ASDF_KEYS})
    return total.hexdigest()


_ASDF_KEYS = ("digest", "asdf_library", "history")


def _feed(total: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        total.update(b"{%d" % len(value))
        for key in sorted(value):
            _feed(total, key)
            _feed(total, value[key])
    elif isinstance(value, (list, tuple)):
        total.update(b"[%d" % len(value))
        for item in value:
            _feed(total, item)
    elif isinstance(value, np.ndarray):
        total.update(f"a{value.dtype.kind}{value.shape}".encode())
        total.update(np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes())
    else:
        plain = value.item() if isinstance(value, np.generic) else value
        total.update(f"{type(plain).__name__}:{json.dumps(plain)};".encode())
