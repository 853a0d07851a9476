"""How many objects an annotation changes against the one before, of a file or of a whole release."""

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
"""The key is `is`, which Python keeps for itself."""


@dataclass(frozen=True)
class Transition:
    """Objects that were of one class and are of another now; the class is '' where there are no probabilities."""

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

    Objects are matched by `row`, by `id`, or by `nothing`: then all appeared and vanished.  `moved` of them changed
    a probability by more than 0.1; `largest_move` is the largest such change.  Flags are counted by their names.
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
    """The difference between two annotations of a file, with the objects that moved furthest."""

    examples: tuple[MovedObject, ...]


@dataclass(frozen=True, kw_only=True)
class ReleaseDifference(Difference):
    """The difference between two releases, with the objects that moved furthest."""

    examples: tuple[ReleasedObject, ...]


@dataclass(frozen=True, kw_only=True)
class SampledChange:
    """What another model would change in a release: the classes of the first rows of some of its files.

    `changed` of the `compared` rows change class; `transitions` counts them by class, the most frequent first.
    `n_rows` and `n_files` are the whole release's.
    """

    folder: str
    release: int
    n_files: int
    n_rows: int
    files: int  # that were read
    compared: int
    changed: int
    transitions: tuple[Transition, ...]
    troubles: tuple[str, ...]  # files that one of the two could not classify, and why
