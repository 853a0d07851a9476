"""How many objects differ between an annotation and the one before it, for a file or a whole release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AliasChoices, Field

__all__ = [
    "Difference",
    "FileDifference",
    "MovedObject",
    "ReleaseDifference",
    "ReleasedObject",
    "SampledChange",
    "Transition",
]

ClassNow = Annotated[str, Field(validation_alias=AliasChoices("is", "now"), serialization_alias="is")]
"""The class now.  The key is `is`, which cannot be the name of a field, since it is a keyword of Python."""


@dataclass(frozen=True)
class Transition:
    """The number of objects that changed from one class to another; a class is '' where there are no probabilities."""

    was: str
    now: ClassNow
    objects: int


@dataclass(frozen=True, kw_only=True)
class MovedObject:
    """An object whose class or probability changed; `moved` is the largest change of a class's probability."""

    id: str
    was: str
    now: ClassNow
    moved: float


@dataclass(frozen=True, kw_only=True)
class _InFile:
    """The name of an annotated file."""

    file: str


@dataclass(frozen=True, kw_only=True)
class ReleasedObject(MovedObject, _InFile):
    """An object of a release whose class or probability changed, and its file."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How many objects differ between two annotations.

    `matched_by` says how objects were matched: by "row", by "id", or by "nothing"; then all count as appeared and
    vanished.  `moved` counts objects with a probability that changed by more than 0.1.  `largest_move` is the largest
    change of a probability.  Flags are counted by their names.
    """

    matched_by: str
    compared: int
    appeared: int
    vanished: int
    class_changed: int
    transitions: tuple[Transition, ...]
    flag_changed: int
    flags_gained: Mapping[str, int]
    flags_lost: Mapping[str, int]
    moved: int
    largest_move: float


@dataclass(frozen=True, kw_only=True)
class FileDifference(Difference):
    """The difference between two annotations of a file, with the objects whose probabilities changed most."""

    examples: tuple[MovedObject, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseDifference(Difference):
    """The difference between two releases, with the objects whose probabilities changed most."""

    examples: tuple[ReleasedObject, ...]


@dataclass(frozen=True, kw_only=True)
class SampledChange:
    """How many classes another model would change in a release, from the first rows of some of its files.

    `changed` of the `compared` rows change class; `transitions` counts them by class, the most frequent first.
    `n_rows` and `n_files` are those of the whole release.
    """

    folder: str
    release: int
    n_files: int
    n_rows: int
    files: int  # number of files that were read
    compared: int
    changed: int
    transitions: tuple[Transition, ...]
    troubles: tuple[str, ...]  # files that one of the two could not classify, and why
