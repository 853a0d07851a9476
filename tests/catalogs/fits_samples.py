"""Small FITS files for the tests: written by astropy, read by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from astropy.io import fits as astropy_fits

from catalogs.fits import table as fits

N = 7


def write(path: Path, *columns: astropy_fits.Column, cards: dict[str, Any] | None = None) -> Path:
    table = astropy_fits.BinTableHDU.from_columns(columns, name="OBJECTS")
    table.header.update(cards or {})
    table.writeto(path)
    return path


def column(name: str, form: str, values: Any, **keywords: Any) -> astropy_fits.Column:
    return astropy_fits.Column(name, form, array=values, **keywords)


def read(path: Path, *names: str, rows: int = 3) -> pa.Table:
    cat = fits.open(path)
    batches = list(cat.batches(names or cat.names, rows))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches)


def patched(path: Path, **cards: Any) -> Path:
    """Change header cards behind astropy's back, so that the stored integers stay as they are."""
    content = path.read_bytes()
    start = content.index(b"XTENSION")
    end = content.index(b"END     ", start)
    header = astropy_fits.Header.fromstring(content[start:end])
    data = content[start + (end - start + 2880) // 2880 * 2880 :]
    header.update(cards)
    text = (header.tostring(endcard=True, padding=True)).encode()
    path.write_bytes(content[:start] + text + data)
    return path
