"""The rows of a VOTable that are a FITS binary table inside the document: each as BINARY would have it.

Columns of one size, neither scaled nor on a heap, are stored as BINARY stores the fields that describe them.
https://www.ivoa.net/documents/VOTable/20250116/, section 5.3
"""

from __future__ import annotations

import binascii
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from astropy.io.votable.tree import Field

from catalogs.errors import FormatError
from catalogs.fits.columns import FitsColumn, Table, table_of
from catalogs.fits.header import read_hdus
from catalogs.fits.source import MAX_INFLATED, Source, Unnamed
from catalogs.votable._base64_stream import stream_bytes
from catalogs.votable._binary import stored_type
from catalogs.votable._columns import Array, Cells, Lists, is_list, is_text
from catalogs.votable._rows import BinaryRows, Piece

__all__ = ["FitsRows"]

CODES = MappingProxyType(
    {
        "boolean": "L",
        "bit": "X",
        "unsignedByte": "B",
        "short": "I",
        "int": "J",
        "long": "K",
        "char": "A",
        "float": "E",
        "double": "D",
        "floatComplex": "C",
        "doubleComplex": "M",
    }
)
"""The TFORM of a field's datatype."""


@dataclass(frozen=True, eq=False)
class FitsRows(BinaryRows):
    """Rows of a FITS table in base64; the file in the document is decoded to one that has no name."""

    @cached_property
    def decoded_file(self) -> Source:
        """The FITS file."""
        done = 0
        with tempfile.TemporaryFile() as file:
            try:
                for piece in stream_bytes(self.data):
                    done += file.write(piece)
                    if done > MAX_INFLATED:
                        raise self.damaged(f"the FITS file in it has more than {MAX_INFLATED:,} bytes")
            except binascii.Error as error:
                raise self.damaged(str(error)) from error
            return Unnamed.of(file).source(self.data.path)

    @cached_property
    def table(self) -> Table:
        """The first table of the file, whose columns are the fields."""
        tables = [hdu for hdu in read_hdus(self.decoded_file) if hdu.is_bintable]
        if not tables:
            raise self.damaged("the FITS file in it has no table")
        table = table_of(tables[0])
        pairs = list(zip(self.table_fields, table.columns, strict=False))
        odd = [c.name for f, c in pairs if not same_storage(f, c)]
        if odd or len(self.table_fields) != len(table.columns):
            raise FormatError(
                f"{self.data.path} holds its data as FITS, "
                f"{f'with the columns {odd}' if odd else 'of other columns'}; expected the columns that its fields "
                "describe, without scaling and without variable length; convert it (topcat and stilts do)"
            )
        return table

    def pieces(self) -> Iterator[bytes]:
        """Yield the rows as they are stored."""
        begin = self.table.hdu.data_offset
        for piece in self.decoded_file.pieces(begin, begin + self.table.n_rows * self.table.row_bytes):
            yield piece.tobytes()

    def column(self, piece: Piece, run: int, cells: Any, number: int, gone: Array | None) -> Cells:
        """Return the values of a field in some rows; blanks fill up a text in FITS."""
        values = super().column(piece, run, cells, number, gone)
        if isinstance(values, Lists) or not is_text(self.table_fields[number]):
            return values
        words = [word.rstrip(" ") for word in values.tolist()]
        return np.array([None, *words], object)[1:]


def same_storage(field: Field, column: FitsColumn) -> bool:
    """Say whether the cells of a column are stored as BINARY stores those of a field."""
    stored = None if is_list(field) else stored_type(field)
    if stored is None or column.heap or column.is_scaled or column.is_shifted:
        return False
    lone_bit = field.datatype == "bit" and not field.arraysize  # BINARY has it in another place of the byte
    same_null = column.null is None or column.null == field.values.null
    return (
        CODES.get(field.datatype) == column.code
        and stored.itemsize == column.n_bytes
        and same_null
        and not lone_bit
    )
