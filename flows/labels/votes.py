"""Votes and annotators: the shares of their answers, and how reliable each annotator is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.sky.photometry import floats
from flows.errors import TrainingError
from flows.specification.label import Label

__all__ = ["FEWEST", "MOST", "OTHERS", "AnnotatorNames", "VoteReader", "annotator_groups", "most_voted"]

# Who labelled each row, by the column that names the annotators; those with few labels are treated as one.
#
# Shapes: n rows of a batch, A annotators.

FEWEST = 20
"""Training rows below which an annotator is joined with others, since too little is known of one alone."""
MOST = 30
"""Annotators that have shares of their own, those of most rows."""
OTHERS = "others"


@dataclass
class AnnotatorNames:
    """Numbers the annotators in the order in which they are met, so that rows hold numbers and no names."""

    _numbers: dict[str, int] = field(default_factory=dict)

    def numbered(self, names: NDArray[Any]) -> NDArray[np.int32]:
        """Return the number of the annotator of each row of a batch (n,), of their names."""
        distinct, inverse = np.unique(names.astype(str), return_inverse=True)
        numbers = [self._numbers.setdefault(str(name), len(self._numbers)) for name in distinct]
        return np.array(numbers, dtype=np.int32)[inverse]

    @property
    def names(self) -> tuple[str, ...]:
        """The names (A,), by number."""
        return tuple(self._numbers)


def annotator_groups(
    names: Sequence[str], counts: NDArray[np.integer]
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return the group of each annotator (A,), as a number, and the groups' names.

    `counts` (A,) are numbers of training rows.  Rows that name nobody are of the others.
    """
    order = sorted(range(len(names)), key=lambda i: (-int(counts[i]), names[i]))
    own = [i for i in order if names[i] and counts[i] >= FEWEST][:MOST]
    group = np.full(len(names), len(own), dtype=np.intp)
    group[own] = np.arange(len(own))
    listed = tuple(names[i] for i in own)
    return group, listed if len(own) == len(names) else (*listed, OTHERS)


# Votes from a catalogue's columns: counts of each class, or fractions with a total.
#
# Shapes: n rows, K classes.

Array = np.ndarray[Any, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class VoteReader:
    """The columns of votes, and whether they are fractions of a total."""

    columns: tuple[str, ...]
    total: str | None
    fewest: float

    @classmethod
    def of(cls, label: Label) -> VoteReader:
        """Return the reader that a specification asks for."""
        return cls(tuple((label.votes or {}).values()), label.total, label.fewest_votes)

    def counts(self, values: Mapping[str, Array]) -> Floats:
        """Return the votes (n, K), those of rows with too few or missing ones zero."""
        raw = np.stack([_numbers(name, values[name]) for name in self.columns], axis=1)
        bad = (raw < 0).any(axis=1)
        if bad.any():
            raise TrainingError(
                f"label.votes: got negative votes in {int(bad.sum())} rows, expected counts or fractions; "
                "state the numbers that mean 'no value' under [catalog.sentinels]"
            )
        if self.total is not None:
            if np.nanmax(raw, initial=0.0) > 1 + 1e-6:
                raise TrainingError(
                    f"label.votes: got {np.nanmax(raw):g} with a total, expected fractions up to 1; name the "
                    "columns of the fractions, or remove total"
                )
            raw = raw * _numbers(self.total, values[self.total])[:, None]
        elif self.fewest > 0 and _are_fractions(raw):
            raise TrainingError(
                "label.votes: got fractions up to 1 without a total, expected numbers of votes, since read "
                "as numbers most rows have fewer than fewest_votes; add the column of the number of votes, "
                'total = "..." under [label], or set fewest_votes = 0, so that each row counts as one vote'
            )
        usable = np.isfinite(raw).all(axis=1) & (np.nan_to_num(raw).sum(axis=1) >= max(self.fewest, 1e-9))
        return np.where(usable[:, None], raw, 0.0)


def most_voted(votes: Floats, classes: Sequence[str]) -> NDArray[np.object_]:
    """Return the class (n,) of the most votes (n, K), '' where it is missing."""
    names = np.array(["", *classes], dtype=object)
    return np.asarray(names[np.where(votes.sum(axis=1) > 0, votes.argmax(axis=1) + 1, 0)])


def _are_fractions(votes: Floats) -> bool:
    known = votes[np.isfinite(votes)]
    return bool(known.size and known.max() <= 1 and (known != np.trunc(known)).any())


def _numbers(name: str, values: Array) -> Floats:
    try:
        return floats(values)
    except ValueError:
        raise TrainingError(
            f"label.votes: got texts in column '{name}', expected numbers; state the texts that mean 'no "
            "value' under [catalog.sentinels], or name another column"
        ) from None
