"""Cards and checksums: any text survives, any pieces add up."""

from random import Random

import numpy as np
from astropy.io import fits as astropy_fits
from hypothesis import given
from hypothesis import strategies as st

from catalogs.fits_cards import history_cards, text_cards
from catalogs.fits_checksum import OnesSum, encoded


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300))
def test_any_text_survives_its_cards(text: str) -> None:
    cards = text_cards("TCOMM1", text)
    assert all(len(card) == 80 for card in cards)
    header = astropy_fits.Header.fromstring(b"".join(cards))
    assert header["TCOMM1"].rstrip() == text.rstrip()


@given(st.lists(st.text(max_size=200), max_size=4))
def test_history_cards_are_printable_and_of_80_bytes(lines: list[str]) -> None:
    for card in history_cards(lines):
        assert len(card) == 80
        assert card.decode("ascii").isprintable()


@given(st.lists(st.binary(max_size=23), max_size=9))
def test_the_running_sum_does_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    total = OnesSum()
    for piece in pieces:
        total.add(np.frombuffer(piece, np.uint8))
    whole = b"".join(pieces)
    whole += bytes(-len(whole) % 4)
    words = [int.from_bytes(whole[i : i + 4]) for i in range(0, len(whole), 4)]
    assert total.value == (((sum(words) - 1) % (2**32 - 1)) + 1 if any(words) else 0)


@given(st.lists(st.binary(max_size=23), max_size=9), st.randoms())
def test_sums_of_parts_add_up_in_any_order(pieces: list[bytes], random: Random) -> None:
    whole, total, parts = OnesSum(), OnesSum(), []
    place = 0
    for piece in pieces:
        part = OnesSum(place)
        for sum_ in (part, whole):
            sum_.add(np.frombuffer(piece, np.uint8))
        parts.append(part)
        place += len(piece)
    random.shuffle(parts)
    for part in parts:
        total.include(part)
    assert total.value == whole.value


@given(st.integers(0, 2**32 - 1))
def test_checksums_are_encoded_as_astropy_does(total: int) -> None:
    assert encoded(total) == astropy_fits.PrimaryHDU()._char_encode(2**32 - 1 - total)
