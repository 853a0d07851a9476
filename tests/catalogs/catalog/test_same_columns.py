"""Columns that two files have in the same bytes are found without decoding them; whatever differs is not among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.table import Table

import catalogs

N = 3_000
Columns = dict[str, np.ndarray[Any, Any]]


def write_fits(columns: Columns, path: Path) -> None:
    fits.BinTableHDU(Table(columns)).writeto(path.with_suffix(".fits"))


def write_parquet(columns: Columns, path: Path) -> None:
    pq.write_table(pa.table(dict(columns)), path.with_suffix(".parquet"), row_group_size=1_000)


FORMS = {".fits": write_fits, ".parquet": write_parquet}


def columns() -> Columns:
    rng = np.random.default_rng(1)
    texts = np.array([f"NGC {i}" for i in range(N)])
    whole, x = rng.integers(0, 9, N).astype(np.int32), rng.normal(size=N)
    return {"id": np.arange(N), "name": texts, "x": np.where(x > 2, np.nan, x), "whole": whole}


def in_one_value(name: str, value: Any) -> Callable[[Columns], None]:
    def change(changed: Columns) -> None:
        changed[name] = changed[name].copy()
        changed[name][N - 1] = value

    return change


CHANGES: dict[str, tuple[Callable[[Columns], Any], set[str]]] = {
    "more columns": (lambda c: c.update(p=c["x"] ** 2), set()),
    "a number": (in_one_value("x", 0.25), {"x"}),
    "a text": (in_one_value("name", "NGC 1"), {"name"}),
    "the bits of another type": (lambda c: c.update(whole=c["whole"].view(np.float32)), {"whole"}),
    "rounded": (lambda c: c.update(x=c["x"].astype(np.float32).astype(float)), {"x"}),
    "other rows": (lambda c: c.update({k: v[::-1] for k, v in c.items()}), {"id", "name", "x", "whole"}),
    "fewer rows": (lambda c: c.update({k: v[1:] for k, v in c.items()}), {"id", "name", "x", "whole"}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", CHANGES)
def test_what_differs_is_not_among_the_same_columns(tmp_path: Path, form: str, what: str) -> None:
    change, differ = CHANGES[what]
    changed = columns()
    change(changed)
    FORMS[form](columns(), tmp_path / "one")
    FORMS[form](changed, tmp_path / "other")
    one, other = (catalogs.open((tmp_path / name).with_suffix(form)) for name in ("one", "other"))
    assert {*other.same_columns(one)} == {"id", "name", "x", "whole"} - differ
    assert {*one.same_columns(one)} == {"id", "name", "x", "whole"}


def test_columns_with_another_null_value_or_format_or_with_masks_are_not_the_same(tmp_path: Path) -> None:
    for write in FORMS.values():
        write(columns(), tmp_path / "one")
    write_fits(columns(), tmp_path / "other")
    fits.setval(tmp_path / "other.fits", "TNULL1", value=-2, ext=1)
    Table({"id": [1, 2], "x": np.ma.array([1.5, 2.5], mask=[True, False])}).write(tmp_path / "masked.parquet")
    names = ("one.fits", "other.fits", "one.parquet", "masked.parquet")
    one, other, parquet, masked = (catalogs.open(tmp_path / name) for name in names)
    assert {*other.same_columns(one)} == {"name", "x", "whole"}
    assert not parquet.same_columns(one)
    assert {*masked.same_columns(masked)} == {"id", "x.mask"}


def test_empty_texts_of_fits_are_counted_without_decoding_them(tmp_path: Path) -> None:
    """Blanks, NULs, and what stands after a NUL are no text; a tabulator is one."""
    texts = [b"", b"   ", b" a", b"a", b"\0b", b"  \0b", b"\t", b"    ", b" \0  "] * 300
    made = {"text": np.array(texts, "S4"), "x": np.arange(len(texts)), "last": np.array(texts[::-1], "S5")}
    hdu = fits.BinTableHDU(Table(made))
    stored = hdu.data.view(np.ndarray)
    for name, width in (("text", 4), ("last", 5)):
        padded = [text.ljust(width, b" ") if i % 2 else text for i, text in enumerate(made[name].tolist())]
        stored[name] = np.array(padded, f"S{width}")
    hdu.writeto(tmp_path / "one.fits")
    one = catalogs.open(tmp_path / "one.fits")
    (batch,) = one.batches(["text", "last"])
    empty = {name: batch.column(name).to_pylist().count("") for name in ("text", "last")}
    assert one.same_columns(one) == {"x": None, **empty}
    assert empty["text"] == 6 * 300
