"""Answers of people to the objects of a list, by the object's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import catalogs
from catalogs.arrays.values import batch_values
from catalogs.errors import brief, nearest
from flows.errors import UsageError
from flows.labels.reader import is_doubtful, label_texts, require_exact
from flows.labels.reviews import MARK, listed_name, plain

__all__ = ["OTHER", "UNDECIDED", "Answers", "read_answers", "read_labels"]

OTHER = -1
"""The place of the answer "other": of no class of the model."""
UNDECIDED = -2
"""The place of an answer that says that nobody can tell."""
OTHER_WORD = "other"
COLUMNS = ("label", "class")
"""Columns that may hold the answer."""
SHOWN = 5


@dataclass(frozen=True)
class Answers:
    """The place of each object's class by the object's name, in the order of the classes; `OTHER`, or `UNDECIDED`."""

    places: Mapping[str, int]


def read_answers(
    paths: Sequence[Path], identifier: str, drawn: Sequence[str], classes: Sequence[str], asked: str
) -> Answers:
    """Return the answers in tables to objects that were drawn; what is blank is no answer.

    `asked` is the hash of the list that asked; rows that bear the mark of a list bear that of this one.

    UsageError where an answer is no class, is of an object that was not drawn, or contradicts another.
    """
    times = Counter(drawn)
    places: dict[str, int] = {}
    for path in paths:
        texts = _texts(path, identifier, tuple(times), asked)
        strange = [name for name, _ in texts if name not in times]
        if strange:
            shown = ", ".join(f"'{brief(name)}'" for name in strange[:SHOWN])
            raise UsageError(
                f"{path}: got answers to {len(strange)} objects that were not drawn ({shown}), expected "
                "answers to the objects of the list only, since others have no weight; remove their rows"
            )
        for name, count in Counter(name for name, _ in texts).items():
            if count > times[name]:
                raise UsageError(
                    f"{path}: got {count} answers to '{brief(name)}', expected one for each row of the list; "
                    "remove the others, even if they agree"
                )
        for name, text in texts:
            place = _place(text, classes)
            if place is None:
                raise UsageError(
                    f"{path}: got '{brief(text)}' for '{brief(name)}', expected a class of the model, 'other' for an "
                    f"object of no class, or '?' for one that cannot be decided; {nearest(text, classes)}"
                )
            if places.setdefault(name, place) != place:
                raise UsageError(
                    f"{path}: got '{brief(text)}' for '{brief(name)}', but a different answer in an earlier "
                    "row, expected one answer for each object; make them equal, or answer '?'"
                )
    return Answers(places)


def read_labels(path: Path, identifier: str, classes: Sequence[str], drawn: Sequence[str]) -> dict[str, str]:
    """Return the classes of the drawn objects that a table of labels knows; contradictions are left out."""
    known, contradicted = set(drawn), set()
    labels: dict[str, str] = {}
    for name, text in _texts(path, identifier, drawn):
        place = _place(text, classes)
        if name not in known or place is None or place < 0:
            continue
        if labels.setdefault(name, classes[place]) != classes[place]:
            contradicted.add(name)
    return {name: label for name, label in labels.items() if name not in contradicted}


def _place(text: str, classes: Sequence[str]) -> int | None:
    """Return the place of an answer; None where it is no class."""
    if text in classes:
        return classes.index(text)
    folded = [name.casefold() for name in classes]
    if folded.count(text.casefold()) == 1:
        return folded.index(text.casefold())
    if text.casefold() == OTHER_WORD:
        return OTHER
    return UNDECIDED if is_doubtful(text) else None


def _texts(
    path: Path, identifier: str, drawn: Sequence[str], asked: str | None = None
) -> list[tuple[str, str]]:
    """Return the names and the answers of a table, as far as there is one; `asked` is the hash of its list."""
    table = catalogs.open(path)
    key = next((name for name in (identifier, "id") if name in table.names), None)
    if key is None:
        raise UsageError(
            f"{path}: got a table without the column '{identifier}', which names the objects; "
            f"{nearest(identifier, table.names)}"
        )
    column = next((name for name in COLUMNS if name in table.names), None)
    if column is None:
        raise UsageError(
            f"{path}: got a table without the column 'label', which holds the answers; {nearest('label', table.names)}"
        )
    texts: list[tuple[str, str]] = []
    # A program that read 007 as a number has written 7.
    by_number = {_number(name): name for name in reversed(drawn)}
    marked = [MARK] if MARK in table.names else []
    for batch in table.batches([key, column, *marked]):
        values = batch_values(batch, [key, column, *marked])
        require_exact(values[key], str(path), key)
        numbered = values[key].dtype.kind in "iuf"
        names = label_texts(values[key]).tolist()
        marks = label_texts(values[MARK]).tolist() if marked else [""] * len(names)
        for read, text, mark in zip(names, label_texts(values[column]).tolist(), marks, strict=True):
            if not (read and text):
                continue
            known = by_number.get(_number(read), read) if numbered else read
            name = listed_name(known, mark) if marked else known
            if name is None or (mark and asked and not mark.startswith(f"{asked}-")):
                raise UsageError(
                    f"{path}: got an answer to '{brief(read)}' of another list or object than its '{MARK}' names, "
                    "expected answers to the list that was drawn last, each beside its object; copy them into that list"
                )
            texts.append((name, plain(text) if marked else text))
    return texts


def _number(name: str) -> str:
    return name.lstrip("0") or "0" if name.isdecimal() else name
