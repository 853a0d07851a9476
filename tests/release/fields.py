"""OpenNGC's galaxies in ten fields by right ascension, as FITS or Parquet, and later seasons of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from flows.demo.steps import read_openngc, write_fits, write_parquet

FIELDS = 10
SPECIFICATION = """
name = "types"

[catalog]
paths = ["labelled.parquet"]
id = "name"
ra = "ra"
dec = "dec"

[target]
paths = ["survey"]

[label]
column = "hubble"

[label.classes]
early = ["E", "E-S0", "S0", "S0-a"]
late = ["Sa", "SBa", "Sab", "SBab", "Sb", "SBb", "Sbc", "SBbc", "Sc", "SBc", "Scd", "Sd", "Sm", "I", "IB"]

[features]
b_j = "bmag - jmag"
j_k = "jmag - kmag"
axis_ratio = "minax / majax"

[[candidate]]
basis = { kind = "linear" }

[select]
posterior = "laplace"
"""
MAGNITUDES = ("bmag", "vmag", "jmag", "hmag", "kmag")


def galaxies() -> pa.Table:
    """Return every third galaxy, the brightest of which have all magnitudes."""
    table = read_openngc()
    return table.take(pa.array(np.arange(0, table.num_rows, 3)))


def field_of(table: pa.Table) -> np.ndarray:
    """Return the field of each galaxy."""
    ra = table["ra"].to_numpy()
    return np.minimum((ra / 360 * FIELDS).astype(int), FIELDS - 1)


def write_fields(
    folder: Path, table: pa.Table, form: str, *, fields: tuple[int, ...] = tuple(range(FIELDS))
) -> None:
    """Write a file for each field."""
    folder.mkdir(parents=True, exist_ok=True)
    of = field_of(table)
    write = write_fits if form == "fits" else write_parquet
    for k in {*fields} & {*of.tolist()}:
        write(table.filter(pa.array(of == k)), folder / f"field-{k}.{form}")


def season(table: pa.Table, seed: int, *, noise: float | None = None) -> pa.Table:
    """Return the galaxies as another season sees them: noise, small zero points, a few more or fewer, some missing."""
    rng = np.random.default_rng(seed)
    of = field_of(table)
    zero = rng.normal(0, 0.02, (len(MAGNITUDES), FIELDS))
    noise = noise or rng.uniform(0.01, 0.05)
    for b, name in enumerate(MAGNITUDES):
        values = table[name].to_numpy(zero_copy_only=False).astype(float)
        values = np.round(values + zero[b][of] + rng.normal(0, noise, len(values)), 3)
        values[rng.random(len(values)) < 0.005] = np.nan
        table = table.set_column(
            table.schema.get_field_index(name),
            table.schema.field(name),
            pa.array(values, pa.float64(), from_pandas=True),
        )
    ra = table["ra"].to_numpy() + rng.normal(0, 2e-5, table.num_rows)
    return table.set_column(
        table.schema.get_field_index("ra"), table.schema.field("ra"), pa.array(np.clip(ra, 0, 359.9999))
    )
