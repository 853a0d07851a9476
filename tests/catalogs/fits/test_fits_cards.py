"""Cards and checksums: every text is read back as written, and checksums of parts add to that of the whole."""

from astropy.io import fits as astropy_fits
from hypothesis import given
from hypothesis import strategies as st

from catalogs.fits.header import Header
from catalogs.metadata.fits_cards import history_cards, lines, text_cards


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300))
def test_any_text_survives_its_cards(text: str) -> None:
    cards = text_cards("TCOMM1", text)
    assert all(len(card) == 80 for card in cards)
    header = astropy_fits.Header.fromstring(b"".join(cards))
    assert header["TCOMM1"].rstrip() == text.rstrip()


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
