"""Catalogues opened to be read, wherever they are: Parquet at a URL in its place, other formats fetched.

What is classified or trained on is read whole, and fetched whole (`flows.fetching`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from catalogs import parquet
from catalogs.catalog import Catalog
from catalogs.formats import open_listing
from catalogs.remote_listing import Listing
from flows.fetching import fetched, listing_of
from flows.inputs import Source
from flows.table_choice import TableChoice

__all__ = ["opened"]


@contextmanager
def opened(sources: Sequence[Source], choice: TableChoice) -> Iterator[list[Catalog]]:
    """Give the catalogues at sources, as long as the block lasts; of a pattern each file is one."""
    with ExitStack() as stack:
        found: list[Catalog] = []
        for source in sources:
            listings = _parquet_at(source)
            if listings:
                found += [open_listing(listing, choice.table) for listing in listings]
            else:
                found += [choice.open(path) for path in stack.enter_context(fetched([source]))]
        yield found


def _parquet_at(source: Source) -> list[Listing]:
    """Return the catalogues of Parquet files that a URL means, none where it means others."""
    if not isinstance(source, str):
        return []
    listing = listing_of(source)
    if not all(place.key.lower().endswith(parquet.SUFFIXES) for place in listing.places):
        return []
    if listing.kind != "pattern":
        return [listing]
    return [Listing(place.path.rpartition("/")[0], (place,), "file") for place in listing.places]
