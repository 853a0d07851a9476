"""The parts of a FITS file besides the columns of its table, and those that another format cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from catalogs.fits.columns import FitsColumn, Table
from catalogs.fits.header import Hdu

__all__ = ["headers_as_text", "left_behind"]


def headers_as_text(table: Table, hdus: Sequence[Hdu]) -> dict[str, str]:
    """Return the cards of the primary header and of the table's, a line each."""
    headers = {"fits.primary": hdus[0].header.cards, "fits.header": table.hdu.header.cards}
    return {
        key: "\n".join(card.decode("latin-1").rstrip() for card in cards) for key, cards in headers.items()
    }


def left_behind(table: Table, hdus: Sequence[Hdu]) -> Iterator[str]:
    """Yield a sentence for each part that is lost."""
    others = [h for h in hdus if h.index != table.hdu.index and (h.data_bytes or h.index)]
    if others:
        yield f"the other HDUs ({', '.join(map(str, others))}) are left out"
    for column in table.columns:
        if column.is_scaled:
            yield f"'{column.name}': TSCAL and TZERO are applied, values become float64"
        if what := unlike(column):
            yield f"'{column.name}': {what}"


def unlike(column: FitsColumn) -> str | None:
    """Return what cells become whose type other formats do not have."""
    if column.code in "CM":
        return "each complex number becomes a pair of its real and imaginary parts"
    if column.code == "X":
        return "bits become lists of true and false"
    return None
