"""The tables `[label]` and `[label.noise]`: where labels are, how many of them are wrong, and which could be one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from blr.selection.grouping import Grouping
from catalogs.errors import nearest
from flows.specification.catalog import (
    PositionUnit,
    SourceText,
    SpecificationTable,
    label_ranges,
    overlapping,
)

EXPECTED = (
    "expected a share above 0 and below 0.5, as noise = 0.02, a table of them by true class, a table of tables by true "
    'and recorded class, or "estimated"'
)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _checked(value: Any) -> Any:
    """Return the value of label.noise if it is allowed; ValueError otherwise."""
    if value is None or value == "estimated":
        return value
    if _is_number(value):
        if not 0 < value < 0.5:
            raise ValueError(
                f"got {value}, {EXPECTED}; with 0.5 or more the classes could change places; correct it"
            )
        return float(value)
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"got {value!r}, {EXPECTED}; change it")
    for name, share in value.items():
        if isinstance(share, Mapping):
            _check_row(str(name), share)
        elif not _is_number(share) or not 0 <= share < 0.5:
            raise ValueError(f"got {share!r} for class '{name}', {EXPECTED}; change it")
    return value


def _check_row(name: str, row: Mapping[Any, Any]) -> None:
    wrong = [share for share in row.values() if not _is_number(share) or not 0 <= share <= 1]
    if wrong:
        raise ValueError(
            f"got {wrong[0]!r} in the row of class '{name}', expected shares from 0 to 1; change it"
        )
    other = sum(share for key, share in row.items() if key != name)
    if other >= 0.5:
        raise ValueError(
            f"got {other:g} as the share of class '{name}' that is recorded as another, expected less than "
            "0.5, since otherwise the classes could change places; correct it"
        )
    if name in row and abs(row[name] + other - 1) > 1e-6:
        raise ValueError(
            f"got shares of class '{name}' that sum to {row[name] + other:g}, expected 1; correct them, or "
            "leave out the share of the class itself"
        )


Noise = Annotated[
    float | Literal["estimated"] | dict[str, float | dict[str, float]], BeforeValidator(_checked)
]


def check_noise(noise: Any, classes: Sequence[str]) -> None:
    """Raise ValueError where the shares name an unknown class."""
    if not isinstance(noise, Mapping):
        return
    named = [*noise, *(key for row in noise.values() if isinstance(row, Mapping) for key in row)]
    for name in named:
        if name not in classes:
            raise ValueError(f"noise: got '{name}', expected one of the classes; {nearest(name, classes)}")


def stated_confusion(noise: Any, classes: Sequence[str]) -> NDArray[np.float64]:
    """Return p(recorded | true class), (K, K), from stated shares; labels of a class without a share are right."""
    K = len(classes)
    rows = noise if isinstance(noise, Mapping) else dict.fromkeys(classes, noise)
    confusion = np.eye(K)
    for name, row in rows.items():
        k = classes.index(name)
        others = row if isinstance(row, Mapping) else {c: row / (K - 1) for c in classes if c != name}
        for recorded, share in others.items():
            confusion[k, classes.index(recorded)] = share
        confusion[k, k] = 0.0
        confusion[k, k] = 1.0 - confusion[k].sum()
    return confusion


ClassName = Annotated[str, Field(min_length=1, max_length=64)]


def _as_text(value: Any) -> Any:
    """Return a label as the text with which values of a column are compared: '1' for 1 and 1.0, 'True' for true."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value) if isinstance(value, int) else value  # bool is a subclass of int


def _listed(value: Any) -> Any:
    listed = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(map(_as_text, listed)) if isinstance(value, (str, bool, int, float, list, tuple)) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class LabelTable(SpecificationTable):
    """A separate file of labels, joined to the catalogue by identifier or by position."""

    path: SourceText = Field(description="The file, relative to the specification, or a URL")
    id: str | None = Field(default=None, description="Column of the file that holds catalog.id")
    ra: str | None = Field(
        default=None, description="Column of right ascension in the file, to join by position"
    )
    dec: str | None = Field(default=None, description="Column of declination in the file")
    position_unit: PositionUnit | None = Field(
        default=None, description="Unit of the position in the file; default: what its columns say"
    )
    radius: float = Field(default=1.0, gt=0, le=3600, description="Arcseconds within which positions match")

    @model_validator(mode="after")
    def _check(self) -> LabelTable:
        if (self.id is None) == (self.ra is None or self.dec is None):
            raise ValueError(
                "expected id, or ra and dec, by which to join the labels; give id, or both ra and dec"
            )
        return self


class Label(SpecificationTable):
    """What the classes are, and where a row's class is written."""

    column: str | None = Field(default=None, description="Column that holds the class")
    classes: dict[ClassName, Texts] | None = Field(
        default=None,
        description="Class = its spellings in the column, in order, or ranges of numbers, '0..5' being 0 <= x < 5; "
        "default: each value a class",
    )
    case_sensitive: bool = Field(default=True, description="Whether 'Sa' and 'SA' are two spellings")
    exclude: Texts = Field(default=(), description="Spellings whose rows are not used for training")
    table: LabelTable | None = Field(default=None, description="A separate file that holds the labels")
    votes: dict[ClassName, str] | None = Field(
        default=None, description="Class = column of its vote count, or of its fraction with 'total'"
    )
    total: str | None = Field(
        default=None, description="Column of the number of votes, where votes are fractions"
    )
    fewest_votes: float = Field(default=1.0, ge=0, description="Rows with fewer votes are left out")
    overdispersion: bool = Field(
        default=True, description="Correct for votes that scatter more than independent votes would"
    )
    extra: tuple[SourceText, ...] = Field(default=(), description="Label tables that came back from review")
    review_weights: bool = Field(
        default=False, description="Whether drawn objects of reviews count by their inclusion weights"
    )
    noise: Noise | None = Field(
        default=None,
        description="Share of wrong labels: of all classes, class = its own, true class = { recorded class = share }, "
        "or 'estimated'; default: labels are right",
    )
    annotator: str | None = Field(
        default=None,
        description="Column of who labelled a row: shares of wrong labels are estimated for each",
    )

    @model_validator(mode="after")
    def _check(self) -> Label:
        if self.column is None and self.votes is None:
            raise ValueError(
                "got no 'column', expected the column that holds the class; add column = \"...\", or, of votes, "
                "the table [label.votes]"
            )
        if self.column is not None and self.votes is not None:
            raise ValueError("got 'column' and 'votes', expected one source of labels; remove one")
        if self.votes is not None:
            _check_votes(self)
        elif self.total is not None:
            raise ValueError("got 'total' without votes, expected [label.votes]; add it, or drop total")
        _check_classes(self.classes, case_sensitive=self.case_sensitive)
        _check_labelling(self)
        if self.review_weights and not self.extra:
            raise ValueError(
                "got 'review_weights' without 'extra', expected the lists that have the weights; add extra = [...]"
            )
        for text in self.exclude:
            for name, spellings in (self.classes or {}).items():
                if text in spellings:
                    raise ValueError(
                        f"'{text}' is in 'exclude' and in class '{name}'; keep it in one of them"
                    )
        return self

    @property
    def key(self) -> str:
        """The key of the specification that says where labels come from."""
        return "label.votes" if self.votes is not None else "label.column"


def _check_labelling(label: Label) -> None:
    if label.noise is not None and label.votes is not None:
        raise ValueError(
            "got 'noise' with votes, expected one label for each row, since votes show already how much "
            "voters differ; remove noise"
        )
    if label.annotator is not None:
        if label.noise != "estimated":
            raise ValueError(
                "got 'annotator' without noise = \"estimated\", expected both, since the share of wrong "
                "labels of each annotator is estimated; add noise, or remove annotator"
            )
        for key in ("table", "extra"):
            if getattr(label, key):
                raise ValueError(
                    f"got 'annotator' beside '{key}', expected labels in a column of the catalogue, whose "
                    "rows name the annotators; remove one of the two keys"
                )
    if label.noise is not None and label.classes is not None:
        check_noise(label.noise, tuple(label.classes))


def _check_votes(label: Label) -> None:
    votes = label.votes or {}
    for key in ("classes", "table", "exclude", "extra"):
        if getattr(label, key):
            raise ValueError(f"got '{key}' and votes, expected one source of labels; remove one")
    if len(votes) < 2:
        raise ValueError(f"got {len(votes)} class(es) in 'votes', expected at least two; add the others")
    if len(set(votes.values())) < len(votes):
        raise ValueError(
            "got a column twice in 'votes', expected a different column for each class; correct it"
        )


def _check_classes(classes: Mapping[str, tuple[str, ...]] | None, *, case_sensitive: bool) -> None:
    if classes is None:
        return
    if len(classes) < 2:
        raise ValueError(f"got {len(classes)} class(es) in 'classes', expected at least two; add the others")
    if shared := overlapping(label_ranges([*classes.values()])):
        a, b = shared
        raise ValueError(
            f"'{a.text}' and '{b.text}' overlap, expected ranges of different classes without common numbers "
            "(the upper end does not belong to a range); correct one of them"
        )
    seen: dict[str, str] = {}
    for name, spellings in classes.items():
        if not spellings:
            raise ValueError(
                f"class '{name}' lists no spelling, expected at least one; add it, or remove the class"
            )
        for spelling in spellings:
            other = seen.setdefault(spelling if case_sensitive else spelling.casefold(), name)
            if other != name:
                raise ValueError(
                    f"'{spelling}' is in class '{other}' and in '{name}'; keep it in one of them"
                )


MOST_PAIRS = 3
"""Pairs of classes that the sentence names."""
MOST_IN_NAME = 3
"""Classes up to which a group is named after all of them."""


def alike_words(found: Grouping, classes: Sequence[str], who: str, whose: str) -> str:
    """Return the sentence on classes that `who` cannot tell apart, by what is `whose`; '' without such classes."""
    if not found.mistaken:
        return ""
    pairs = []
    for j, k, *shares in found.mistaken[:MOST_PAIRS]:
        a, b = (f"{share:.0%}" for share in shares)
        how_many = f"{a} of each" if a == b else f"{a} and {b}"
        pairs.append(f"{classes[j]} and {classes[k]}: {how_many} are taken for the other")
    return (
        f"{who} cannot tell all classes apart ({'; '.join(pairs)}). {len(found.groups)} groups keep "
        f"{found.kept:.0%} of what {whose} knows of the {len(classes)} classes."
    )


def grouped(found: Grouping, classes: Sequence[str], rows: Sequence[int]) -> dict[str, list[str]]:
    """Return the classes of each group by the group's name; nothing where none are joined."""
    groups = {}
    for group in found.groups if found.mistaken else ():
        first = max(group, key=lambda k: rows[k])
        whole = "/".join(classes[k] for k in group)
        name = whole if len(group) <= MOST_IN_NAME else f"{classes[first]} and {len(group) - 1} more"
        groups[name] = [classes[k] for k in group]
    return groups
