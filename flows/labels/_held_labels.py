"""Labels of a table in memory, by identifier or by position.

An object that a table labels twice, differently, has a conflict and no label.  Shapes: n rows of a batch, L labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.sky.positions import match_positions, near_others

__all__ = ["SHOWN", "Conflicts", "HeldNames", "HeldPlaces", "place_conflicts", "plain_number"]

Array = np.ndarray[Any, Any]

SHOWN = 20
"""Objects in conflict that are named."""


@dataclass(frozen=True)
class Conflicts:
    """How many objects have labels in conflict, and the labels of some of them, by name or place."""

    n: int = 0
    shown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, labels: Mapping[str, tuple[str, ...]]) -> Conflicts:
        """Return those of all objects whose labels differ."""
        return cls(len(labels), dict(sorted(labels.items())[:SHOWN]))


def plain_number(name: str) -> str:
    """Return a whole number without the zeros in front, by which texts are made as long as each other."""
    return name.lstrip("0") or "0" if name.isdecimal() else name


@dataclass(frozen=True, eq=False)
class HeldNames:
    """Labels by identifier; where they are `numbered`, zeros in front of a number do not count."""

    labels: Mapping[str, str]
    differing: Mapping[str, tuple[str, ...]]
    is_numbered: bool = False

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> HeldNames:
        """Return the labels of a table's rows, identifiers with labels; what is without either is left out."""
        return cls._agreed(pairs, {}, is_numbered=False)

    @classmethod
    def _agreed(
        cls, pairs: Iterable[tuple[str, str]], before: Mapping[str, tuple[str, ...]], *, is_numbered: bool
    ) -> HeldNames:
        labels: dict[str, str] = {}
        differing = dict(before)
        for name, text in pairs:
            if name and text and labels.setdefault(name, text) != text:
                differing[name] = tuple(dict.fromkeys((*differing.get(name, ()), labels[name], text)))
        return cls({n: t for n, t in labels.items() if n not in differing}, differing, is_numbered)

    def __len__(self) -> int:
        """L, the number of objects with a label."""
        return len(self.labels)

    @property
    def conflicts(self) -> Conflicts:
        """The objects whose labels differ."""
        return Conflicts.of(self.differing)

    @property
    def first(self) -> str:
        """The first identifier of the table that has a label."""
        return next(iter(self.labels), "")

    def numbered(self) -> HeldNames:
        """Return the labels by whole numbers: '0001234' is 1234, and two names of one number may be in conflict."""
        pairs = ((plain_number(name), text) for name, text in self.labels.items())
        return self if self.is_numbered else self._agreed(pairs, self.differing, is_numbered=True)

    def texts(self, names: Sequence[str]) -> Array:
        """Return the labels (n,) of objects by identifier, '' of an object without one."""
        wanted = map(plain_number, names) if self.is_numbered else names
        return np.array([self.labels.get(name, "") for name in wanted], dtype=object)

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield the identifiers with their labels, in order."""
        return iter(sorted(self.labels.items()))


@dataclass(frozen=True, eq=False)
class HeldPlaces:
    """Labels by position: degrees (L,), texts (L,), and the radius in arcseconds within which positions match."""

    ra: Array
    dec: Array
    labels: Array
    radius: float
    differing: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, ra: Array, dec: Array, texts: Array, radius: float) -> HeldPlaces:
        """Return the labels of places; where two within the radius of each other differ, neither has a label."""
        known = np.isfinite(ra) & (texts != "")
        ra, dec, texts = ra[known], dec[known], texts[known]
        differing = place_conflicts(ra, dec, texts, radius)
        agreed = np.ones(len(ra), dtype=bool)
        agreed[list(differing)] = False
        named = {f"{ra[i]:.6f} {dec[i]:+.6f}": labels for i, labels in differing.items()}
        return cls(ra[agreed], dec[agreed], texts[agreed], radius, named)

    def __len__(self) -> int:
        """L, the number of places with a label."""
        return len(self.ra)

    @property
    def conflicts(self) -> Conflicts:
        """The places whose labels differ."""
        return Conflicts.of(self.differing)

    @property
    def n_numbers(self) -> int:
        """One more than the largest number of a label."""
        return len(self.ra)

    def nearest(self, ra: Array, dec: Array) -> tuple[Array, NDArray[np.intp]]:
        """Return the labels (n,) of the nearest places within the radius, '' where none is, and their numbers or -1."""
        index = match_positions(ra, dec, self.ra, self.dec, radius=self.radius)
        if not len(self):
            return np.full(len(index), "", dtype=object), index
        return np.where(index >= 0, self.labels[index], ""), index

    def content(self) -> Iterator[tuple[str, str]]:
        """Yield the places with their labels, in order."""
        rows = zip(self.ra.tolist(), self.dec.tolist(), self.labels.tolist(), strict=True)
        return iter(sorted({f"{ra!r} {dec!r}": text for ra, dec, text in rows}.items()))


def place_conflicts(ra: Array, dec: Array, texts: Array, radius: float) -> dict[int, tuple[str, ...]]:
    """Return the labels within the radius of those places where they differ, by the place's index."""
    found = {}
    for i, others in enumerate(near_others(ra, dec, radius=radius)):
        differing = dict.fromkeys([texts[i], *texts[others]])
        if len(differing) > 1:
            found[i] = tuple(sorted(differing))
    return found
