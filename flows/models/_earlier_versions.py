"""What model files of earlier versions lack, and what it stands for.

Today's files hold every key, so that the types have no defaults for them: what is missing is filled in as a file is
read, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.documents import from_document
from flows.models.description import Metrics, TrainingDescription, TrustSummary
from flows.reports.candidates import CandidateRow

__all__ = ["Tree", "read_candidate", "read_metrics", "read_training", "read_trust"]

Tree = Mapping[str, Any]
"""What an ASDF file holds, or a part of it: scalars, texts, arrays, and lists and mappings of them."""

CANDIDATE: Tree = {"parts": [], "left_out_by": "", "share": None, "checks": []}
TRUST: Tree = {"reasons": [], "numbers": {}}
METRICS: Tree = {"skill": None, "judged_by": "held-out"}
LABELS: Tree = {"conflicts": 0, "conflicting": {}, "joined": 0, "unplaced": 0, "shared": 0, "reviewed": 0}
QUALITY: Tree = {"absent": {}, "commented_out": "", "n_files": 1}
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
    """Return a row of the evidence table."""
    return from_document(CandidateRow, {**CANDIDATE, **tree}, source=source)


def read_trust(tree: Tree, source: str) -> TrustSummary:
    """Return the verdict on a model."""
    return from_document(TrustSummary, {**TRUST, **tree}, source=source)


def read_metrics(tree: Tree, source: str) -> Metrics:
    """Return how good a model is."""
    return from_document(Metrics, {**METRICS, **tree}, source=source)


def read_training(tree: Tree, source: str) -> TrainingDescription:
    """Return what a model was trained on."""
    labels = {**LABELS, **tree.get("labels", {})}
    quality = [{**QUALITY, **catalogue} for catalogue in tree.get("quality", ())]
    document = {**TRAINING, **tree, "labels": labels, "quality": quality}
    return from_document(TrainingDescription, document, source=source)
