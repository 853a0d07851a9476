"""The classified rows of annotated catalogues as an audit draws from them: class, probabilities, and a bin.

Shapes: n rows, K classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalogs.arrays.values import batch_values
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.new_columns import safe_name
from catalogs.errors import ColumnNotFoundError
from catalogs.expressions.expression import Expression, even_edges, names_between, places_between
from catalogs.sky.positions import positions
from flows.errors import UsageError
from flows.labels.reader import label_texts, require_exact
from flows.reviews._objects import ObjectTable

__all__ = ["MISSING", "Bins", "ClassifiedRows", "ValueSample", "check_expression", "classified_rows"]

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

MISSING = "missing"
"""The bin of the rows where the expression has no value."""
MOST_KINDS = 20
"""Most bins of an expression whose values are texts or conditions."""
SAMPLED = 100_000
"""Values from which the edges between bins of as many objects are estimated."""


@dataclass(frozen=True, eq=False)
class ClassifiedRows:
    """Rows of a batch: names and place, the class given (n,), probabilities (n, K), values of the expression (n,)."""

    names: NDArray[Any]
    ra: Floats
    dec: Floats
    given: Places
    probability: Floats
    by: NDArray[Any] | None


def classified_rows(
    table: ObjectTable, classes: Sequence[str], by: Expression | None
) -> Iterator[ClassifiedRows]:
    """Yield the rows that have a class, batch by batch; UsageError where a column of the expression is not there."""
    catalog, prefix = table.catalog, table.prefix
    if by is not None:
        check_expression(by, catalog)
    columns = [f"{prefix}p_{safe_name(name)}" for name in classes]
    index = {name: k for k, name in enumerate(classes)}
    read = table.read(f"{prefix}class", *columns, *(by.names if by else ()))
    for batch in catalog.batches(read):
        values = batch_values(batch, read)
        require_exact(values[table.identifier], f"{catalog.path}: --id", table.identifier)
        p = np.column_stack([np.asarray(values[name], dtype=np.float64) for name in columns])
        nowhere = np.full(batch.num_rows, np.nan)
        ra, dec = table.place or (table.identifier,) * 2
        place = positions(values[ra], values[dec], table.unit) if table.place else None
        kept = np.isfinite(p).all(axis=1)
        given = [index.get(name, -1) for name in label_texts(values[f"{prefix}class"])[kept].tolist()]
        yield ClassifiedRows(
            label_texts(values[table.identifier])[kept],
            (place.ra if place else nowhere)[kept],
            (place.dec if place else nowhere)[kept],
            np.where(np.array(given, dtype=np.intp) < 0, p[kept].argmax(axis=1), given),
            p[kept],
            by.evaluate_batch(batch)[kept] if by else None,
        )


def check_expression(by: Expression, catalog: Catalog) -> None:
    """Raise `UsageError` where a catalogue lacks a column of the expression."""
    try:
        by.check_names(catalog.names)
    except ColumnNotFoundError as error:
        raise UsageError(
            f"--by: {catalog.path}: {error}; slim copies have identifier, position and new columns only; "
            'write full copies with mode = "annotated" under [output]'
        ) from error


@dataclass
class ValueSample:
    """Values of an expression that went by: how often each text, or a random sample of the numbers."""

    rng: np.random.Generator
    keys: Floats
    numbers: Floats
    kinds: Counter[str]
    n_missing: int = 0

    @classmethod
    def empty(cls, rng: np.random.Generator) -> ValueSample:
        """Return a sample of nothing."""
        return cls(rng, np.empty(0), np.empty(0), Counter())

    def add(self, values: NDArray[Any]) -> None:
        """Take the values of a batch (n,)."""
        if values.dtype.kind in "fiu":
            numbers = np.asarray(values, dtype=np.float64)
            known = np.isfinite(numbers)
            self.n_missing += int(np.count_nonzero(~known))
            keys = np.concatenate([self.keys, self.rng.random(int(known.sum()))])
            both = np.concatenate([self.numbers, numbers[known]])
            kept = np.argsort(keys, kind="stable")[:SAMPLED]
            self.keys, self.numbers = keys[kept], both[kept]
            return
        texts = label_texts(values).tolist()
        self.kinds.update(text or MISSING for text in texts)
        if len(self.kinds) > MOST_KINDS:
            raise UsageError(
                f"--by: got an expression with more than {MOST_KINDS} different texts, expected a number, a "
                "condition, or a few texts; group them in a condition such as field in ['A', 'B']"
            )


@dataclass(frozen=True)
class Bins:
    """The bins of an expression: by `edges` between numbers, or one for each of the `kinds`; `names` in order."""

    names: tuple[str, ...] = ("",)
    edges: tuple[float, ...] = ()
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, sample: ValueSample, n: int, edges: Sequence[float] | None) -> Bins:
        """Return `n` bins of about as many objects each, or those between the edges; UsageError where there is one."""
        if sample.kinds:
            kinds = tuple(sorted(sample.kinds))
            return cls(tuple(f"{text}: {kind}" for kind in kinds), (), kinds)
        edges = even_edges(sample.numbers, n) if edges is None else tuple(edges)
        names = names_between(edges, text)
        if len(set(names)) < 2:
            raise UsageError(
                f"--by: got '{text}', which has the same value in all rows, expected an expression that "
                "varies; leave --by out"
            )
        return cls((*names, *([f"{text}: {MISSING}"] if sample.n_missing else [])), edges)

    def places(self, values: NDArray[Any] | None, n: int) -> Places:
        """Return the bin (n,) of each value."""
        if values is None:
            return np.zeros(n, dtype=np.intp)
        if self.kinds:
            index = {kind: i for i, kind in enumerate(self.kinds)}
            return np.array([index[text or MISSING] for text in label_texts(values).tolist()], dtype=np.intp)
        numbers = np.asarray(values, dtype=np.float64)
        return places_between(self.edges, numbers, missing=len(self.names) - 1)
