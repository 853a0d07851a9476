"""A census as reports read it: the fields of `flows.runs.census` that they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["BinsLike", "CensusLike", "ChangeLike", "CountLike", "QualityLike", "SelectionLike"]


class QualityLike(Protocol):
    """How many objects a selection has, how pure and how complete it is."""

    @property
    def stated(self) -> str:
        """What it was chosen for."""
        ...

    @property
    def objects(self) -> int:
        """How many are selected."""
        ...

    @property
    def purity(self) -> float:
        """The expected purity."""
        ...

    @property
    def purity_low(self) -> float:
        """The lower end of the purity."""
        ...

    @property
    def purity_high(self) -> float:
        """The upper end of the purity."""
        ...

    @property
    def completeness(self) -> float:
        """The expected completeness."""
        ...

    @property
    def completeness_low(self) -> float:
        """The lower end of the completeness."""
        ...

    @property
    def completeness_high(self) -> float:
        """The upper end of the completeness."""
        ...


class SelectionLike(QualityLike, Protocol):
    """A selection by probability."""

    @property
    def threshold(self) -> float:
        """The least probability."""
        ...

    @property
    def column(self) -> str:
        """The column of the copies that has it, '' for none."""
        ...


class BinnedSelectionLike(QualityLike, Protocol):
    """What thresholds that differ from bin to bin come to."""

    @property
    def thresholds(self) -> Mapping[str, float]:
        """The thresholds by bin."""
        ...


class CountLike(Protocol):
    """The count of a class."""

    @property
    def count(self) -> float | None:
        """The expected count."""
        ...

    @property
    def low(self) -> float | None:
        """The lower end of its interval."""
        ...

    @property
    def high(self) -> float | None:
        """Its upper end."""
        ...

    @property
    def source(self) -> str:
        """What it comes from."""
        ...

    @property
    def assumes(self) -> str | None:
        """The assumption that it holds under."""
        ...

    @property
    def reason(self) -> str:
        """Why."""
        ...

    @property
    def selections(self) -> Sequence[SelectionLike]:
        """Selections by its probability."""
        ...


class ChangeLike(Protocol):
    """The change of a count."""

    @property
    def change(self) -> float | None:
        """The expected change."""
        ...

    @property
    def low(self) -> float | None:
        """The lower end of its interval."""
        ...

    @property
    def high(self) -> float | None:
        """Its upper end."""
        ...


class BinCountLike(Protocol):
    """The count of a class in a bin."""

    @property
    def count(self) -> float:
        """The expected count."""
        ...

    @property
    def low(self) -> float:
        """The lower end of its interval."""
        ...

    @property
    def high(self) -> float:
        """Its upper end."""
        ...

    @property
    def selections(self) -> Sequence[SelectionLike]:
        """Selections by its probability."""
        ...


class BinLike(Protocol):
    """A bin."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def objects(self) -> int:
        """How many objects it has."""
        ...

    @property
    def labelled(self) -> int:
        """How many labelled rows it has."""
        ...

    @property
    def classes(self) -> Mapping[str, BinCountLike]:
        """The counts by class."""
        ...


class BinsLike(Protocol):
    """The census by bins."""

    @property
    def by(self) -> str:
        """The expression."""
        ...

    @property
    def reason(self) -> str:
        """What the counts rest on."""
        ...

    @property
    def bins(self) -> Sequence[BinLike]:
        """The bins, in order."""
        ...

    @property
    def selections(self) -> Mapping[str, Sequence[BinnedSelectionLike]]:
        """What thresholds of bins come to, by class."""
        ...


class CensusLike(Protocol):
    """A census."""

    @property
    def n_rows(self) -> int:
        """How many objects have probabilities."""
        ...

    @property
    def classes(self) -> Mapping[str, CountLike]:
        """The counts by class."""
        ...

    @property
    def bins(self) -> BinsLike | None:
        """The census by bins, None for none."""
        ...
