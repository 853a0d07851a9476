"""A small HATS collection for the tests: three pixels, a margin, an index, maps; written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PIXELS = {(1, 44): range(40), (1, 45): range(40, 90), (2, 184): range(90, 100)}
MARGIN = {(1, 45): (3, 7), (2, 184): (41, 42, 43)}
N = 100

COMMON = """obs_collection={name}
dataproduct_type={kind}
hats_nrows={rows}
hats_col_ra=ra
hats_col_dec=dec
hats_col_healpix=_healpix_29
hats_col_healpix_order=29
hats_npix_suffix={suffix}
hats_builder=by hand
hats_version=v1.0
hats_estsize=7
obs_regime=Optical
"""


def rows(numbers: range | tuple[int, ...]) -> pa.Table:
    i = np.array(numbers, np.int64)
    fields = [
        pa.field("_healpix_29", pa.int64()),
        pa.field("id", pa.int64()),
        pa.field("ra", pa.float64(), metadata={"unit": "deg"}),
        pa.field("dec", pa.float64(), metadata={"unit": "deg"}),
        pa.field("mag", pa.float32()),
    ]
    mag = i.astype(np.float32)
    mag[::7] = np.nan
    arrays = [i << 40, i + 2**60, 250 + i * 0.5, -50 + i * 0.3, mag]
    return pa.Table.from_arrays(list(map(pa.array, arrays)), schema=pa.schema(fields, {"survey": "tests"}))


def write_table(
    root: Path,
    pixels: Mapping[tuple[int, int], range | tuple[int, ...]],
    kind: str = "object",
    *,
    suffix: str = ".parquet",
    more: str = "",
    merged: bool = True,
) -> Path:
    dataset = root / "dataset"
    footers: list[Any] = []
    for (norder, npix), numbers in pixels.items():
        place = f"Norder={norder}/Dir=0/Npix={npix}" + (suffix if suffix != "/" else "/part0.parquet")
        (dataset / place).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(numbers), dataset / place, metadata_collector=footers)
        footers[-1].set_file_path(place)
    dataset.mkdir(parents=True, exist_ok=True)
    pq.write_metadata(rows(()).schema, dataset / "_common_metadata")
    if merged:
        pq.write_metadata(rows(()).schema, dataset / "_metadata", metadata_collector=footers)
    n = sum(len(numbers) for numbers in pixels.values())
    text = "#HATS catalog\n" + COMMON.format(name=root.name, kind=kind, rows=n, suffix=suffix) + more
    for name in ("properties", "hats.properties"):
        (root / name).write_text(text)
    lines = "".join(f"{norder},{npix}\n" for norder, npix in pixels)
    (root / "partition_info.csv").write_text("Norder,Npix\n" + lines)
    return root


def write_collection(root: Path) -> Path:
    """Write a collection of a table, a margin and an index."""
    write_table(root / "stars", PIXELS, more="hats_cols_default=ra dec mag\n")
    (root / "stars" / "skymap.fits").write_bytes(b"a map")
    (root / "stars" / "point_map.fits").write_bytes(b"another map")
    margin = "hats_primary_table_url=stars\nhats_margin_threshold=7200.0\n"
    write_table(root / "stars_7200arcs", MARGIN, "margin", more=margin)
    (root / "stars_id_index").mkdir()
    (root / "stars_id_index" / "properties").write_text(
        "obs_collection=stars_id_index\ndataproduct_type=index\nhats_primary_table_url=stars\nhats_index_column=id\n"
    )
    (root / "collection.properties").write_text(
        "#HATS Collection\nobs_collection=stars\nhats_primary_table_url=stars\nall_margins=stars_7200arcs\n"
        "default_margin=stars_7200arcs\nall_indexes=id stars_id_index\nhats_estsize=9\n"
    )
    return root
