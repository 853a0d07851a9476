"""Objects whose class is known, given at check time: purity, completeness and calibration of a release.

Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalogs.arrays.texts import hashed, hashed_strings
from catalogs.arrays.values import column_values
from catalogs.formats import TableChoice
from flows.errors import UsageError
from flows.models.model import Model
from flows.release._contract import Findings

Array = np.ndarray[Any, Any]


class Truth:
    """Objects whose class is known, by the hashes of their identifiers, and the classes that releases give them."""

    def __init__(self, hashes: Array, labels: Array) -> None:
        self.hashes, first = np.unique(hashes, return_index=True)
        self.labels = labels[first]
        self.found: dict[str, list[Array]] = {"now": [], "before": []}

    @classmethod
    def read(cls, path: Path, id_column: str, label: str, classes: Sequence[str]) -> Truth:
        """Read a table of labels; UsageError where it lacks the columns or has none of the classes."""
        catalog = TableChoice(columns=(label,)).open(path)
        names = {name.casefold(): name for name in catalog.names}
        if label not in catalog.names or id_column.casefold() not in names:
            raise UsageError(
                f"--truth: got {path} with the columns {', '.join(catalog.names[:8])}, expected '{id_column}' and "
                f"'{label}'; name the column of the classes with --truth-column"
            )
        hashes, labels = [], []
        for batch in catalog.batches([names[id_column.casefold()], label]):
            hashes.append(identifiers(batch.column(0)))
            text = pc.ascii_rtrim(batch.column(1).cast(pa.string()).fill_null(""), characters=" ")
            numbers = pc.index_in(text, pa.array(["", *classes], pa.string())).fill_null(0)
            labels.append(np.asarray(numbers, np.int16))
        codes = np.concatenate([np.empty(0, np.int16), *labels])
        if not (codes > 0).any():
            raise UsageError(
                f"--truth-column: got no class of the model in '{label}' of {path}, expected {', '.join(classes)}"
            )
        return cls(np.concatenate(hashes)[codes > 0], codes[codes > 0])

    def add(self, release: str, hashes: Array, classes: Array, p: Array) -> None:
        """Note the classes (n,) and probabilities (n,) that a release gives to known objects among its rows."""
        place, there = places_of(hashes, self.hashes)
        columns = (self.labels[place[there]], classes[there], p[there])
        self.found[release].append(np.stack([x.astype(np.float64) for x in columns], axis=1))

    def report(
        self, classes: Sequence[str], model: Model, findings: Findings, last: str | None
    ) -> dict[str, tuple[float, float, float]]:
        """Report purity, completeness and calibration; return each with its 95 % interval."""
        now, before = (np.concatenate([np.empty((0, 3)), *self.found[key]]) for key in ("now", "before"))
        findings.ran("truth", f"{len(now):,} objects whose class is known agree with the release")
        quality: dict[str, tuple[float, float, float]] = {}
        if len(now) < 10:
            findings.look("truth", f"only {len(now)} objects of the release have a label")
            return quality
        known = f"{len(now):,} known objects"
        confusion = np.asarray(model.metrics.confusion, float)
        for k, name in enumerate(classes):
            mine, given = now[:, 0] == k + 1, now[:, 1] == k + 1
            right = float((mine & given).sum())
            for what, of in (("purity", float(given.sum())), ("completeness", float(mine.sum()))):
                if of:
                    quality[f"{what} of {name}"] = (right / of, *_interval(right, of))
            if not mine.any() or not confusion.size or confusion[k].sum() < 10:
                continue
            value, low, high = quality[f"completeness of {name}"]
            expected = confusion[k, k] / confusion[k].sum()
            said = (
                f"completeness of {name} is {value:.0%} ({low:.0%} to {high:.0%}), {expected:.0%} at training"
            )
            findings.graded("truth", said, "", name, max(0.0, expected - high), (0.1, 0.25), known)
        p = now[np.isfinite(now[:, 2])]
        stated, observed = float(p[:, 2].mean()), float((p[:, 0] == p[:, 1]).mean())
        error = float(np.sqrt(np.mean(p[:, 2] * (1 - p[:, 2])) / len(p)))
        quality["calibration"] = (observed - stated, -1.96 * error, 1.96 * error)
        said = f"{observed:.0%} of the classes are right, their probabilities say {stated:.0%}"
        findings.graded(
            "calibration", said, "", "", observed - stated, (max(0.05, 4 * error), max(0.2, 4 * error)), known
        )
        if len(before) >= 10:
            was, right = (float((x[:, 0] == x[:, 1]).mean()) for x in (before, now))
            spread = float(np.sqrt(0.25 / len(now) + 0.25 / len(before)))
            quality["right since the last release"] = (
                right - was,
                right - was - 1.96 * spread,
                right - was + 1.96 * spread,
            )
            said = f"{right:.1%} of known objects have their class, {was:.1%} in release {last}"
            findings.graded("truth", said, "", "", max(0.0, was - right), (0.02, max(0.1, 3 * spread)), known)
        return quality


def _interval(right: float, of: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z, p = 1.96, right / of
    centre, half = p + z * z / (2 * of), z * np.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return float((centre - half) / (1 + z * z / of)), float((centre + half) / (1 + z * z / of))


def identifiers(column: pa.Array) -> Array:
    """Return the hashes (n,) of identifiers, the same whatever the width of the numbers; padding does not count."""
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        return hashed_strings(pc.ascii_rtrim(column.fill_null(""), characters=" \0"))
    values = column_values(column)
    if values.dtype.kind in "iub" and not np.ma.isMaskedArray(values):
        return hashed(values.astype(np.int64))
    return hashed(np.ma.filled(values, 0) if values.dtype.kind != "O" else values)


def places_of(hashes: Array, known: Array) -> tuple[Array, Array]:
    """Return the places (n,) of hashes among those `known`, which are sorted, and whether (n,) they are there."""
    if not len(known):
        return np.zeros(len(hashes), np.intp), np.zeros(len(hashes), bool)
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return place, known[place] == hashes
