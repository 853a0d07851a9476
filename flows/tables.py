"""Classify a table in memory with a stored model: in a notebook, a few rows or a few million, nothing written.

What an output folder is for (releases, resuming, manifests) is the business of `classification`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import catalogs
from blr.threads import single_threaded_blas
from catalogs.memory.tables import in_memory
from flows.classification.annotation import scorer_for
from flows.classification.scoring import provenance
from flows.classification.steps import annotation_settings, settled
from flows.features.reader import target_reader
from flows.inputs.source import LocalSource
from flows.models.store import Store
from flows.specification.specification import Specification
from flows.specification.toml_file import read_specification

__all__ = ["classify_table"]

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
