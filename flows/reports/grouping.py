"""Classes that the features cannot tell apart: the sentence, the table, and the lines that join them."""

from __future__ import annotations

import json

import numpy as np

from flows.models.description import ModelDescription
from flows.reports.report_table import ReportTable, percent

__all__ = ["grouping_lines", "grouping_tables"]

MOST_PAIRS = 3
"""Pairs of classes that the sentence names."""
MOST_IN_NAME = 3
"""Classes up to which a group is named after all of them."""


def grouping_lines(model: ModelDescription) -> list[str]:
    """Return what a terminal shows of classes that the features cannot tell apart; nothing where there are none."""
    words = _words(model)
    if not words:
        return []
    advice = "To use the groups, put these lines into the specification and train again:"
    return [words, advice, "", "[label.classes]", *_classes(model), ""]


def grouping_tables(model: ModelDescription) -> tuple[ReportTable, ...]:
    """Return one table of the groups of classes; none where no classes are joined."""
    groups, counts = _joined(model), np.asarray(model.metrics.confusion)
    rows = []
    for group, line in zip(groups, _classes(model), strict=True):
        within, n = counts[np.ix_(group, group)], int(counts[list(group)].sum())
        wrong = int(within.sum() - within.trace())
        rows.append((", ".join(model.classes[k] for k in group), f"{n:,}", percent(wrong / max(n, 1)), line))
    table = ReportTable(
        title="Classes that could be one",
        columns=("classes", "objects", "assigned to another of them", "line for the specification"),
        rows=tuple(rows),
        numeric=frozenset({1, 2}),
        remark=_words(model),
        note="Two classes are joined if the features know less than a tenth of what tells them apart, those that "
        "lose least first. To use the groups, put the lines in the place of [label.classes] and train again.",
    )
    return (table,) if rows else ()


def _words(model: ModelDescription) -> str:
    """Return the sentence on classes that the features cannot tell apart; "" where there are none."""
    found, groups = model.metrics.grouping, _joined(model)
    if found is None or not groups:
        return ""
    pairs = []
    for j, k, *shares in found.mistaken[:MOST_PAIRS]:
        a, b = (percent(share, 0) for share in shares)
        how_many = f"{a} of each" if a == b else f"{a} and {b}"
        pairs.append(f"{model.classes[j]} and {model.classes[k]}: {how_many} are taken for the other")
    return (
        f"The features cannot tell all classes apart ({'; '.join(pairs)}). {len(groups)} groups keep "
        f"{percent(found.kept, 0)} of what the model knows of the {len(model.classes)} classes."
    )


def _classes(model: ModelDescription) -> list[str]:
    """Return the lines of [label.classes] that make classes of the groups; none where no classes are joined."""
    lines = []
    for group in _joined(model):
        first = max(group, key=lambda k: model.training.training_counts[k])
        name = "/".join(model.classes[k] for k in group)
        if len(group) > MOST_IN_NAME:
            name = f"{model.classes[first]} and {len(group) - 1} more"
        spellings = [text for k in group for text in model.spellings[k]]
        lines.append(f"{_toml(name)} = [{', '.join(map(_toml, spellings))}]")
    return lines


def _joined(model: ModelDescription) -> tuple[tuple[int, ...], ...]:
    """Return the groups of classes; none where no classes are joined."""
    found = model.metrics.grouping
    return () if found is None or len(found.groups) == len(model.classes) else found.groups


def _toml(text: str) -> str:
    """Return a text as TOML has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
