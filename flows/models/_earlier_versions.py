"""Values for the keys that model files of earlier versions lack.

A model file of this version holds all of these keys, so the types in `flows.models.description` have no defaults for
them.  A missing key is filled in here, while the file is read, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.documents import from_document
from flows.models.description import Metrics, TrainingDescription, TrustSummary
from flows.reports.candidates import CandidateRow

__all__ = ["Tree", "read_candidate", "read_metrics", "read_training", "read_trust"]

Tree = Mapping[str, Any]
"""The content of an ASDF file, or a part of it: scalars, texts and arrays, and lists and mappings of them.

In the functions of this module, `source` says in errors which file a tree is from.
"""

CANDIDATE: Tree = {"parts": [], "left_out_by": "", "share": None, "checks": []}
TRUST: Tree = {"reasons": [], "numbers": {}}
METRICS: Tree = {"skill": None, "judged_by": "held-out", "confusion": []}
LABELS: Tree = {"conflicts": 0, "conflicting": {}, "joined": 0, "unplaced": 0, "shared": 0, "reviewed": 0}
QUALITY: Tree = {"absent": {}, "commented_out": "", "n_files": 1, "suspects": {}}
TRAINING: Tree = {
    "split": None,
    "states": {},
    "noise": {},
    "distribution": {},
    "overdispersion": 1.0,
    "label_noise": {},
    "shift": {},
    "quality": [],
    "refitted": None,
}


def read_candidate(tree: Tree, source: str) -> CandidateRow:
    """Return the row of the evidence table in a tree; DocumentError if the tree is damaged, as for all of these."""
    return from_document(CandidateRow, {**CANDIDATE, **tree}, source=source)


def read_trust(tree: Tree, source: str) -> TrustSummary:
    """Return the verdict in a tree on the approximation of a model."""
    return from_document(TrustSummary, {**TRUST, **tree}, source=source)


def read_metrics(tree: Tree, source: str) -> Metrics:
    """Return the metrics of a model in a tree."""
    return from_document(Metrics, {**METRICS, **tree}, source=source)


def read_training(tree: Tree, source: str) -> TrainingDescription:
    """Return the description in a tree of what a model was trained on."""
    labels = {**LABELS, **tree.get("labels", {})}
    quality = [{**QUALITY, **catalogue} for catalogue in tree.get("quality", ())]
    document = {**TRAINING, **tree, "labels": labels, "quality": quality}
    return from_document(TrainingDescription, document, source=source)
