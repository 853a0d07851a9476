"""Provenance in cards of FITS is read back as it was written."""

from __future__ import annotations

from catalogs.metadata.fits_cards import block_cards, provenance_metadata


def test_long_provenance_is_read_back() -> None:
    """Values of many words, and of words that are longer than a card."""
    entries = {
        "model": "types@1",
        "columns": ", ".join(f"column_{i}" for i in range(40)),
        "hash": "a1b2" * 60,
    }
    cards = block_cards(entries)
    assert len(cards) > 10
    assert all(len(card) == 80 for card in cards)
    assert provenance_metadata(cards) == {f"blr.{key}": value for key, value in entries.items()}
