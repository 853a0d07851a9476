"""What a catalogue's annotation adds up to: class counts with errors, flags, missing shares.

Batches are counted by threads in any order, so sums of floating-point numbers are taken by `math.fsum`,
which is exact and does not depend on it.  Shapes: K classes, F features, S draws of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blr.decisions import FLAG_MEANINGS

__all__ = ["Tally", "summarise", "total"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tally:
    """Counts over some rows.

    `expected` (K,) is the sum of probabilities, `variance` (K,) of p (1 - p): the objects' own uncertainty.
    `draws` (S, K) are the sums under S draws of the weights, which all objects share.
    """

    n_rows: int
    n_classified: int
    assigned: tuple[int, ...]
    expected: tuple[float, ...]
    variance: tuple[float, ...]
    draws: tuple[tuple[float, ...], ...]
    flags: Mapping[str, int]
    missing: tuple[int, ...]

    @classmethod
    def of(cls, p: Floats, draws: Floats, flags: NDArray[np.int32], missing: NDArray[np.bool_]) -> Tally:
        """Count a batch: p (n, K), NaN where unclassified; draws (S, K); flags (n,); missing (n, F)."""
        known = p[~np.isnan(p[:, 0])]
        names = {str(flag.name): int(flag.value) for flag in FLAG_MEANINGS}
        return cls(
            n_rows=len(p),
            n_classified=len(known),
            assigned=tuple(np.bincount(known.argmax(axis=1), minlength=p.shape[1]).tolist()),
            expected=tuple(known.sum(axis=0).tolist()),
            variance=tuple((known * (1 - known)).sum(axis=0).tolist()),
            draws=tuple(map(tuple, draws.tolist())),
            flags={name: int(np.count_nonzero(flags & bit)) for name, bit in names.items()},
            missing=tuple(missing.sum(axis=0).tolist()),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON gives it back: lists and mappings."""
        lists = {key: list(value) for key, value in vars(self).items() if isinstance(value, tuple)}
        return {**vars(self), **lists, "draws": [list(row) for row in self.draws], "flags": dict(self.flags)}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Tally:
        """Return the tally of `to_dict`."""
        return cls(
            n_rows=tree["n_rows"],
            n_classified=tree["n_classified"],
            assigned=tuple(tree["assigned"]),
            expected=tuple(tree["expected"]),
            variance=tuple(tree["variance"]),
            draws=tuple(map(tuple, tree["draws"])),
            flags={str(flag.name): 0 for flag in FLAG_MEANINGS} | tree["flags"],  # earlier versions had fewer
            missing=tuple(tree["missing"]),
        )


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of tallies, the same in whatever order they come."""
    given = list(tallies)
    parts = [t for t in given if t.n_rows] or given[:1]  # of no rows, there are no draws
    return Tally(
        n_rows=sum(t.n_rows for t in parts),
        n_classified=sum(t.n_classified for t in parts),
        assigned=tuple(map(sum, zip(*(t.assigned for t in parts), strict=True))),
        expected=_fsum([t.expected for t in parts]),
        variance=_fsum([t.variance for t in parts]),
        draws=tuple(_fsum(rows) for rows in zip(*(t.draws for t in parts), strict=True)),
        flags={name: sum(t.flags[name] for t in parts) for name in parts[0].flags},
        missing=tuple(map(sum, zip(*(t.missing for t in parts), strict=True))),
    )


def _fsum(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(math.fsum(column) for column in zip(*rows, strict=True))


def summarise(
    tally: Tally, classes: Sequence[str], features: Sequence[str], *, no_error: str | None = None
) -> dict[str, Any]:
    """Return the summary that people read: counts with errors, shares of flags and of missing features.

    `no_error` says why the errors of the counts are not known; they are None then.
    """
    shared = np.var(np.array(tally.draws), axis=0, ddof=1) if len(tally.draws) > 1 else np.zeros(len(classes))
    n = max(1, tally.n_rows)
    return {
        "n_rows": tally.n_rows,
        "n_classified": tally.n_classified,
        "classes": {
            name: {
                "assigned": tally.assigned[k],
                "expected": tally.expected[k],
                **_errors(tally.variance[k], float(shared[k]), known=no_error is None),
            }
            for k, name in enumerate(classes)
        },
        **({} if no_error is None else {"no_error": no_error}),
        "flags": {
            str(flag.name): {
                "bit": int(flag.value).bit_length() - 1,
                "meaning": meaning,
                "count": tally.flags[str(flag.name)],
                "share": tally.flags[str(flag.name)] / n,
            }
            for flag, meaning in FLAG_MEANINGS.items()
        },
        "missing": {name: tally.missing[j] / n for j, name in enumerate(features)},
    }


def _errors(objects: float, weights: float, *, known: bool) -> dict[str, float | None]:
    """Return the error of a count and its two parts, of their variances."""
    parts = {"error": objects + weights, "error_objects": objects, "error_weights": weights}
    return {name: math.sqrt(variance) if known else None for name, variance in parts.items()}
