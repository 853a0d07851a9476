"""Samples of all that each format can hold, with one column of each kind, for the round trips."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.io import fits as astropy_fits
from astropy.io import votable
from astropy.io.votable.tree import Info, Param
from astropy.table import MaskedColumn, Table

from tests.catalogs.hats_samples import write_table

N = 12
BIG = 2**60

LABELS = {
    "row": "32-bit integers",
    "i8": "8-bit signed integers",
    "u8": "8-bit unsigned integers",
    "u16": "16-bit unsigned integers",
    "i64": "64-bit integers above 2^53",
    "u64": "unsigned 64-bit integers above 2^63",
    "inull": "integers with nulls",
    "f32": "float32 with NaN",
    "f64": "float64",
    "fnull": "floats with nulls",
    "truth": "truth values",
    "tnull": "truth values with nulls",
    "text": "text",
    "blank": "text with blanks at its end",
    "accent": "text beyond ASCII",
    "textnull": "text with nulls",
    "dictionary": "text in a dictionary",
    "vector": "vectors",
    "matrix": "matrices",
    "texts": "vectors of text",
    "list": "lists of any length",
    "nested": "nested structures",
    "time": "times",
    "price": "decimal numbers",
    "complex": "complex numbers",
    "bits": "bits",
    "scaled": "scaled integers (TSCAL, TZERO)",
}


def base() -> dict[str, Any]:
    i = np.arange(N)
    f32 = np.linspace(-1, 1, N).astype(np.float32)
    f32[3] = np.nan
    return {
        "row": i.astype(np.int32),
        "i64": BIG + i,
        "f32": f32,
        "f64": np.pi * i,
        "text": np.array([f"NGC {n}" for n in range(N)]),
    }


def write_fits(folder: Path) -> Path:
    i, columns = np.arange(N), base()
    cells = np.empty(N, object)
    cells[:] = [np.arange(n % 4, dtype=np.int16) for n in range(N)]
    col = astropy_fits.Column
    table = astropy_fits.BinTableHDU.from_columns(
        [
            col("row", "J", array=columns["row"]),
            col("i8", "B", bzero=-128, array=(i - 6).astype(np.int8)),
            col("u8", "B", array=i.astype(np.uint8)),
            col("u16", "I", bzero=2**15, array=(i * 5000).astype(np.uint16)),
            col("i64", "K", array=columns["i64"]),
            col("u64", "K", bzero=2**63, array=i.astype(np.uint64) + np.uint64(2**63)),
            col("inull", "J", null=-99, array=np.where(i % 3, i, -99)),
            col("f32", "E", array=columns["f32"], unit="nanomaggy"),
            col("f64", "D", array=columns["f64"], unit="deg"),
            col("truth", "L", array=i % 2 == 0),
            col("text", "6A", array=columns["text"]),
            col("vector", "3E", array=np.arange(3.0 * N).reshape(N, 3)),
            col("matrix", "6E", dim="(3,2)", array=np.arange(6.0 * N).reshape(N, 2, 3)),
            col("texts", "8A", dim="(4,2)", array=np.array([["ab", "cd"]] * N)),
            col("list", "PI()", array=cells),
            col("complex", "C", array=i * (1 + 2j)),
            col("bits", "11X", array=np.eye(N, 11, dtype=bool)),
            col("scaled", "I", array=i.astype(np.int16)),
        ],
        name="DATA",
    )
    table.header["TUCD8"], table.header["TCOMM8"], table.header["TELESCOP"] = "phot.flux", "a flux", "VISTA"
    for _ in range(2):
        table.header["COMMENT"] = "scale"
    hdus = [astropy_fits.PrimaryHDU(), table, astropy_fits.ImageHDU(np.ones((4, 4)), name="IMAGE")]
    path = folder / "sample.fits"
    astropy_fits.HDUList(hdus).writeto(path)
    content = path.read_bytes()  # astropy cannot write scaled integers: blank cards become the scale
    for keyword, value in (("TSCAL18", "0.5"), ("TZERO18", "10.0")):
        card = f"{keyword:<8}= {value:>20}".ljust(80).encode()
        content = content.replace(b"COMMENT scale".ljust(80), card, 1)
    path.write_bytes(content)
    return path


def arrow_table() -> pa.Table:
    columns = {name: pa.array(values) for name, values in base().items()}
    flux = {"unit": "nanomaggy", "ucd": "phot.flux", "description": "a flux"}
    third = [None if n % 3 == 0 else n for n in range(N)]
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    columns |= {
        "i8": pa.array(range(-6, 6), pa.int8()),
        "u8": pa.array(range(N), pa.uint8()),
        "u16": pa.array([5000 * n for n in range(N)], pa.uint16()),
        "u64": pa.array([2**63 + n for n in range(N)], pa.uint64()),
        "inull": pa.array(third, pa.int32()),
        "fnull": pa.array(third, pa.float64()),
        "truth": pa.array([n % 2 == 0 for n in range(N)]),
        "tnull": pa.array([None if n % 3 == 0 else n % 2 == 0 for n in range(N)]),
        "blank": pa.array(["a ", "b"] * (N // 2)),
        "accent": pa.array(["Élan", "b"] * (N // 2)),
        "textnull": pa.array(["a", None] * (N // 2)),
        "dictionary": pa.array(["G", "S"] * (N // 2)).dictionary_encode(),
        "vector": pa.array([[n, n + 1.0, n + 2.0] for n in range(N)], pa.list_(pa.float32(), 3)),
        "matrix": pa.array(
            [[[1.0, n], [2.0, 3.0]] for n in range(N)], pa.list_(pa.list_(pa.float32(), 2), 2)
        ),
        "texts": pa.array([["ab", "c"]] * N, pa.list_(pa.string(), 2)),
        "list": pa.array([list(range(n % 4)) for n in range(N)], pa.list_(pa.int16())),
        "nested": pa.array([{"a": n, "b": [1.0] * (n % 3)} for n in range(N)]),
        "time": pa.array([start + dt.timedelta(seconds=n) for n in range(N)], pa.timestamp("us", "UTC")),
        "price": pa.array([decimal.Decimal(n) / 4 for n in range(N)], pa.decimal128(8, 2)),
    }
    order = [name for name in LABELS if name in columns]
    fields = [pa.field(n, columns[n].type, metadata=flux if n == "f32" else None) for n in order]
    return pa.Table.from_arrays([columns[n] for n in order], schema=pa.schema(fields, {"survey": "samples"}))


def write_parquet(folder: Path) -> Path:
    pq.write_table(arrow_table(), folder / "sample.parquet", row_group_size=5)
    return folder / "sample.parquet"


def write_hats(folder: Path) -> Path:
    """Write HATS of the same columns, in three pixels."""
    root = write_table(folder / "sample", {(1, 44): range(5), (1, 45): range(5, 8), (1, 46): range(8, N)})
    table, start = arrow_table(), 0
    for path in sorted((root / "dataset").rglob("*.parquet")):
        old = pq.read_table(path)
        part = table.slice(start, len(old))
        start += len(old)
        for name in old.column_names:
            part = part.append_column(old.schema.field(name), old[name])
        pq.write_table(part, path)
    for name in ("_metadata", "_common_metadata"):
        pq.write_metadata(part.schema, root / "dataset" / name)
    return root


def astropy_table() -> Table:
    i = np.arange(N)
    table = Table(base())
    table["u8"] = i.astype(np.uint8)
    table["inull"] = MaskedColumn(i.astype(np.int32), mask=i % 3 == 0)
    table["truth"] = i % 2 == 0
    table["tnull"] = MaskedColumn(i % 2 == 0, mask=i % 3 == 0)
    table["textnull"] = MaskedColumn(["a", "b"] * (N // 2), mask=i % 2 == 1)
    table["fnull"] = MaskedColumn(i / 2, mask=i % 3 == 0)
    table["vector"] = np.arange(3.0 * N).reshape(N, 3)
    table["matrix"] = np.arange(6.0 * N).reshape(N, 2, 3)
    table["accent"] = ["Élan", "b"] * (N // 2)
    table["f32"].unit, table["f32"].description = "mJy", "a flux"
    table["f32"].meta["ucd"] = "phot.flux"
    table.meta["survey"] = "samples"
    return table


def write_votable(folder: Path) -> Path:
    """Write a VOTable of what astropy makes of it, with what a VOTable can hold beside a table."""
    table = astropy_table()
    table["complex"] = np.arange(N) * (1 + 2j)
    cells = np.empty(N, object)
    cells[:] = [np.ma.array(np.arange(n % 4, dtype=np.int32), mask=False) for n in range(N)]
    table["list"] = cells
    document = votable.from_table(table)
    document.infos.append(Info(name="survey", value="samples"))
    document.resources[0].params.append(Param(document, name="equinox", datatype="double", value="2000"))
    document.to_xml(str(folder / "sample.vot"), tabledata_format="binary2")
    return folder / "sample.vot"


def write_ecsv(folder: Path) -> Path:
    table = astropy_table()
    table["i8"] = np.arange(-6, 6, dtype=np.int8)
    table["u16"] = (np.arange(N) * 5000).astype(np.uint16)
    table["u64"] = np.arange(N).astype(np.uint64) + np.uint64(2**63)
    table.write(folder / "sample.ecsv")
    return folder / "sample.ecsv"


def write_csv(folder: Path) -> Path:
    table = arrow_table().select(["row", "i64", "u64", "f64", "text", "accent", "inull", "fnull"]).to_pandas()
    table["inull"] = table["inull"].astype("Int64")
    (folder / "sample.csv").write_text("# a comment\n" + table.to_csv(index=False), encoding="utf-8")
    return folder / "sample.csv"


NAMES = {
    "fits": "FITS",
    "parquet": "Parquet",
    "hats": "HATS",
    "votable": "VOTable",
    "ecsv": "ECSV",
    "csv": "CSV",
}
WRITERS: dict[str, Callable[[Path], Path]] = {name: globals()[f"write_{name}"] for name in NAMES}
