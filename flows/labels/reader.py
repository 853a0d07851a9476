"""From columns of labels to classes: class indices, votes, annotators, reviews' answers, and what gives a label away.

The class is -1 where a row has no label, or one that no class lists.
Each row of a table of reviews is an answer.  Answers that differ are votes: the object counts as each class by its
share of them.  The answer that nobody can tell is not a vote.  A list of ours marks each row with the hash of the list
and of the object's name: an answer belongs to both, and is refused in a row whose mark is of another object.
Shapes: n rows of a batch, K classes, A annotators.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import catalogs
from blr.arrays import Array, Floats, Mask, Places
from catalogs.arrays import batch_values, floats, plain_texts, unique_texts
from catalogs.catalog.catalog import Catalog
from catalogs.errors import brief, nearest
from catalogs.profile import quality
from catalogs.profile.columns import Profile, as_numbers, suspected_texts
from catalogs.profile.leaks import codes_label, copies_of_label, find_leaks, label_numbers, shown_column
from catalogs.profile.quality import Leak
from catalogs.sky.positions import find_position_columns
from flows.errors import SpecificationError, TrainingError
from flows.features.reader import apply_sentinels
from flows.specification.catalog import Label, LabelRange, label_of, label_ranges

DOUBTFUL = re.compile(
    r".*\?.*|.+:|unknown|unk|unclassified|uncertain|undefined|undef|indef|none|nan|null|masked|#?n/?a|\\n|[-.]+"
    r"|-9+(\.[09]*)?|9{2,}(\.[09]*)?|[+-]?inf(inity)?",
    re.IGNORECASE,
)
MOST_SHOWN = 8
"""Spellings of a class in a message."""
MOST_CLASSES = 100
"""A column of more different values than this, taken as it is, holds names and no classes."""


@dataclass(frozen=True)
class LabelReader:
    """The classes in order, and the class of each spelling, in small letters if case does not matter; -1: no class.

    What is no spelling may be a number in one of the `ranges`.
    """

    classes: tuple[str, ...]
    spellings: Mapping[str, int]
    case_sensitive: bool = True
    ranges: tuple[LabelRange, ...] = ()

    @classmethod
    def of(cls, label: Label, seen: Counter[str]) -> LabelReader:
        """Return the reader that a specification asks for; without classes, each value `seen` is one."""
        fold = str if label.case_sensitive else str.casefold
        if label.votes is not None:
            return cls(tuple(label.votes), {name: k for k, name in enumerate(label.votes)})
        if label.classes is not None:
            return cls.of_lists(label.classes, label.exclude, case_sensitive=label.case_sensitive)
        excluded = {fold(text.strip()) for text in label.exclude}
        names: dict[str, str] = {}
        for text, _ in seen.most_common():  # of several spellings, the most frequent names the class
            if text and fold(text) not in excluded:
                names.setdefault(fold(text), text)
        if len(names) > MOST_CLASSES:
            raise TrainingError(
                f"label.column: got '{label.column}' with {len(names)} different values, expected at most "
                f"{MOST_CLASSES} classes; list the spellings of each class under [label.classes]"
            )
        ordered = sorted(names.items(), key=lambda entry: entry[1])
        spellings = {key: k for k, (key, _) in enumerate(ordered)}
        return cls(tuple(name for _, name in ordered), spellings, label.case_sensitive)

    @classmethod
    def of_lists(
        cls, classes: Mapping[str, Sequence[str]], exclude: Sequence[str] = (), *, case_sensitive: bool = True
    ) -> LabelReader:
        """Return the reader of classes with these spellings and ranges; what is in `exclude` is in none."""
        fold = str if case_sensitive else str.casefold
        spellings = {fold(text.strip()): -1 for text in exclude}
        spellings |= {fold(t.strip()): k for k, texts in enumerate(classes.values()) for t in texts}
        return cls(tuple(classes), spellings, case_sensitive, tuple(label_ranges([*classes.values()])))

    def knows(self, text: str) -> bool:
        """Say whether a label is of some class."""
        return self.index(text) >= 0

    def index(self, text: str) -> int:
        """Return the class of a label, -1 where it is of none; marks such as -99 are in no range."""
        k = self.spellings.get(text if self.case_sensitive else text.casefold())
        if k is not None or not self.ranges or is_doubtful(text):
            return -1 if k is None else k
        try:
            x = float(text)
        except ValueError:
            return -1
        return next((k for _, low, high, k in self.ranges if low <= x < high), -1)

    def read(self, texts: Array) -> Places:
        """Return the class index (n,) of each label."""
        distinct, inverse, _ = unique_texts(texts)
        index = np.array([self.index(text) for text in distinct], dtype=np.intp)
        return np.asarray(index[inverse]) if len(texts) else np.empty(0, dtype=np.intp)


Conflicts = tuple[int, Mapping[str, tuple[str, ...]]]
"""How many objects have labels of several classes, and the labels of some of them, by name or place."""


def naming_a_class(values: Mapping[str, Array], column: str, seen: Counter[str]) -> Mask:
    """Return which rows (n,) of a batch have a label that names a class; all labels are added to `seen`."""
    texts = plain_texts(values[column])
    counts = Counter(texts.tolist())
    seen += counts
    named = {text for text in counts if text and not is_doubtful(text)}
    return np.array([text in named for text in texts.tolist()], dtype=bool)


def is_doubtful(text: str) -> bool:
    """Say whether a label is what catalogues write where they do not know the class."""
    return DOUBTFUL.fullmatch(text) is not None


def is_no_label(label: Label, text: str) -> bool:
    """Say whether a label that is excluded says 'not known', as -1 does among codes, and names no other class."""
    return text in label.exclude and (is_doubtful(text) or text == "-1")


def plain_number(name: str) -> str:
    """Return a whole number without the zeros in front, by which texts are made as long as each other."""
    return name.lstrip("0") or "0" if name.isdecimal() else name


def require_exact(names: Array, who: str, column: str) -> None:
    """Raise `TrainingError` where identifiers (n,) are in floating point, and so large that they were rounded."""
    bits = np.finfo(names.dtype).nmant + 1 if names.dtype.kind == "f" else 0
    if bits and np.nanmax(np.abs(names), initial=0.0) > 2.0**bits:
        raise TrainingError(
            f"{who}: got floating-point identifiers above 2^{bits} in '{column}', which are rounded and may name "
            "another object, expected whole numbers or texts; write that file again, or add and name a column of row "
            "numbers"
        )


def check_classes(label: Label, reader: LabelReader, seen: Counter[str], counts: Sequence[int]) -> None:
    """Raise `TrainingError` where there is one class only, or a class without rows."""
    shown = ", ".join(f"'{brief(text)}' ({n})" for text, n in seen.most_common(8) if text) or "none"
    if len(reader.classes) < 2:
        raise TrainingError(
            f"label.column: got '{label.column}' with the labels {shown} in the training rows, expected at least two "
            "classes; choose another column, or widen catalog.where"
        )
    for name, count in zip(reader.classes, counts, strict=True):
        if not count:
            if label.votes is not None:
                raise TrainingError(
                    f"label.votes.{name}: got no training row where the class has the most votes, expected some; "
                    "merge it with another class, or drop it"
                )
            wanted = (label.classes or {}).get(name, (name,))
            hint = nearest(wanted[0], [text for text in seen if text])
            spellings = " or ".join(repr(brief(str(text))) for text in wanted[:MOST_SHOWN])
            raise TrainingError(
                f"label.classes.{name}: got no training row with {spellings} in column "
                f"'{label.column}', expected some; there are {shown}; {hint}"
            )


FEWEST = 20
"""Training rows below which an annotator is joined with others, since too little is known of one alone."""
MOST = 30
"""Annotators that have shares of their own, those of most rows."""
OTHERS = "others"


def numbered(names: Array, met: dict[str, int]) -> NDArray[np.int32]:
    """Return the numbers of the annotators of rows (n,), by name; new ones are added to those that were `met`."""
    distinct, inverse = np.unique(names.astype(str), return_inverse=True)
    return np.array([met.setdefault(str(name), len(met)) for name in distinct], dtype=np.int32)[inverse]


def annotator_groups(names: Sequence[str], counts: NDArray[np.integer]) -> tuple[Places, tuple[str, ...]]:
    """Return the group of each annotator (A,), as a number, and the groups' names.

    `counts` (A,) are numbers of training rows.  Rows that name nobody are of the others.
    """
    order = sorted(range(len(names)), key=lambda i: (-int(counts[i]), names[i]))
    own = [i for i in order if names[i] and counts[i] >= FEWEST][:MOST]
    group = np.full(len(names), len(own), dtype=np.intp)
    group[own] = np.arange(len(own))
    listed = tuple(names[i] for i in own)
    return group, listed if len(own) == len(names) else (*listed, OTHERS)


def vote_counts(label: Label, values: Mapping[str, Array]) -> Floats:
    """Return the votes (n, K) that a specification asks for, those of rows with too few or missing ones zero."""
    raw = np.stack([_numbers(name, values[name]) for name in (label.votes or {}).values()], axis=1)
    bad = (raw < 0).any(axis=1)
    if bad.any():
        raise TrainingError(
            f"label.votes: got negative votes in {int(bad.sum())} rows, expected counts or fractions; "
            "state the numbers that mean 'no value' under [catalog.sentinels]"
        )
    if label.total is not None:
        if np.nanmax(raw, initial=0.0) > 1 + 1e-6:
            raise TrainingError(
                f"label.votes: got {np.nanmax(raw):g} with a total, expected fractions up to 1; name the "
                "columns of the fractions, or remove total"
            )
        raw = raw * _numbers(label.total, values[label.total])[:, None]
    known = raw[np.isfinite(raw)]
    fractions = known.size and known.max() <= 1 and (known != np.trunc(known)).any()
    if label.total is None and label.fewest_votes > 0 and fractions:
        raise TrainingError(
            "label.votes: got fractions up to 1 without a total, expected numbers of votes, since read "
            "as numbers most rows have fewer than fewest_votes; add the column of the number of votes, "
            'total = "..." under [label], or set fewest_votes = 0, so that each row counts as one vote'
        )
    usable = np.isfinite(raw).all(axis=1) & (np.nan_to_num(raw).sum(axis=1) >= max(label.fewest_votes, 1e-9))
    return np.where(usable[:, None], raw, 0.0)


def most_voted(votes: Floats, classes: Sequence[str]) -> NDArray[np.object_]:
    """Return the class (n,) of the most votes (n, K), '' where it is missing."""
    names = np.array(["", *classes], dtype=object)
    return np.asarray(names[np.where(votes.sum(axis=1) > 0, votes.argmax(axis=1) + 1, 0)])


def _numbers(name: str, values: Array) -> Floats:
    try:
        return floats(values)
    except ValueError:
        raise TrainingError(
            f"label.votes: got texts in column '{name}', expected numbers; state the texts that mean 'no "
            "value' under [catalog.sentinels], or name another column"
        ) from None


REVIEWED = ("label", "class", "blr_label")
"""Columns of a review's table that hold the answer, where it has none of the catalogue's name."""
MARK = "blr_list"
"""Column of a list's rows that names the list and the object to which the answer belongs."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""First characters of texts that spreadsheets take for a formula, and the mark that makes such a text harmless."""


class Reviews(NamedTuple):
    """By object: the answer that most reviews give, the shares (`votes`) of answers that differ, a draw's weight."""

    answers: Mapping[str, str]
    votes: Mapping[str, Mapping[str, float]]
    weights: Mapping[str, float]


NO_REVIEWS = Reviews({}, {}, {})


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


def read_reviews(
    paths: Sequence[Path], identifier: str | None, label: Label, *, numbered: bool = False
) -> Reviews:
    """Return what tables of answers say; a table joins by the column `identifier`, which may be `numbered`.

    SpecificationError if a table has no column of identifiers or of answers, or no weights where they are asked
    for; TrainingError if identifiers were rounded, or a weight is no positive number.
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
        for text_name, text, weight in rows:
            name = plain_number(text_name) if numbered else text_name
            answers.setdefault(name, []).append(named.get(text, text))
            if weight is not None:
                weights.setdefault(name, []).append(weight / float(np.mean(drawn)))
    return Reviews(*_counted(answers, label), {name: float(np.mean(some)) for name, some in weights.items()})


def _counted(
    answers: Mapping[str, Sequence[str]], label: Label
) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
    """Return the label of each object that most answers give, the first of equals, and the shares where they differ."""
    labels: dict[str, str] = {}
    votes: dict[str, dict[str, float]] = {}
    reader = LabelReader.of_lists(label.classes or {}, label.exclude, case_sensitive=label.case_sensitive)

    def same(text: str) -> str | int:
        """Return what two answers of one class have in common."""
        if label.classes is None:
            return text if label.case_sensitive else text.casefold()
        return k if (k := reader.index(text)) >= 0 else text

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
        names, texts = (plain_texts(values[key]).tolist() for key in (identifier, column))
        if MARK in wanted:
            marks = plain_texts(values[MARK]).tolist()
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
            how = plain_texts(values["how"]).tolist() if "how" in wanted else ["drawn"] * len(names)
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


# Columns that give the label away.

MOST_SETS = 12
"""Sets of columns that are shown, those that tell the most first."""


def found_leaks(
    catalog: Catalog, seen: Profile, label: str, labels: Any
) -> tuple[list[Leak], dict[str, float]]:
    """Return the leaks of a class, `labels` of the chosen rows from the column `label`, and every column's gain.

    A column that is a linear function of the label, to rounding, comes first, with its formula, and is in no set.
    Names and places of objects are in no set: they tell where the survey looked.  Errors, and what else belongs to the
    observation, are in no set either: an error follows from its magnitude, so that with a second magnitude it imitates
    a colour, which would be taken for a formula with the class in it.
    """
    place = find_position_columns(catalog) or ()
    names = [name for name, _ in quality.suspected_identifiers(seen)]
    columns = {n: without_sentinels(seen, n) for n in seen.chosen if n != label}
    copies: dict[str, str] = {}  # the label in other numbers, unless it is in a table of its own, or votes
    if label in seen.chosen:
        here = labels != ""
        numbers = label_numbers(seen.chosen[label][here])
        known = {n: v[here] for n, v in columns.items() if v.dtype.kind in "biuf"}
        codes = [n for n, v in known.items() if codes_label(as_numbers(v), labels[here])]
        copies = {n: f"a code of {shown_column(label)}" for n in codes} | copies_of_label(
            known, label, numbers
        )
    measured = []
    for name in columns:
        column = seen.columns[name].column
        about = quality.about_an_error(column) or quality.about_the_observation(column)
        if name not in (*place, *names, *copies) and not (quality.bookkeeping(seen, name) or about):
            measured.append(name)
    fluxes = [n for n in measured if quality.about_a_flux(seen.columns[n].column)]
    leaks, gains = find_leaks(columns, labels, together=measured, fluxes=fluxes)
    alone = [Leak((name,), 1.0, 1.0, formula) for name, formula in copies.items()]
    alone += [leak for leak in leaks if len(leak.columns) == 1 and leak.columns[0] not in copies]
    derived = [leak for leak in leaks if leak.derived]
    rest = [leak for leak in leaks if len(leak.columns) > 1 and not leak.derived]
    return [*alone, *derived, *rest][: len(alone) + max(MOST_SETS, len(derived))], gains


def without_sentinels(seen: Profile, name: str) -> Any:
    """Return a column of the chosen rows with its suspected sentinels missing."""
    values = seen.chosen[name]
    if texts := suspected_texts(seen, name):
        values = apply_sentinels(values, tuple(texts))
    marks = [s.value for s in quality.suspected_sentinels(seen, name)]
    if not marks or values.dtype.kind not in "biuf":
        return values
    numbers = as_numbers(values)
    with np.errstate(over="ignore"):
        single = [mark for mark in marks if not isinstance(mark, str)]
        is_sentinel = np.isin(numbers.astype(np.float32), np.array(single, dtype=np.float32))
    ranges = [mark for mark in marks if isinstance(mark, str)]
    return apply_sentinels(np.where(is_sentinel, np.nan, numbers), ranges)
