"""Tables that are no plain binary table, ASCII or tile-compressed: made one in an unnamed file.

From that file all else goes on as usual; the other HDUs are in it as they are.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catalogs.files.stamp import Stamp
from catalogs.fits import _ascii as fits_ascii
from catalogs.fits import _compressed as fits_ztable
from catalogs.fits._ascii import ASCII_TABLE
from catalogs.fits.header import Hdu, read_hdus
from catalogs.fits.source import Source, Unnamed, open_source
from catalogs.metadata.fits_cards import header_bytes, padding

__all__ = ["is_plain", "open_tables"]


def is_plain(hdu: Hdu) -> bool:
    """Say whether a table's rows can be read as they are."""
    return hdu.kind != ASCII_TABLE and not fits_ztable.is_compressed(hdu)


@contextmanager
def open_tables(path: Path, expected: Stamp, number: int | None = None) -> Iterator[Source]:
    """Open a file in which the HDU of that number has become a plain binary table."""
    if number is None:
        with open_source(path, expected) as source:
            yield source
        return
    with open_source(path, expected):  # it is still the same
        restored = _restored(path, expected, number)
    yield restored.source(path)


@functools.lru_cache(maxsize=4)
def _restored(path: Path, expected: Stamp, number: int) -> Unnamed:
    with open_source(path, expected) as source, tempfile.TemporaryFile() as stream:
        hdu = read_hdus(source)[number]
        form = fits_ztable if fits_ztable.is_compressed(hdu) else fits_ascii
        for piece in source.pieces(0, hdu.header.offset):
            stream.write(piece.data)
        stream.write(header_bytes(form.binary_cards(hdu)))
        stream.write(bytes(padding(form.write_data(source, hdu, stream))))
        for piece in source.pieces(min(hdu.end, source.size), source.size):
            stream.write(piece.data)
        return Unnamed.of(stream)
