"""An astropy table's `meta`, which Parquet holds as YAML, in a FITS header: as cards, where cards can say it.

The rest, and what makes times and coordinates of columns again, stands in COMMENT cards the way astropy writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from catalogs.catalog.earlier_columns import is_provenance
from catalogs.metadata.astropy_header import (
    SERIALIZED,
    EcsvHeaderError,
    Item,
    read_entries,
    read_items,
    remove_entries,
    with_items,
)
from catalogs.metadata.fits_cards import HISTORY, PROSE, value_cards, verbatim_cards, without_provenance

__all__ = ["meta_cards"]

BEGIN = "--BEGIN-ASTROPY-SERIALIZED-COLUMNS--"
END = "--END-ASTROPY-SERIALIZED-COLUMNS--"
LOGARITHMIC = "astropy.units.function."
PIECE = 70
"""Characters of a line of YAML on a card; a backslash behind them says that it goes on."""

PROSE_KEYS = {"comments": "COMMENT", HISTORY: HISTORY}
KEYWORD = re.compile(r"[A-Z0-9_-]{1,8}")
STRUCTURAL = re.compile(
    r"SIMPLE|EXTEND|XTENSION|BITPIX|NAXIS\d*|PCOUNT|GCOUNT|TFIELDS|THEAP|END|EXTNAME|CHECKSUM|DATASUM|COMMENT|CONTINUE"
    r"|HISTORY|T(TYPE|FORM|UNIT|NULL|SCAL|ZERO|DISP|BCOL|DIM|CTYP|CUNI|CRPX|CRVL|CDLT|RPOS|UCD|COMM)\d+"
)
"""Keywords that describe the file that the table came from, and not the one that is written."""


def meta_cards(
    text: str, names: Collection[str], replaced: Collection[str], tell: Callable[[str], object]
) -> list[bytes]:
    """Return the cards of what YAML says of a table of which the columns `names` are written.

    Tells what is left out; of columns that others have `replaced` there is nothing to tell.
    """
    try:
        entries, items = read_entries(text), read_items(text)
    except EcsvHeaderError:
        tell("astropy's YAML metadata of the table is left out, since it cannot be read")
        return []
    carded = [(item, item_cards(item)) for item in items]
    cards = [card for _, own_cards in carded for card in own_cards or ()]
    rest = [item for item, own_cards in carded if own_cards is None]
    gone = {e.name for e in entries} - {*names}
    # Units of magnitudes are not FITS', and written as units astropy could not make its columns of them again.
    lost = gone - {*replaced} or any(LOGARITHMIC in line for item in rest for line in item.lines)
    if lost and any(item.key == SERIALIZED for item in rest):
        rest = [item for item in rest if item.key != SERIALIZED]
        tell(
            "the metadata by which astropy restores times, coordinates, magnitudes and similar columns is left out"
        )
    if formats := [e.name for e in entries if e.format and e.name in names]:
        tell(f"the display format of {', '.join(formats)} (`format`) is left out")
    if rest or any(e.has_meta for e in entries):
        if all(item.key != SERIALIZED for item in rest):
            rest.append(Item(SERIALIZED, {}, (f"- {SERIALIZED}: {{}}",)))
        cards += yaml_cards(with_items(remove_entries(text, gone) if gone else text, rest))
    return cards


def item_cards(item: Item) -> Sequence[bytes] | None:
    """Return the cards that say what an item does, None where cards cannot; our provenance is said elsewhere."""
    if is_provenance(item.key):
        return ()
    if item.key in PROSE_KEYS and isinstance(item.value, list):
        lines = without_provenance({HISTORY: item.value}).get(HISTORY, ())
        return verbatim_cards(PROSE_KEYS[item.key], lines) if all(map(is_prose, lines)) else None
    if KEYWORD.fullmatch(item.key) and not STRUCTURAL.fullmatch(item.key) and is_plain(item.value):
        return value_cards(item.key, item.value)
    return None


def is_prose(line: Any) -> bool:
    """Say whether a card holds a line as it is."""
    return isinstance(line, str) and line.isascii() and line.isprintable() and len(line) <= PROSE


def is_plain(value: Any) -> bool:
    """Say whether a card holds a value as it is."""
    if isinstance(value, str):
        return value.isascii() and value.isprintable() and value == value.rstrip()
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def yaml_cards(text: str) -> Sequence[bytes]:
    """Return YAML as COMMENT cards that astropy puts together again."""
    lines = [BEGIN]
    for line in text.split("\n"):
        pieces = [line[i : i + PIECE] for i in range(0, max(1, len(line)), PIECE)]
        lines += [*(f"{piece}\\" for piece in pieces[:-1]), pieces[-1]]
    return verbatim_cards("COMMENT", [*lines, END])
