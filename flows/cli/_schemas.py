"""`blr schema`: the JSON Schema of what commands print with `--json`, and of the files that they leave."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from flows.classification.release_changes import ReleaseReport
from flows.demo.steps import DemoResult
from flows.documents import json_schema
from flows.draft.inspection import CatalogueSummary, StartedSpecification
from flows.errors import UsageError
from flows.models.description import ModelDescription, TrainingResult
from flows.models.promotion import PromotionResult
from flows.models.store import ModelListing
from flows.orchestration.settings import AutomationsResult
from flows.reports.catalogue_page import Explanation
from flows.reviews.audit_draw import AuditDesign, AuditDraw
from flows.reviews.audit_estimate import Audit
from flows.reviews.selection import ReviewResult
from flows.runs import results
from flows.runs.manifest import FolderStatus, Manifest

VERSION: Final = 1
"""Of all schemas; larger when a key goes, or comes to mean something else.  New keys change nothing."""

DOCUMENTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "train": TrainingResult,
        "classify": results.ClassificationResult,
        "reprocess": results.ReleaseResult,
        "review": ReviewResult,
        "explain": Explanation,
        "audit-draw": AuditDraw,
        "audit-estimate": Audit,
        "status": FolderStatus,
        "map": results.MapResult,
        "census": results.CensusResult,
        "inspect-catalogue": CatalogueSummary,
        "inspect-model": ModelDescription,
        "init": StartedSpecification,
        "models-list": ModelListing,
        "models-show": ModelDescription,
        "models-promote": PromotionResult,
        "release-draft": results.ReleaseState,
        "release-check": results.Checked,
        "release-sign": results.ReleaseState,
        "release-publish": results.ReleaseState,
        "release-rollback": results.ReleaseState,
        "release-patch": results.ReleaseState,
        "release-verify": results.Verified,
        "release-replay": results.ReplayResult,
        "deployments-automate": AutomationsResult,
        "demo": DemoResult,
        "summary": results.Summary,
        "manifest": Manifest,
        "audit": Audit,
        "audit-design": AuditDesign,
        "release-report": ReleaseReport,
    }
)
"""The types of the documents: the output of each command, then the files."""

KINDS: Final = MappingProxyType({"inspect-catalogue": "catalogue", "inspect-model": "model"})
"""What the first key, `kind`, is in the output of a command that has several."""


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document of `DOCUMENTS`."""
    schema = json_schema(DOCUMENTS[name])
    if name in KINDS:
        schema["properties"] = {"kind": {"const": KINDS[name]}, **schema["properties"]}
        schema["required"] = ["kind", *schema["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"blr/{name}-{VERSION}"}
    return head | schema


def run_schema(*, name: str | None) -> None:
    """Print a schema, or the names of those there are."""
    if name is None:
        sys.stdout.write("\n".join(DOCUMENTS) + "\n")
    elif name in DOCUMENTS:
        sys.stdout.write(json.dumps(schema_of(name), indent=1) + "\n")
    else:
        raise UsageError(f"NAME: got '{name}', expected one of {', '.join(DOCUMENTS)}")
