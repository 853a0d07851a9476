"""Files that others wrote: read like a slow reader made of astropy, and annotated without loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits as astropy_fits

from catalogs.catalog.catalog import Catalog, verified
from catalogs.catalog.new_columns import Provenance, standard_columns
from catalogs.files import stamp
from catalogs.fits import table as fits
from catalogs.fits.header import open_source
from catalogs.writing import annotate

SHARED = Path(__file__).parents[4] / "shared" / "data"
ASTROPY = Path(astropy_fits.__file__).parent / "tests" / "data"
A3COSMOS = ("*Robust*", "*blind*", "*prior*", "a3cosmos_meta_table*")
GALSIM = ("example", "example_fits", "example_selection")
PLAIN = ("btable", "chandra_time", "checksum", "logical_null", "memtest", "table", "tb", "tdim", "theap-gap")
VARIABLE = ("variable_length_table", "vla_logical_all_zero", "vla_logical_null")
SEVERAL = ("stddata.fits:1", "stddata.fits:2", *(f"zerowidth.fits:{n}" for n in range(1, 6)))
"""Files of several tables, and the number of one."""

PATTERNS = [
    *((SHARED / "a3cosmos", f"{name}.fits") for name in A3COSMOS),
    *((SHARED / "galsim_cosmos", f"*_{name}.fits") for name in GALSIM),
    (SHARED / "gz2_table5", "table5.fits.gz"),
    *((ASTROPY, f"{name}.fits") for name in PLAIN + VARIABLE),
    *((ASTROPY, name) for name in SEVERAL),
]
COLUMNS = standard_columns(["early", "late"])

pytestmark = pytest.mark.filterwarnings(
    "ignore::astropy.units.UnitsWarning", "ignore::astropy.utils.exceptions.AstropyUserWarning"
)


@pytest.fixture(params=PATTERNS, ids=lambda pattern: pattern[1])
def catalogue(request: pytest.FixtureRequest) -> Catalog:
    folder, pattern = request.param
    name, _, number = pattern.partition(":")
    found = sorted(folder.glob(name))
    if not found:
        pytest.skip(f"no {name} in {folder}: not part of the checkout, nor of every astropy")
    return fits.open(found[0], number or None)


def slow_cell(cell: Any, null: int | None) -> Any:
    if isinstance(cell, bytes | str):
        return cell.rstrip(" \0")
    values = [slow_value(v, null) for v in np.asarray(cell).ravel()]
    return values if np.ndim(cell) else values[0]


def slow_value(value: Any, null: int | None) -> Any:
    if isinstance(value, np.complexfloating):
        return [float(value.real), float(value.imag)]
    if isinstance(value, np.str_ | np.bytes_):
        return str(value).rstrip(" \0")
    return None if null is not None and value == null else value.item()


def same(ours: Any, slow: Any) -> bool:
    """Compare; where ours is a null truth value, astropy says False."""
    if isinstance(ours, list):
        slow = slow if isinstance(slow, list) else [slow]
        return len(ours) == len(slow) and all(map(same, ours, slow))
    if isinstance(slow, list) and len(slow) == 1:  # TDIM (1), or 1X
        return same(ours, slow[0])
    return repr(ours) == repr(slow) or (ours is None and slow is False)


def test_every_cell_is_as_astropy_reads_it(catalogue: Catalog) -> None:
    table = pa.Table.from_batches(list(catalogue.batches(catalogue.names, 300)))
    step = 1 + catalogue.n_rows // 500  # for the twin is slow
    with astropy_fits.open(catalogue.path) as hdus:
        hdu = hdus[int(catalogue.metadata["hdu"])]
        assert hdu.columns.names == list(catalogue.names)
        for i, column in enumerate(catalogue.columns):
            assert column.unit == (hdu.columns[i].unit or None)
            ours, slow = table[column.name].to_pylist()[::step], hdu.data.field(i)[::step]
            assert all(same(a, slow_cell(b, column.null)) for a, b in zip(ours, slow, strict=True)), column


def compute(batch: pa.RecordBatch) -> dict[str, Any]:
    n = batch.num_rows
    return {
        c.name: np.full(n, "late")
        if pa.types.is_string(c.datatype)
        else np.ones(n, c.datatype.to_pandas_dtype())
        for c in COLUMNS
    }


def test_annotated_copies_lose_nothing(catalogue: Catalog, tmp_path: Path) -> None:
    """The old columns' bytes, all HDUs, all old cards, valid checksums unless the file's are wrong (Chandra's are)."""
    provenance = Provenance({"model": "test"}, {0: ("LOW_CONFIDENCE", "near one half")})
    read = list(catalogue.names[:1])
    how: Any = {"read": read, "provenance": provenance, "rows": 500, "checksums": "ignore"}
    (out,) = annotate(catalogue, tmp_path, COLUMNS, compute, **how)
    number = int(catalogue.metadata["hdu"])
    with astropy_fits.open(catalogue.path) as old, astropy_fits.open(out) as new:
        assert [h.name for h in new] == [h.name for h in old]
        raw = np.asarray(old[number].data).view(np.uint8).reshape(catalogue.n_rows, -1)
        copy = np.asarray(new[number].data).view(np.uint8).reshape(catalogue.n_rows, -1)
        assert np.array_equal(copy[:, : raw.shape[1]], raw)
        assert_same_cards(old, new, number)
        assert set(new[number].data["blr_class"]) == {"late"}
    if not verified(catalogue, "warn")[1]:
        assert_sums(out, number)


def assert_same_cards(old: Any, new: Any, number: int) -> None:
    changed = {"NAXIS1", "TFIELDS", "THEAP", "CHECKSUM", "DATASUM"}
    for i, (before, after) in enumerate(zip(old, new, strict=True)):
        if i != number:
            assert after.header.tostring() == before.header.tostring()
    cards = {str(card) for card in new[number].header.cards}
    assert all(str(card) in cards for card in old[number].header.cards if card.keyword not in changed)


def assert_sums(out: Path, number: int) -> None:
    """By hand: astropy cannot check a file with another, broken sum; CFITSIO, a gap before the heap."""
    hdu = fits.open(out, number).partitions[0].table.hdu
    with open_source(out, stamp(out)) as source:
        whole = source.read(hdu.offset, hdu.end - hdu.offset)
    data, ones = whole[hdu.n_bytes :], 2**32 - 1
    assert sum(whole.view(">u4").tolist()) % ones == 0
    assert sum(data.view(">u4").tolist()) % ones == int(hdu.text("DATASUM") or -1) % ones


def test_the_verdict_on_checksums_is_astropys(catalogue: Catalog) -> None:
    """Of all HDUs of a file, by astropy's own sums: its warnings leave out files that it cannot open with them."""
    with astropy_fits.open(catalogue.path) as hdus:
        right = [
            str(hdu._calculate_datasum()) == hdu.header["DATASUM"] and hdu.verify_checksum() != 0
            for hdu in hdus
            if hdu.header.get("DATASUM")
        ]
    _, wrong = verified(catalogue, "warn")
    assert bool(wrong) == (not all(right))
