"""Catalogues opened to be read, wherever they are: Parquet at a URL in its place, other formats fetched.

What is classified or trained on is read whole, and fetched whole (`flows.inputs.fetching`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalogs.catalog.catalog import BATCH_ROWS, Catalog, Checksums, verified
from catalogs.formats import joined, open_listing
from catalogs.parquet import dataset as parquet
from catalogs.remote.listing import Listing
from catalogs.table_choice import TableChoice
from flows.inputs.catalogue import check_links
from flows.inputs.fetching import fetched_sources, listing_of
from flows.inputs.source import LocalSource, RemoteSource, Source
from flows.runs.progress import tell

__all__ = ["first_rows", "opened", "opened_together", "opened_whole", "thinned", "with_checksums"]


@contextmanager
def opened(
    sources: Sequence[Source], choice: TableChoice, *, key: str | None = None
) -> Iterator[list[Catalog]]:
    """Give the catalogues at sources, as long as the block lasts; of a pattern each file is one.

    `key` says in errors who named them.
    """
    with ExitStack() as stack:
        catalogs: list[Catalog] = []
        for source in map(_asked, sources):
            if isinstance(source, RemoteSource) and (listings := _parquet(source)):
                catalogs += [open_listing(listing, choice.table) for listing in listings]
            else:
                catalogs += stack.enter_context(opened_whole([source], choice, key=key))
        yield catalogs


@contextmanager
def opened_whole(
    sources: Sequence[Source], choice: TableChoice, *, key: str | None = None, folder: Path | None = None
) -> Iterator[list[Catalog]]:
    """Give the catalogues at sources, whose files are all fetched first where they are at URLs: into a `folder`."""
    with fetched_sources(sources, folder) as here:
        yield [check_links(choice.open(source.path), source, key=key) for source in here]


@contextmanager
def opened_together(source: Source, choice: TableChoice) -> Iterator[Catalog]:
    """Give the one catalogue of all that a source means, a pattern's files too, as long as the block lasts."""
    source = _asked(source)
    if isinstance(source, LocalSource):
        yield choice.open(source.path)
    elif source.listing and _is_parquet(source.listing):
        yield open_listing(source.listing, choice.table)
    else:
        with fetched_sources([source]) as here:
            paths = [place.path for place in here]
            catalogs = [choice.open(path) for path in paths]
            if len(catalogs) == 1:
                yield catalogs[0]
            else:
                yield joined(Path(os.path.commonpath(paths)), paths, catalogs)


def _asked(source: Source) -> Source:
    """Return a source, of a URL with the files that its server names: it is asked once."""
    return replace(source, listing=listing_of(source.url)) if isinstance(source, RemoteSource) else source


def _parquet(source: RemoteSource) -> list[Listing]:
    """Return the catalogues of Parquet files that a URL means, none where it means others."""
    listing = source.listing
    if listing is None or not _is_parquet(listing):
        return []
    if listing.kind != "pattern":
        return [listing]
    return [Listing(place.path.rpartition("/")[0], (place,), "file") for place in listing.places]


def _is_parquet(listing: Listing) -> bool:
    """Say whether all files of a listing are Parquet."""
    return all(place.key.lower().endswith(parquet.SUFFIXES) for place in listing.places)


def with_checksums(catalog: Catalog, checksums: Checksums) -> Catalog:
    """Return a catalogue once the checksums of its files are verified; tell which are wrong."""
    catalog, wrong = verified(catalog, checksums)
    for what in wrong:
        tell().note(what)
    return catalog


def first_rows(catalog: Catalog, columns: Sequence[str], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of a catalogue."""
    left = limit
    for batch in catalog.batches(columns, max(1, min(BATCH_ROWS, limit))):
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def thinned(batches: Iterable[pa.RecordBatch], step: int, *, start: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield every `step`-th row, counted over all batches; `start` is the number of the first row."""
    first = -start % step
    for batch in batches:
        yield batch if step == 1 else batch.take(pa.array(np.arange(first, batch.num_rows, step)))
        first = (first - batch.num_rows) % step
