"""FITS cards as bytes: values in fixed format, long texts by CONTINUE, prose as HISTORY.

FITS Standard 4.0, section 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = [
    "BLOCK",
    "CARD",
    "CUT",
    "INDENT",
    "PROSE",
    "comment_cards",
    "empty_primary",
    "header_bytes",
    "history_cards",
    "integer_card",
    "long_string_cards",
    "padding",
    "text_cards",
    "value_cards",
    "verbatim_cards",
]

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


def history_cards(lines: Iterable[str]) -> tuple[bytes, ...]:
    """Return HISTORY cards; a long line goes on, indented, on the next, also in the middle of a very long word."""
    return _prose("HISTORY", lines)


def comment_cards(lines: Iterable[str]) -> tuple[bytes, ...]:
    """Return COMMENT cards; a long line goes on, indented, on the next."""
    return _prose("COMMENT", lines)


def verbatim_cards(keyword: str, lines: Iterable[str]) -> tuple[bytes, ...]:
    """Return cards of prose, line by line as they are; each fits one."""
    return tuple(_card(f"{keyword:<8}{_printable(line)}") for line in lines)


def _prose(keyword: str, lines: Iterable[str]) -> tuple[bytes, ...]:
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
    ascii_text = text.encode("ascii", "backslashreplace").decode()
    return "".join(c if c.isprintable() else " " for c in ascii_text)
