"""The columns that `output.columns = "full"` adds, in their order, and those that a slim copy keeps."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from blr.decisions import entropy
from blr.predictive.scores import Scores
from catalogs.catalog.catalog import Catalog
from catalogs.catalog.earlier_columns import check_columns, old_columns
from catalogs.catalog.new_columns import NewColumn
from catalogs.writing.conversion import copies
from flows.features.columns import ColumnMapping
from flows.specification.specification import Specification

__all__ = ["check_copies", "full_arrays", "kept_columns"]

Array = np.ndarray[Any, Any]


def full_arrays(scores: Scores) -> list[Array]:
    """Return the further columns, (n,) each, of scores with intervals; NaN where a row is unclassifiable."""
    if scores.low is None or scores.high is None:
        raise ValueError(
            "got scores without credible intervals, which these columns need; score with `credible`"
        )
    known = ~np.isnan(scores.probability[:, 0])
    uncertainty = np.full(len(known), np.nan)
    uncertainty[known] = entropy(scores.probability[known])
    arrays = [x for ends in zip(scores.plugin.T, scores.low.T, scores.high.T, strict=True) for x in ends]
    arrays.append(uncertainty)
    means, covariance = scores.logit_means, scores.logit_covariance
    if means is not None and covariance is not None:
        pairs = combinations_with_replacement(range(means.shape[1]), 2)
        arrays += [*means.T, *(covariance[:, a, b] for a, b in pairs)]
    return arrays


def kept_columns(specification: Specification) -> tuple[str, ...]:
    """Return the catalogue's names of id and position, as far as the specification names them."""
    return ColumnMapping(specification.target.columns).read(_kept(specification))


def _kept(specification: Specification) -> dict[str, str]:
    """Return our names of id and position, each with its key."""
    catalog = specification.catalog
    keyed = {"catalog.id": catalog.id, "catalog.ra": catalog.ra, "catalog.dec": catalog.dec}
    return {name: key for key, name in keyed.items() if name}


def check_copies(catalog: Catalog, columns: tuple[NewColumn, ...], specification: Specification) -> None:
    """Raise a `CatalogError` where copies of the catalogue cannot have the new columns beside the old ones."""
    mode, form = specification.output.mode, specification.output.form
    if mode == "annotated":
        check_columns(catalog, columns)  # columns of an earlier annotation are replaced
    else:
        mapping = ColumnMapping(specification.target.columns)
        for name, key in _kept(specification).items():
            mapping.check(catalog, name, wanted_by=f"{key} of slim copies")
    copies(catalog, old_columns(catalog, columns, mode, kept_columns(specification)), form, lambda _: None)
