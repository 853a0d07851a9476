"""The results of `map`: fractions of a class over the sky, in all and by bins of what they may depend on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["MapBin", "MapResult", "MappedFraction", "MappedQuantity", "What"]

What = Literal["fraction", "contamination", "completeness"]
"""Of all objects those of the class; of the selected ones those of other classes; of the class those selected."""


@dataclass(frozen=True, kw_only=True)
class MappedFraction:
    """A fraction of some objects.

    `objects` is what it is a fraction of, as the classifier expects it.  `k` of `n` are the labelled objects.
    `expected` is the classifier's own fraction, `fraction` the one that labelled objects correct, `low` and `high` its
    95 % interval; these are None without labelled objects, or where there is no object.
    """

    objects: float
    k: int
    n: int
    expected: float | None
    fraction: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class MapBin(MappedFraction):
    """The fraction of the objects with a quantity from `start` to `stop`."""

    start: float
    stop: float


@dataclass(frozen=True, kw_only=True)
class MappedQuantity:
    """A quantity that the fraction depends on: its expression, unit and bins, which hold as many objects each."""

    expression: str
    unit: str | None
    bins: tuple[MapBin, ...]


@dataclass(frozen=True, kw_only=True)
class MapResult:
    """What was mapped, and where the maps are.

    `n_classified` are the objects with probabilities and a position, `cells` the pixels of order `order` that have some
    of what is mapped.  Of the answers, `labelled` are in use, `unanswered` have no label, `unmatched` are of no object
    here.  `files` is empty where nothing was written.
    """

    status: Literal["planned", "done"]
    model: str
    out: Path
    class_name: str
    what: What
    order: int
    n_classified: int
    cells: int
    labelled: int
    unanswered: int
    unmatched: int
    whole: MappedFraction
    over: tuple[MappedQuantity, ...]
    remarks: tuple[str, ...]
    files: tuple[Path, ...]
