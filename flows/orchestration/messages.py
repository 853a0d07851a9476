"""What a run says of itself in one sentence: the message of its final state, and the name of the run."""

from __future__ import annotations

from collections import Counter

from catalogs.errors import CatalogError
from catalogs.remote.urls import scrubbed
from flows.errors import FlowError, Terminated
from flows.runs.model_reference import ModelReference
from flows.runs.results import ClassificationResult, ClassificationTrial, ReleaseResult

DIGITS = 4
"""Digits of a version in the name of a run: as many as name it on the command line."""


def short_label(label: str) -> str:
    """Return NAME@VERSION with the first digits of the version."""
    reference = ModelReference.parse(label)
    return ModelReference(reference.name, reference.version[:DIGITS]).label


def started_name(verb: str, label: str, *, release: int, trial: bool = False) -> str:
    """Return the name of a run that is to make a release, or to try a model."""
    head = f"{verb} {short_label(label)}"
    return f"{head} → release {release}" if not trial else f"{head}: trial"


def classification_name(verb: str, result: ClassificationResult) -> str:
    """Return the name of a run that has ended."""
    head = f"{verb} {short_label(result.model)}"
    if result.status == "done":
        return f"{head} → {_release(result)}"
    if isinstance(result, ClassificationTrial) or not result.quarantined:
        return f"{head}: {result.status}"
    return f"{head}: {result.status}, {_release(result)}"


def classification_message(result: ClassificationResult) -> str:
    """Return the result of a run in words."""
    if isinstance(result, ClassificationTrial):
        return f"Trial on {result.summary.n_rows:,} rows; nothing was written."
    rows = result.summary.n_rows if result.summary else 0
    left = {*result.quarantined, *result.deferred}
    files = {name: file for name, file in result.files.items() if name not in left}
    whole = f"{_n(len(files), 'file')}, {_n(rows, 'object')}"
    if result.status == "waiting":
        return f"Nothing could be done yet: {_left_out(result) or 'all inputs wait for the next run'}."
    if result.status != "done":
        parts = [f"Nothing to do: {whole}, as at {_release(result)}", _left_out(result)]
        return f"{'; '.join(filter(None, parts))}."
    why = Counter(file.why for file in files.values() if file.why)
    now = ", ".join(f"{n:,} {reason}" for reason, n in sorted(why.items()))
    parts = [
        f"R{_release(result)[1:]}: {whole}",
        f"annotated now: {now or 'none'}",
        _changed(result),
        _left_out(result),
        f"unlike the training set: {', '.join(result.drifted)}" if result.drifted else "",
    ]
    return f"{'; '.join(filter(None, parts))}."


def _changed(result: ReleaseResult) -> str:
    difference = result.difference
    if difference is None or not difference.compared:
        return ""
    return f"{difference.class_changed:,} of {difference.compared:,} objects changed class"


def _release(result: ReleaseResult) -> str:
    """Return the number of the release in a folder, with the number of quarantined files."""
    number = "no release" if result.release is None else f"release {result.release}"
    return f"{number}, {len(result.quarantined):,} quarantined" if result.quarantined else number


def _left_out(result: ReleaseResult) -> str:
    counts = {
        "stale": len(result.stale),
        "retired": len(result.retired),
        "deferred": len(result.deferred),
    }
    left = ", ".join(f"{n:,} {state}" for state, n in counts.items() if n)
    repeats = "objects are in two files" if result.repeats else ""
    return "; ".join(filter(None, (left, repeats)))


def _n(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def words_of(error: BaseException) -> str | None:
    """Return the message of an error that the user can correct, without secrets; None for a fault of ours."""
    match error:
        case FlowError() | CatalogError() | Terminated():
            return scrubbed(str(error))  # a URL may be given where a path is expected
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return scrubbed(f"{place}{error.strerror or error}; every file with a final name is complete")
    return None
