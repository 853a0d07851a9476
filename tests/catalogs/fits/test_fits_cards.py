"""Cards and checksums: every text is read back as written, and checksums of parts add to that of the whole."""

from random import Random

import numpy as np
from astropy.io import fits as astropy_fits
from hypothesis import given
from hypothesis import strategies as st

from catalogs.fits.header import STRING, Header, OnesSum, _parse, encoded
from catalogs.metadata.fits_cards import history_cards, lines, text_cards


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300))
def test_any_text_survives_its_cards(text: str) -> None:
    cards = text_cards("TCOMM1", text)
    assert all(len(card) == 80 for card in cards)
    header = astropy_fits.Header.fromstring(b"".join(cards))
    assert header["TCOMM1"].rstrip() == text.rstrip()


def slowly_joined(cards: list[bytes]) -> str:
    """Return the text of a card and those that continue it, put together card by card."""
    text = cards[0][9:].decode()
    for card in cards[1:]:
        first, second = STRING.match(text), STRING.match(card[8:].decode())
        if not first or not second or not first[1].rstrip().endswith("&"):
            break
        comments = text[first.end() :].rstrip() + card[8:].decode()[second.end() :].rstrip()
        text = f"'{first[1].rstrip()[:-1]}{second[1]}'{comments}"
    return text


@given(
    st.lists(
        st.lists(st.sampled_from(["&", "''", " ", "/", "x"]), max_size=9).map("".join), min_size=1, max_size=6
    )
)
def test_cards_that_go_on_are_joined(pieces: list[str]) -> None:
    """As card by card, which of many cards takes the time of their number squared."""
    cards = [f"CONTINUE  '{p}'".ljust(80).encode() for p in pieces]
    cards[0] = b"LONG    =" + cards[0][9:]
    (entry,) = Header("here", tuple(cards), 0, 0).entries.items()
    assert entry == ("LONG", _parse(slowly_joined(cards)))


def test_a_text_of_very_many_cards_is_read_in_time() -> None:
    """It took four minutes."""
    cards = [b"LONG    = 'begins&'", *[b"CONTINUE  '" + b"x" * 66 + b"&'"] * 8000, b"CONTINUE  'ends'"]
    header = Header("here", tuple(card.ljust(80) for card in cards), 0, 0)
    assert header.text("LONG") == "begins" + "x" * 66 * 8000 + "ends"


@given(st.lists(st.text(max_size=200), max_size=4))
def test_history_cards_are_printable_and_of_80_bytes(lines: list[str]) -> None:
    for card in history_cards(lines):
        assert len(card) == 80
        assert card.decode("ascii").isprintable()


@given(
    st.lists(st.text("ab- \\", max_size=9).map(lambda t: t.replace("a", "a" * 40)), max_size=9).map("".join)
)
def test_lines_of_history_are_read_as_they_were(text: str) -> None:
    """Words with hyphens or too long for a card, and blanks; they came back with a blank where a card ended."""
    told = [f"blr columns = {text}".rstrip(), "blr model = m@1"]
    assert [line for _, line in lines(history_cards(told))] == told


def test_history_that_was_broken_at_blanks_is_read_as_before() -> None:
    cards = [b"HISTORY blr model = one", b"HISTORY     two", b"HISTORY blr seed = 1"]
    assert [line for _, line in lines([c.ljust(80) for c in cards])] == [
        "blr model = one two",
        "blr seed = 1",
    ]


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
