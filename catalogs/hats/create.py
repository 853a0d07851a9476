"""A new HATS table from rows that each belong to one pixel: Parquet files by pixel, with properties and metadata.

The layout is that of https://www.ivoa.net/documents/Notes/HATS/.  Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from catalogs.files.atomic import atomic_folder
from catalogs.hats.catalog import COMMON, DATASET, MERGED, PARTITION_INFO, PROPERTIES, merged_footers

__all__ = ["INDEX", "write_hats"]

INDEX = "_healpix_29"
"""The column of pixels of the finest order, by which rows are sorted."""
PARTITION_ORDER = 0


def write_hats(
    folder: Path, table: pa.Table, pixels: NDArray[np.int64], *, order: int, extra: Mapping[str, str]
) -> None:
    """Write the rows of nested `pixels` (n,) of an `order` into a new folder, whole or not at all.

    `table` has their positions as `ra` and `dec`, in degrees.  `extra` are further properties.
    """
    finest = pixels.astype(np.int64) << (2 * (29 - order))
    sort = np.argsort(finest, kind="stable")
    rows = table.add_column(0, pa.field(INDEX, pa.int64()), pa.array(finest)).take(pa.array(sort))
    coarse = (pixels >> (2 * (order - PARTITION_ORDER)))[sort]
    with atomic_folder(folder) as temporary:
        root = temporary / folder.name
        dataset = root / DATASET
        parts = dataset / f"Norder={PARTITION_ORDER}" / "Dir=0"
        parts.mkdir(parents=True)
        there = np.unique(coarse).tolist()
        for pixel in there:
            start, stop = np.searchsorted(coarse, [pixel, pixel + 1])
            pq.write_table(rows.slice(start, stop - start), parts / f"Npix={pixel}.parquet")
        pq.write_metadata(rows.schema, dataset / COMMON)
        files = [parts / f"Npix={pixel}.parquet" for pixel in there]
        merged_footers(dataset / COMMON, files).write_metadata_file(str(dataset / MERGED))
        lines = ["Norder,Npix", *(f"{PARTITION_ORDER},{pixel}" for pixel in there)]
        (root / PARTITION_INFO).write_text("\n".join(lines) + "\n")
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        text = _properties(folder.name, len(rows), size, extra)
        for name in PROPERTIES:
            (root / name).write_text(text, encoding="utf-8")


def _properties(name: str, n_rows: int, size: int, extra: Mapping[str, str]) -> str:
    entries = {
        "obs_collection": name,
        "dataproduct_type": "object",
        "hats_nrows": n_rows,
        "hats_col_ra": "ra",
        "hats_col_dec": "dec",
        "hats_col_healpix": INDEX,
        "hats_col_healpix_order": 29,
        "hats_npix_suffix": ".parquet",
        "hats_builder": "blr",
        "hats_creation_date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MUTC"),
        "hats_estsize": size // 1024,
        "hats_version": "v1.0",
        "hats_order": PARTITION_ORDER,
        **extra,
    }
    return (
        "\n".join(["#HATS catalog", *(f"{key}={' '.join(str(v).split())}" for key, v in entries.items())])
        + "\n"
    )
