"""FITS cards of columns and of provenance: read into metadata, and written from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from catalogs.catalog.catalog import Catalog, is_provenance, levels, own_names
from catalogs.errors import printable

# FITS cards as bytes: values in fixed format, long texts by CONTINUE, prose as HISTORY (FITS Standard 4.0, section 4).

BLOCK = 2880
CARD = 80


def padding(n_bytes: int) -> int:
    """Return the bytes to the end of the block."""
    return -n_bytes % BLOCK


PIECE = 67
"""Characters of a long text on a card: between the quotes are 68, and one is the ampersand."""
PROSE = 72
"""Characters on a card of prose."""
CUT = "\\"
"""Stands where a word of prose is cut, to go on in the next line."""
INDENT = "    "
"""Stands before a line that goes on."""
SINGLE_BLANK = re.compile(r"(?<=[^ \\]) (?=[^ ])")


def integer_card(keyword: str, value: int, comment: str = "") -> bytes:
    """Return a card with an integer that ends in column 30."""
    return _card(f"{keyword:<8}= {value:>20}", comment)


def value_cards(keyword: str, value: str | bool | float) -> tuple[bytes, ...]:  # noqa: FBT001 -- a value
    """Return the card, or cards, with a text, a truth value or a number."""
    if isinstance(value, str):
        return text_cards(keyword, value)
    if isinstance(value, bool):
        return (_card(f"{keyword:<8}= {'T' if value else 'F':>20}"),)
    return (_card(f"{keyword:<8}= {str(value).upper():>20}"),)


def text_cards(keyword: str, text: str, comment: str = "") -> tuple[bytes, ...]:
    """Return the card with a text, and CONTINUE cards where it is long."""
    pieces = _pieces(_printable(text))
    if len(pieces) == 1:
        quoted = f"'{pieces[0]:<8}'"
        return (_card(f"{keyword:<8}= {quoted:<20}", comment),)
    heads = [f"{keyword:<8}= ", *["CONTINUE  "] * (len(pieces) - 1)]
    ampersands = ["&"] * (len(pieces) - 1) + [""]
    return tuple(_card(f"{h}'{p}{a}'") for h, p, a in zip(heads, pieces, ampersands, strict=True))


def long_string_cards(header: Iterable[bytes], new: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the card that announces long texts, where new cards have some and the header does not say so yet.

    CFITSIO and fitsverify look for it: the convention on CONTINUE is older than its place in the Standard.
    """
    if any(card.startswith(b"LONGSTRN") for card in header):
        return ()
    if not any(card.startswith(b"CONTINUE") for card in new):
        return ()
    return text_cards("LONGSTRN", "OGIP 1.0", "The OGIP Long String Convention may be used")


def verbatim_cards(keyword: str, lines: Iterable[str]) -> tuple[bytes, ...]:
    """Return cards of prose, line by line as they are; each fits one."""
    return tuple(_card(f"{keyword:<8}{_printable(line)}") for line in lines)


def prose_cards(keyword: str, lines: Iterable[str]) -> tuple[bytes, ...]:
    """Return HISTORY or COMMENT cards; a long line goes on, indented, on the next, also within a very long word."""
    return tuple(_card(f"{keyword} {part}") for line in lines for part in _wrapped(_printable(line)))


def _wrapped(line: str) -> list[str]:
    """Break a line at single blanks; without blanks it is cut, with a backslash at the end of the card."""
    line, lines, indent = line.rstrip(), [], ""
    while len(indent) + len(line) > PROSE:
        room = PROSE - len(indent)
        if blanks := [match.start() for match in SINGLE_BLANK.finditer(line, 0, room + 2)]:
            lines.append(indent + line[: blanks[-1]])
            line = line[blanks[-1] + 1 :]
        else:
            begin = line[: room - 1]
            if line[room - 1] == " ":  # blanks at the begin of a card are not read
                begin = begin.rstrip(" ")[:-1] or begin
            lines.append(indent + begin + CUT)
            line = line[len(begin) :]
        indent = INDENT
    return [*lines, indent + line] if line.strip() else lines


def header_bytes(cards: Sequence[bytes]) -> bytes:
    """Return the cards with END, padded with blanks to whole blocks."""
    text = b"".join(cards) + b"END".ljust(CARD)
    return text.ljust(len(text) + padding(len(text)))


def empty_primary() -> bytes:
    """Return the header of a primary HDU without data, before which nothing and behind which tables may stand."""
    simple, extend = (_card(f"{keyword:<8}= {'T':>20}") for keyword in ("SIMPLE", "EXTEND"))
    return header_bytes([simple, integer_card("BITPIX", 8), integer_card("NAXIS", 0), extend])


def _card(content: str, comment: str = "") -> bytes:
    """Return 80 bytes; a comment that does not fit is cut."""
    with_comment = f"{content} / {_printable(comment)}" if comment else content
    return with_comment[:CARD].ljust(CARD).encode("ascii")


def _pieces(text: str) -> list[str]:
    """Cut a text into pieces that fit a card with their quotes doubled."""
    pieces = [""]
    for character in text:
        quoted = "''" if character == "'" else character
        if len(pieces[-1]) + len(quoted) > PIECE:
            pieces.append("")
        pieces[-1] += quoted
    return pieces


def _printable(text: str) -> str:
    """Return the text in the characters that a header may have."""
    return printable(text.encode("ascii", "backslashreplace").decode())


# Our provenance in a FITS header: HISTORY cards, one block an annotation, the latest last.  Read back as the same
# keys and values that other formats store, and removed when its columns are.  Astropy keeps such cards as a list of
# lines under `HISTORY` in a table's `meta`, and so do we there.

HISTORY = "HISTORY"

ENTRY = re.compile(r"blr ([a-z_0-9]+) = (.*)", re.DOTALL)
FLAG = re.compile(r"blr flag bit (\d+) \(\d+\) (.*)", re.DOTALL)


def provenance_metadata(cards: Sequence[bytes]) -> dict[str, str]:
    """Return the provenance as metadata: `blr.<key>` of the latest annotation, `blr.previous.<key>` of others."""
    return {
        f"blr.{'previous.' * depth}{key}": value
        for depth, (entries, _) in enumerate(reversed(blocks(cards)))
        for key, value in entries.items()
    }


def with_block(cards: Sequence[bytes], block: Sequence[bytes], replaced: Collection[str]) -> list[bytes]:
    """Return the cards with those of a new block, behind the last one that there is, or else at the end.

    Blocks of annotations that made any of the columns `replaced` go.
    """
    names, old = {name.casefold() for name in replaced}, blocks(cards)
    stale = {i for entries, numbers in old if own_names(entries) & names for i in numbers}
    place = max((i + 1 for _, numbers in old for i in numbers), default=len(cards))
    before = [card for i, card in enumerate(cards[:place]) if i not in stale]
    return [*before, *block, *cards[place:]]


def block_cards(entries: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the cards of an annotation from its provenance as metadata, without `blr.`."""
    lines = []
    for key, value in entries.items():
        kind, _, bit = key.partition(".")
        is_flag = kind == "flag" and bit.isdigit()
        lines.append(f"blr flag bit {bit} ({2 ** int(bit)}) {value}" if is_flag else f"blr {key} = {value}")
    return prose_cards(HISTORY, lines)


def meta_provenance(meta: Mapping[Any, Any]) -> dict[str, str]:
    """Return the provenance in an astropy table's `meta`: the keys that our ECSV has, or else lines of HISTORY."""
    keys = {k: v for k, v in meta.items() if is_provenance(k) and isinstance(v, str)}
    return keys or provenance_metadata(cards_of(meta))


def without_provenance(meta: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return an astropy table's `meta` without our provenance."""
    rest = {k: v for k, v in meta.items() if not is_provenance(k)}
    ours = {i for _, numbers in blocks(cards_of(meta)) for i in numbers}
    if ours:
        rest[HISTORY] = [line for i, line in enumerate(meta[HISTORY]) if i not in ours]
    return {k: v for k, v in rest.items() if k != HISTORY or not ours or v}


def with_provenance(meta: Mapping[Any, Any], metadata: Mapping[str, str]) -> dict[Any, Any]:
    """Return an astropy table's `meta` with this provenance for the one that it had."""
    rest = without_provenance(meta)
    before = rest.get(HISTORY, [])
    cards = (card for level in reversed(levels(metadata)) for card in block_cards(level))
    history = [card[8:].decode().rstrip() for card in cards]
    return {**rest, HISTORY: [*(before if isinstance(before, list) else [before]), *history]}


def cards_of(meta: Mapping[Any, Any]) -> list[bytes]:
    """Return the lines of HISTORY in a table's `meta` as cards."""
    history = meta.get(HISTORY)
    return [f"{HISTORY} {line}".encode() for line in history] if isinstance(history, list) else []


def blocks(cards: Sequence[bytes]) -> list[tuple[dict[str, str], list[int]]]:
    """Return the provenance of each annotation that the cards tell of, in order, and which cards hold it.

    A key said again begins the next one.
    """
    annotations: list[tuple[dict[str, str], list[int]]] = []
    for numbers, text in lines(cards):
        if flag := FLAG.fullmatch(text):
            key, value = f"flag.{flag[1]}", flag[2]
        elif entry := ENTRY.fullmatch(text):
            key, value = entry[1], entry[2]
        else:
            continue
        if not annotations or key in annotations[-1][0]:
            annotations.append(({}, []))
        annotations[-1][0][key] = value
        annotations[-1][1].extend(numbers)
    return annotations


def lines(cards: Sequence[bytes]) -> list[tuple[list[int], str]]:
    """Return the lines of HISTORY, wrapped ones joined, each with the numbers of its cards."""
    joined: list[tuple[list[int], str]] = []
    for i, card in enumerate(cards):
        if not card.startswith(b"HISTORY "):
            continue
        text = card[8:].decode("latin-1").rstrip()
        if text.startswith(INDENT) and joined and joined[-1][0][-1] == i - 1:
            numbers, before = joined[-1]
            cut = before.endswith(CUT)
            whole = before[:-1] + text[len(INDENT) :] if cut else f"{before} {text.strip()}"
            joined[-1] = [*numbers, i], whole
        else:
            joined.append(([i], text))
    return joined


# What a file says of itself beside its columns.

STRUCTURAL = re.compile(
    r"(?:NAXIS\d?|TFIELDS|PCOUNT|GCOUNT|THEAP|CHECKSUM|DATASUM|XTENSION|SIMPLE|BITPIX|EXTEND|END|COMMENT|"
    r"(?:TTYPE|TFORM|TUNIT|TNULL|TSCAL|TZERO|TDISP|TDIM|TUCD|TCOMM|TBCOL)\d+)?$"
)
"""FITS cards that say how the table lies in the file, not what it holds."""


def metadata_of(catalog: Catalog) -> dict[str, str]:
    """Return what a file says of itself beside its columns and our provenance; of FITS, its cards."""
    if catalog.format != "fits":
        return {k: str(v) for k, v in catalog.metadata.items() if not is_provenance(k)}
    headers, left = catalog.partitions[0].beside_the_columns()
    # A sentence names the other HDUs in parentheses.
    others = [said.partition("(")[2].rpartition(")")[0] for said in left if "HDUs" in said]
    cards = {"fits HDUs beside the table": ", ".join(others)}
    for header, text in headers.items():
        for line in text.splitlines():
            keyword = line[:8].strip()
            if line.startswith("HISTORY") and not re.match(r"HISTORY (?:blr |  )", line):
                cards[f"fits card HISTORY {line[8:].strip()}"] = ""
            elif "=" in line[8:10] and not STRUCTURAL.fullmatch(keyword):
                value = line[10:].split(" /")[0].strip().strip("'").strip()
                cards[f"fits card {header.removeprefix('fits.')} {keyword}"] = value
    return cards
