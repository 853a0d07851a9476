"""Damaged VOTables in every serialisation: an error of ours, or what astropy reads too, in bounded memory and time.

The damages are those of `test_damage`; more are tried by
`BLR_DAMAGES=1000 pytest -s tests/catalogs/votable/test_votable_damage.py`.
"""

import gzip
import io
import os
import resource
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from astropy.io import votable as astropy_votable
from astropy.io.votable.tree import Field

import catalogs
from catalogs.errors import CatalogError, FormatError
from catalogs.votable._rows import is_text, stored_type
from tests.catalogs.round_trip_samples import N, astropy_table
from tests.catalogs.test_damage import DAMAGES, MEMORY_KB, Damage, Record, bounded, counted, tried
from tests.catalogs.votable_samples import our_values, parsed, slow_values

__all__ = ["bounded"]

CASES = int(os.environ.get("BLR_DAMAGES", "20"))
"""Damages of each kind and sample."""


def written(serialisation: str) -> bytes:
    """Return a document of all types, lists of numbers among them, as astropy writes it."""
    table = astropy_table()
    cells = np.empty(N, object)
    cells[:] = [np.ma.array(np.arange(n % 4, dtype=np.int32), mask=False) for n in range(N)]
    table["list"] = cells
    file, stream = astropy_votable.from_table(table), io.BytesIO()
    file.get_first_table().get_field_by_id_or_name("inull").values.null = -1  # BINARY has no other way
    file.to_xml(stream, tabledata_format=serialisation)
    return stream.getvalue()


def respell(data: bytes, rng: np.random.Generator) -> bytes:
    """Put other letters in the place of some, but not of those that make the document's elements."""
    respelt = bytearray(data)
    letters = [i for i, letter in enumerate(data) if chr(letter).isalnum() and letter < 128]
    for place in rng.choice(letters, size=rng.integers(1, 4)):
        respelt[place] = rng.choice(list(b"0123456789.,-+eExNaTF? \n"))
    return bytes(respelt)


SAMPLES: dict[str, Callable[[], bytes]] = {
    "text": lambda: written("tabledata"),
    "text in UTF-16": lambda: written("tabledata").decode().replace('"utf-8"', '"UTF-16"').encode("utf-16"),
    "compressed text": lambda: gzip.compress(written("tabledata"), mtime=0),
    "BINARY": lambda: written("binary"),
    "BINARY2": lambda: written("binary2"),
}


def slow_read(path: Path) -> tuple[list[Field], list[str]] | None:
    """Return the fields and values as astropy reads them; None where it cannot."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        _, table = parsed(data)
        return list(table.fields), slow_values(table)
    except Exception:  # noqa: BLE001 -- astropy fails in more ways than can be listed
        return None


def compared(path: Path) -> str:
    try:
        found = our_values(path)
    except CatalogError as error:
        return type(error).__name__ if len(str(error)) > 40 else "SAYS NOTHING"
    slow = slow_read(path)
    if slow is None:
        return "read, but not by astropy"
    for field, ours, theirs in zip(slow[0], found, slow[1], strict=True):
        # Astropy cuts texts off that are longer than their field.
        cut = is_text(field) and stored_type(field) is not None and len(ours) > len(theirs)
        assert ours == theirs or cut
    return "read as by astropy"


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_documents(name: str, tmp_path: Path, record_property: Record) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = SAMPLES[name]()
        path = tmp_path / ("damaged.vot.gz" if name.startswith("compressed") else "damaged.vot")
        path.write_bytes(whole)
        assert compared(path) == "read as by astropy"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for kind, damage in {**DAMAGES, "respell": respell}.items():

            def once(rng: np.random.Generator, i: int, kind: str = kind, damage: Damage = damage) -> str:
                path.write_bytes(damage(whole, rng))
                more = i < CASES // 10
                found = compared(path)
                return f"{found}, annotated: {tried(path, tmp_path / f'{kind} {i}')}" if more else found

            seed = [sum(name.encode()), sum(kind.encode()), 3]
            outcomes = counted(f"{name}, {kind}", seed, CASES, once, record_property)
            assert kind != "cut" or not any(outcome.startswith("read, but") for outcome in outcomes)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MEMORY_KB, f"{grown} kB more"


def test_more_fields_than_any_table_has(tmp_path: Path) -> None:
    path = tmp_path / "fields.vot"
    field = '<FIELD name="c{}" datatype="float"/>'
    many = "".join(field.format(i) for i in range(50_100))
    path.write_text(
        f'<?xml version="1.0"?><VOTABLE version="1.4"><RESOURCE><TABLE>{many}</TABLE></RESOURCE></VOTABLE>'
    )
    with pytest.raises(FormatError, match="more than 50,000 elements beside the rows"):
        catalogs.open(path)
