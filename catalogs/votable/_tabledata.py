"""The rows of TABLEDATA, read a piece at a time by astropy's parser of XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from astropy.utils.xml.iterparser import get_xml_iterator

from catalogs.errors import DamagedFileError
from catalogs.votable._binary import stored_type, text_size
from catalogs.votable._columns import Cells, is_text, memory_bytes
from catalogs.votable._document import Data
from catalogs.votable._rows import Rows
from catalogs.votable._words import cells_of

__all__ = ["TextRows"]

BLOCK_BYTES = 1 << 14
"""As many as the parser asks for; with more of them it takes several times as long, waiting for memory."""
PIECE_BYTES = 1 << 22
"""Of XML, and of arrays, that are held at a time."""


@dataclass(frozen=True, eq=False)
class TextRows(Rows):
    """Rows in TABLEDATA; `DamagedFileError` where they are no such."""

    data: Data
    are_text: ClassVar[bool] = True

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return self.data.n_rows

    def blocks(self, fields: Sequence[int]) -> Iterator[list[Cells]]:
        """Yield the values of those fields, as many rows at a time as a piece of the file holds."""
        width = len(self.table_fields)
        for words in self.pieces():
            try:
                yield [cells_of(self.table_fields[f], words[f::width]) for f in fields]
            except ValueError as error:
                raise self.damaged(str(error)) from error

    def pieces(self) -> Iterator[list[str]]:
        """Yield the text of cells, row by row, of some rows at a time."""
        most = self.data.width * max(1, PIECE_BYTES // sum(map(memory_bytes, self.table_fields)))
        left = self.data.width * self.n_rows
        words: list[str] = []
        source = Feed(self.data)
        try:
            with get_xml_iterator(source.read) as elements:
                for begins, tag, content, _ in elements if left else ():
                    if begins:
                        if tag == "TD" and "encoding" in content:
                            raise self.damaged(f"a cell has the encoding {content['encoding']}")
                    elif tag == "TD":
                        words.append(content)
                    elif tag == "TR" and (source.n_bytes > PIECE_BYTES or len(words) >= min(most, left)):
                        yield words
                        left -= len(words)
                        if left <= 0:
                            break
                        words, source.n_bytes = [], 0
        except (ValueError, RuntimeError) as error:
            raise self.damaged(str(error)) from error
        if left:
            raise self.damaged(f"the limits of {left} cells are unclear")

    def unfit_texts(self) -> Mapping[int, tuple[bool, int]]:
        """Return what the texts need that are not ASCII or that their fields may have no room for."""
        fixed = {i for i, f in enumerate(self.table_fields) if is_text(f) and stored_type(f) is not None}
        if self.data.ascii and not fixed:
            return {}
        needs = {i: (True, 0) for i, f in enumerate(self.table_fields) if is_text(f)}
        width = len(self.table_fields)
        for words in self.pieces():
            for i, (all_ascii, longest) in needs.items():
                several = set(words[i::width])
                needs[i] = (
                    all_ascii and all(map(str.isascii, several)),
                    max(longest, *map(text_size, several)),
                )
        return needs

    def damaged(self, what: str) -> DamagedFileError:
        """Return the error for rows that cannot be read."""
        return DamagedFileError(
            f"{self.data.path} is damaged: {what}; expected rows of {len(self.table_fields)} cells of text, "
            "each as its FIELD describes; fetch it again"
        )


class Feed:
    """A document of TABLEDATA alone, from which a parser reads."""

    def __init__(self, data: Data) -> None:
        self.blocks = data.blocks(BLOCK_BYTES)
        self.n_bytes = 0

    def read(self, _size: int) -> bytes:
        """Return the next bytes, more than are asked for: of less the parser thinks that they are the last."""
        block = next(self.blocks, b"")
        self.n_bytes += len(block)
        return block
