"""The answers of reviews, by object: several people may have answered, and a drawn list has weights.

Each row of a table is an answer.  Answers that differ are votes: the object counts as each class by its share of them.
The answer that nobody can tell is not a vote.  A list of ours marks each row with the hash of the list and of the
object's name: an answer belongs to both, and is refused in a row whose mark is of another object.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import catalogs
from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.errors import nearest
from catalogs.sky.photometry import floats
from flows.errors import SpecificationError, TrainingError
from flows.labels.reader import LabelReader, is_doubtful, label_texts, require_exact
from flows.specification.catalog import label_of
from flows.specification.label import Label

REVIEWED = ("label", "class", "blr_label")
"""Columns of a review's table that hold the answer, where it has none of the catalogue's name."""
MARK = "blr_list"
"""Column of a list's rows that names the list and the object to which the answer belongs."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""First characters of texts that spreadsheets take for a formula, and the mark that makes such a text harmless."""
SHOWN = 20
"""Objects in dispute that are named."""


@dataclass(frozen=True)
class Reviews:
    """By object: the label that most answers give, the shares of answers that differ, and the weight of a draw."""

    labels: Mapping[str, str] = field(default_factory=dict)
    votes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def shown_disputes(self) -> dict[str, tuple[str, ...]]:
        """The answers to some of the objects whose answers differ, by name."""
        return {name: tuple(self.votes[name]) for name in sorted(self.votes)[:SHOWN]}

    @property
    def content(self) -> dict[str, str]:
        """What the tables say, by object: part of what makes a model's version."""
        said = {f"reviewed {name}": text for name, text in self.labels.items()}
        said |= {f"votes {name}": repr(sorted(shares.items())) for name, shares in self.votes.items()}
        return said | {f"weight {name}": repr(weight) for name, weight in self.weights.items()}


def list_hash(title: str, names: Iterable[str]) -> str:
    """Return the hash of a list of objects."""
    return hashlib.sha256("\n".join([title, *names]).encode()).hexdigest()[:16]


def list_mark(of: str, name: str) -> str:
    """Return the mark of an object's row in the list with the hash `of`."""
    return f"{of}-{hashlib.sha256(f'{of} {name.strip()}'.encode()).hexdigest()[:8]}"


def harmless(text: str) -> str:
    """Return a text of a CSV file so that no spreadsheet takes it for a formula; `plain` takes it back."""
    return f"'{text}" if text.startswith(FORMULA) else text


def plain(text: str) -> str:
    """Return the text that `harmless` was given; others stay as they are."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text


def listed_name(name: str, mark: str) -> str | None:
    """Return the name of a row's object as its list had it; None where the mark is of another object.

    A row without a mark was added by hand.  A spreadsheet may have kept or removed what makes a name harmless.
    """
    if not mark:
        return plain(name).strip()
    of = mark.partition("-")[0]
    return next((one.strip() for one in (name, plain(name)) if list_mark(of, one) == mark), None)


def read_reviews(paths: Sequence[Path], identifier: str | None, label: Label) -> Reviews:
    """Return what tables of answers say; a table joins by the column `identifier`.

    Raises
    ------
    SpecificationError
        If a table has no column of identifiers or of answers, or no weights where they are asked for.
    TrainingError
        If identifiers were rounded, or a weight is no positive number.
    """
    answers: dict[str, list[str]] = {}
    weights: dict[str, list[float]] = {}
    # Who reviews sees the names of classes, and may answer by them.
    classes = label.classes or {}
    spelled = {text for texts in classes.values() for text in texts}
    named = {name: label_of(texts) for name, texts in classes.items() if name not in spelled}
    for path in paths:
        table = catalogs.open(path, columns=[identifier] if identifier else ())
        rows = _rows(table, path, identifier, label)
        drawn = [weight for _, _, weight in rows if weight is not None]
        for name, text, weight in rows:
            answers.setdefault(name, []).append(named.get(text, text))
            if weight is not None:
                weights.setdefault(name, []).append(weight / float(np.mean(drawn)))
    labels, votes = _counted(answers, _same(label))
    return Reviews(labels, votes, {name: float(np.mean(some)) for name, some in weights.items()})


def _same(label: Label) -> Callable[[str], str | int]:
    """Return what two answers of one class have in common."""
    if label.classes is not None:
        reader = LabelReader.of_lists(label.classes, label.exclude, case_sensitive=label.case_sensitive)
        return lambda text: k if (k := reader.index(text)) >= 0 else text
    return str if label.case_sensitive else str.casefold


def _counted(
    answers: Mapping[str, Sequence[str]], same: Callable[[str], str | int]
) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
    """Return the label of each object that most answers give, the first of equals, and the shares where they differ."""
    labels: dict[str, str] = {}
    votes: dict[str, dict[str, float]] = {}
    for name, texts in answers.items():
        said = [text for text in texts if not is_doubtful(text)]
        first = {same(text): text for text in reversed(said)}
        counts = Counter(first[same(text)] for text in said)
        labels[name] = counts.most_common(1)[0][0] if counts else texts[0]
        if len(counts) > 1:
            votes[name] = {text: n / len(said) for text, n in counts.most_common()}
    return labels, votes


def _rows(
    table: Catalog, path: Path, identifier: str | None, label: Label
) -> list[tuple[str, str, float | None]]:
    """Return name, answer and weight of the answered rows; a weight is None unless the row was drawn and it counts."""
    if identifier is None or identifier not in table.names:
        raise SpecificationError(
            f"label.extra: got {path} without the column '{identifier}' of catalog.id, by which answers are "
            f"joined; {nearest(identifier or 'id', table.names)}"
        )
    column = next((n for n in (label.column, *REVIEWED) if n in table.names), None)
    if column is None:
        raise SpecificationError(
            f"label.extra: got {path} without an answer, expected the column '{label.column}' or 'label'; "
            f"{nearest(label.column or 'label', table.names)}"
        )
    wanted = [identifier, column, *([MARK] if MARK in table.names else [])]
    if label.review_weights:
        wanted += [name for name in ("how", "weight") if name in table.names]
    found: list[tuple[str, str, float | None]] = []
    for batch in table.batches(wanted):
        values = batch_values(batch, wanted)
        require_exact(values[identifier], "label.extra", identifier)
        names, texts = (label_texts(values[key]).tolist() for key in (identifier, column))
        if MARK in wanted:
            marks = label_texts(values[MARK]).tolist()
            listed = [listed_name(name, mark) for name, mark in zip(names, marks, strict=True)]
            strange = [n for n, one, text in zip(names, listed, texts, strict=True) if text and one is None]
            if strange:
                raise SpecificationError(
                    f"label.extra: got {path} with {len(strange):,} answers in rows whose '{MARK}' is of another "
                    f"object, the first for '{strange[0]}', expected each answer beside the object of the list; "
                    "a spreadsheet may have changed or moved identifiers: copy the answers into the "
                    "list as `blr review` wrote it"
                )
            names, texts = [name or "" for name in listed], [plain(text) for text in texts]
        weights: list[float | None] = [None] * len(names)
        if "weight" in wanted:
            how = label_texts(values["how"]).tolist() if "how" in wanted else ["drawn"] * len(names)
            numbers = floats(values["weight"]).tolist()
            weights = [w if h == "drawn" else None for w, h in zip(numbers, how, strict=True)]
        found += [row for row in zip(names, texts, weights, strict=True) if row[0] and row[1]]
    bad = [name for name, _, weight in found if weight is not None and not 0 < weight < np.inf]
    if bad:
        raise TrainingError(
            f"label.extra: got {path} with weights that are not positive numbers, the first for '{bad[0]}', "
            "expected the weights that `blr review` wrote; restore the column, or set review_weights = false"
        )
    return found
