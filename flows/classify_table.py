"""Classify tables in memory with a stored model: one in a notebook, or the partitions of LSDB; nothing is written.

What an output folder is for (releases, resuming, manifests) is the business of `classification`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import pandas as pd

import catalogs
from blr.threads import single_threaded_blas
from catalogs.catalog.new_columns import NewColumn
from catalogs.memory.map_partitions import FrameCompute
from catalogs.memory.tables import in_memory
from flows.classification.annotation import model_at, scorer_for
from flows.classification.scoring import Scorer, provenance
from flows.classification.steps import annotation_settings, settled
from flows.errors import UsageError
from flows.features.reader import target_reader
from flows.inputs.source import LocalSource
from flows.models.store import Store
from flows.models.store_folder import StoredModel
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification

__all__ = ["PartitionClassifier", "classify_table", "partition_classifier"]

AnyTable = TypeVar("AnyTable")


def classify_table(
    table: AnyTable,
    *,
    model: str,
    store: str | Path = "models",
    specification: Specification | str | Path | None = None,
    class_prior: str | Mapping[str, float] | None = None,
    threads: int = 1,
) -> AnyTable:
    """Return a copy of an astropy, pandas or Arrow table with the columns of a model of the store behind its own.

    The same values as `flows.classification.steps.classify` writes for a file of these rows.  `specification` and
    `class_prior` are as there, but for [output] mode and format: all columns stay, and the table's kind.
    """
    place = Store.named(store)
    loaded = place.load(model)
    wanted = loaded.specification if specification is None else read_specification(specification)
    source = in_memory(table)
    read = target_reader(annotation_settings(loaded, wanted), loaded.features).read
    # What is not read need not be written down, unless to say which columns there are.
    known = bool(read) and set(read) <= set(source.names)
    catalog = catalogs.open(source.arrow(read) if known else table)
    catalog = replace(catalog, path=Path(f"the {type(table).__name__}"))  # as messages call it
    settings = settled(
        loaded, wanted, class_prior, sources=lambda: [LocalSource(p.path) for p in catalog.partitions]
    )
    scorer = scorer_for(loaded, settings, catalog)
    maker = provenance(loaded, settings, catalog.content_hash(), read)
    with single_threaded_blas():
        return catalogs.annotate_table(
            table, scorer.columns, scorer, read=read, provenance=maker, threads=threads
        )


@dataclass(frozen=True)
class PartitionClassifier:
    """Classifies frames, one at a time, wherever Dask calls it: there it reads the model from the store, once.

    `settings` is the JSON of a specification, so that little travels.
    """

    model: StoredModel
    settings: str

    @property
    def columns(self) -> tuple[NewColumn, ...]:
        """The new columns, with their Arrow types, units and meanings."""
        return _scorer(self.model, self.settings).columns

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a copy of a frame with the new columns; of one without rows too, which is Dask's `meta`."""
        scorer = _scorer(self.model, self.settings)
        read = scorer.reader.read
        flat = frame.reset_index() if set(read) & set(frame.index.names) else frame
        known = [name for name in read if name in flat.columns]
        catalog = catalogs.open(flat.iloc[:0][known] if known else frame.iloc[:0])
        here = replace(scorer.on(replace(catalog, path=Path("the partition"))), tallies=[], counts=[])
        with single_threaded_blas():
            return FrameCompute(scorer.columns, here, read)(frame)


def partition_classifier(
    *, model: str, store: str | Path = "models", specification: Specification | str | Path | None = None
) -> PartitionClassifier:
    """Return what `catalog.map_partitions` of LSDB takes, or that of a Dask frame.

    Each partition gets the columns that `blr classify` gives its rows.  `specification` is as for `classify_table`.
    The store's folder has to be on a disk that all workers share.

    Raises
    ------
    UsageError
        If the specification asks for a review budget, or for class shares that are to be estimated: both need a pass
        over all rows, which `blr classify` makes.
    """
    place = Store.named(store)
    stored = place.find(model)
    loaded = place.read(stored)
    wanted = loaded.specification if specification is None else read_specification(specification)
    if wanted.flags.budget is not None:
        raise UsageError(
            f"flags.budget: got {wanted.flags.budget}, expected no budget for partitions that are classified one by "
            "one, since it needs a pass over all rows; drop the key, or use `blr classify`"
        )
    settings = settled(loaded, wanted, None, sources=_no_rows)
    return PartitionClassifier(replace(stored, folder=stored.folder.absolute()), settings.model_dump_json())


def _no_rows() -> Sequence[LocalSource]:
    raise UsageError(
        'shift.class_prior: got "em", expected given shares for partitions that are classified one by one, since an '
        "estimate needs a pass over all rows; give the shares, or use `blr classify`"
    )


@lru_cache(maxsize=2)
def _scorer(model: StoredModel, settings: str) -> Scorer:
    return Scorer.of(model_at(model), Specification.model_validate_json(settings))
