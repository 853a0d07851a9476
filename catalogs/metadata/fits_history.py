"""Our provenance in a FITS header: HISTORY cards, one block an annotation, the latest last.

Read back as the same keys and values that other formats store, and removed when its columns are.  Astropy keeps such
cards as a list of lines under `HISTORY` in a table's `meta`, and so do we there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalogs.catalog.earlier_columns import is_provenance, levels, own_names
from catalogs.metadata.fits_cards import CUT, INDENT, history_cards

__all__ = [
    "HISTORY",
    "block_cards",
    "meta_provenance",
    "provenance_metadata",
    "with_block",
    "with_provenance",
    "without_provenance",
]

HISTORY = "HISTORY"

ENTRY = re.compile(r"blr ([a-z_0-9]+) = (.*)", re.DOTALL)
FLAG = re.compile(r"blr flag bit (\d+) \(\d+\) (.*)", re.DOTALL)


@dataclass
class Block:
    """The provenance of one annotation, and which cards hold it."""

    entries: dict[str, str] = field(default_factory=dict)
    cards: list[int] = field(default_factory=list)


def provenance_metadata(cards: Sequence[bytes]) -> dict[str, str]:
    """Return the provenance as metadata: `blr.<key>` of the latest annotation, `blr.previous.<key>` of others."""
    return {
        f"blr.{'previous.' * depth}{key}": value
        for depth, block in enumerate(reversed(blocks(cards)))
        for key, value in block.entries.items()
    }


def with_block(cards: Sequence[bytes], block: Sequence[bytes], replaced: Collection[str]) -> list[bytes]:
    """Return the cards with those of a new block, behind the last one that there is, or else at the end.

    Blocks of annotations that made any of the columns `replaced` go.
    """
    names, old = {name.casefold() for name in replaced}, blocks(cards)
    stale = {i for b in old if own_names(b.entries) & names for i in b.cards}
    place = max((i + 1 for b in old for i in b.cards), default=len(cards))
    before = [card for i, card in enumerate(cards[:place]) if i not in stale]
    return [*before, *block, *cards[place:]]


def block_cards(entries: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the cards of an annotation from its provenance as metadata, without `blr.`."""
    return history_cards(line(key, value) for key, value in entries.items())


def meta_provenance(meta: Mapping[Any, Any]) -> dict[str, str]:
    """Return the provenance in an astropy table's `meta`: the keys that our ECSV has, or else lines of HISTORY."""
    keys = {k: v for k, v in meta.items() if is_provenance(k) and isinstance(v, str)}
    return keys or provenance_metadata(cards_of(meta))


def without_provenance(meta: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return an astropy table's `meta` without our provenance."""
    rest = {k: v for k, v in meta.items() if not is_provenance(k)}
    ours = {i for block in blocks(cards_of(meta)) for i in block.cards}
    if ours:
        rest[HISTORY] = [line for i, line in enumerate(meta[HISTORY]) if i not in ours]
    return {k: v for k, v in rest.items() if k != HISTORY or not ours or v}


def with_provenance(meta: Mapping[Any, Any], metadata: Mapping[str, str]) -> dict[Any, Any]:
    """Return an astropy table's `meta` with this provenance for the one that it had."""
    rest = without_provenance(meta)
    before = rest.get(HISTORY, [])
    history = [
        card[8:].decode().rstrip() for level in reversed(levels(metadata)) for card in block_cards(level)
    ]
    return {**rest, HISTORY: [*(before if isinstance(before, list) else [before]), *history]}


def cards_of(meta: Mapping[Any, Any]) -> list[bytes]:
    """Return the lines of HISTORY in a table's `meta` as cards."""
    history = meta.get(HISTORY)
    return [f"{HISTORY} {line}".encode() for line in history] if isinstance(history, list) else []


def line(key: str, value: str) -> str:
    """Return an entry as a line of HISTORY."""
    kind, _, bit = key.partition(".")
    if kind == "flag" and bit.isdigit():
        return f"blr flag bit {bit} ({2 ** int(bit)}) {value}"
    return f"blr {key} = {value}"


def blocks(cards: Sequence[bytes]) -> list[Block]:
    """Return the annotations that the cards tell of, in order; a key said again begins the next one."""
    annotations: list[Block] = []
    for numbers, text in lines(cards):
        if flag := FLAG.fullmatch(text):
            key, value = f"flag.{flag[1]}", flag[2]
        elif entry := ENTRY.fullmatch(text):
            key, value = entry[1], entry[2]
        else:
            continue
        if not annotations or key in annotations[-1].entries:
            annotations.append(Block())
        annotations[-1].entries[key] = value
        annotations[-1].cards += numbers
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
            whole = (
                f"{before} {text.strip()}" if not before.endswith(CUT) else before[:-1] + text[len(INDENT) :]
            )
            joined[-1] = [*numbers, i], whole
        else:
            joined.append(([i], text))
    return joined
