"""What survives annotating, format by format: samples of everything, and what becomes of each column.

`python -m tests.catalogs.round_trip` writes docs/round-trip.md; a test holds the page to what is found.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from astropy.io import fits as astropy_fits

import catalogs
from catalogs.catalog.catalog import Catalog, Column
from catalogs.catalog.new_columns import NewColumn, Provenance, standard_columns
from catalogs.writing import annotate
from tests.catalogs.memory_trips import memory_page, memory_trips
from tests.catalogs.round_trip_samples import LABELS, NAMES, WRITERS

PAGE = Path(__file__).parents[2] / "docs" / "round-trip.md"
NEW = standard_columns(["early", "late"])
PROVENANCE = Provenance({"model": "m@1"}, {0: ("LOW_CONFIDENCE", "near one half")})

KEPT, SILENT = "kept", "CHANGED SILENTLY"


@dataclass(frozen=True)
class Trip:
    """What became of each thing on the way from one format to another, and the files that were written."""

    source: str
    target: str
    verdicts: Mapping[str, str]
    warnings: tuple[str, ...]
    copies: tuple[Path, ...]


def compute(batch: pa.RecordBatch) -> dict[str, Any]:
    return {
        c.name: np.full(batch.num_rows, "late") if pa.types.is_string(c.datatype) else number(c, batch)
        for c in NEW
    }


def number(column: NewColumn, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    return batch.column("row").to_numpy().astype(column.datatype.to_pandas_dtype())


def travel(source: str, target: str, folder: Path) -> Trip:
    """Annotate a sample, and look at what has become of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # astropy's, of units
        cat = catalogs.open(WRITERS[source](folder))
        how: Any = {"read": ["row"], "provenance": PROVENANCE, "form": target}
        written = annotate(cat, folder / "out", NEW, compute, **how)
        root = folder / "out" / cat.path.name if cat.format == "hats" else written[0]
        back = catalogs.open(root)
        return Trip(source, target, verdicts(cat, back, written.warnings), written.warnings, tuple(written))


def rows(cat: Catalog) -> dict[str, list[Any]]:
    return pa.Table.from_batches(list(cat.batches(cat.names))).to_pydict()


def verdicts(old: Catalog, new: Catalog, told: tuple[str, ...]) -> dict[str, str]:
    """Return a word on each column, then on what is known of them and of the file."""
    before, after = rows(old), rows(new)
    found = {
        label: verdict(name, old, new, before, after, told)
        for name, label in LABELS.items()
        if name in before
    }
    flux = old.column("f32") if "f32" in old.names else None
    for what in ("unit", "ucd", "description"):
        if flux is not None and getattr(flux, what):
            kept = getattr(new.column("f32"), what) == getattr(flux, what)
            label = {"unit": "units, of any spelling", "ucd": "UCDs", "description": "descriptions"}[what]
            found[label] = KEPT if kept else SILENT
    if old.column("inull").null is not None:
        same = new.column("inull").null == old.column("inull").null
        found["the integer that stands for null"] = KEPT if same else "a null of the format's own"
    found |= {
        "the file's metadata": metadata(old, new, told),
        "what lies beside the table": beside(old, new, told),
    }
    found["our columns and their provenance"] = ours(new, after)
    return found


def verdict(
    name: str,
    old: Catalog,
    new: Catalog,
    before: Mapping[str, list[Any]],
    after: Mapping[str, list[Any]],
    told: tuple[str, ...],
) -> str:
    said = [w.partition(": ")[2] for w in told if w.startswith(f"'{name}'")]
    types = [plain(cat.column(name)) for cat in (old, new)]
    # Vectors of several dimensions are flat lists in some formats; their shape is compared with the type.
    if repr(flat(after[name])) != repr(flat(before[name])):  # NaN is NaN
        return "; ".join(said) or SILENT
    if said:
        return f"values kept; {'; '.join(said)}"
    return KEPT if types[0] == types[1] else f"values kept, as {types[1]}"


def flat(values: list[Any]) -> list[Any]:
    return [e for v in values for e in (flat(v) if isinstance(v, list) else [v])]


def plain(column: Column) -> str:
    """Return a column's type, without what formats choose for themselves, and its shape."""
    datatype = column.datatype
    while pa.types.is_fixed_size_list(datatype):
        datatype = datatype.value_type
    if pa.types.is_list(datatype):
        return f"lists of {datatype.value_type}"
    return f"{str(datatype).removeprefix('large_')}{list(column.shape) if column.shape else ''}"


def metadata(old: Catalog, new: Catalog, told: tuple[str, ...]) -> str:
    if old.format == "fits" and new.format == "fits":
        cards = [astropy_fits.getheader(c.path, 1).get("TELESCOP") for c in (old, new)]
        return KEPT if cards[0] == cards[1] else SILENT
    if old.format == "fits":
        return "kept as text" if "TELESCOP= 'VISTA" in new.metadata.get("fits.header", "") else SILENT
    if new.format == "fits" and old.metadata.get("survey"):
        kept = "survey = samples" in str(astropy_fits.getheader(new.partitions[0].path, 1)["COMMENT"])
        return "kept as COMMENT" if kept else SILENT
    if old.format in {"votable", "ecsv", "csv"} and new.format != old.format:
        return "left out, which is said" if any("left out" in w for w in told) else SILENT
    if old.metadata.get("survey"):
        return KEPT if new.metadata.get("survey") == old.metadata["survey"] else SILENT
    texts = [c.path.read_bytes() for c in (old, new)]
    return KEPT if (b"samples" in texts[1]) == (b"samples" in texts[0]) else SILENT


def beside(old: Catalog, new: Catalog, told: tuple[str, ...]) -> str:
    if old.format == new.format:
        kept = {
            "fits": lambda: len(astropy_fits.open(new.path)) == len(astropy_fits.open(old.path)),
            "hats": (new.path / "partition_info.csv").is_file,
            "votable": lambda: "equinox" in new.path.read_text(encoding="utf-8"),
            "csv": lambda: "# a comment" in new.path.read_text(encoding="utf-8"),
        }.get(old.format, lambda: True)()
        return KEPT if kept else SILENT
    if old.format == "parquet":
        return "there is nothing"
    return "left out, which is said" if any("left out" in w or "only the rows" in w for w in told) else SILENT


def ours(new: Catalog, after: Mapping[str, list[Any]]) -> str:
    right = all(c.name in new.names for c in NEW) and after["blr_flags"] == after["row"]
    if not right:
        return SILENT
    if new.metadata.get("blr.model") == "m@1" and new.metadata.get("blr.columns"):
        return KEPT
    return "columns kept; CSV has no place for their provenance" if new.format == "csv" else SILENT


def trips(root: Path) -> list[Trip]:
    """Return all: each format to itself, to Parquet and to FITS, in folders below a root."""
    found = []
    for source in WRITERS:
        for target in dict.fromkeys([source, "parquet", "fits"]):
            folder = root / f"{source}-{target}"
            folder.mkdir()
            found.append(travel(source, target, folder))
    return found


HEAD = """# What survives: a round trip of everything

This page is made by `python -m tests.catalogs.round_trip`, and a test holds it to what is found: a sample of all that
a format can hold is annotated to the same format, to Parquet and to FITS, opened again, and compared value by value.

"kept" means the same values of the same type.  Whatever else stands here is said at run time: it is in the `warnings`
of what `catalogs.annotate` returns.  Copies in the same format keep the old bytes (FITS, Parquet, HATS, CSV, ECSV) or
the parsed document (VOTable, written as BINARY2), so that what no table of types knows survives too.
"""


def page(found: list[Trip]) -> str:
    parts = [HEAD]
    for source, name in NAMES.items():
        own = [t for t in found if t.source == source]
        header = " | ".join(f"to {NAMES[t.target]}" for t in own)
        parts.append(f"\n## {name}\n\n| | {header} |\n|---|{'---|' * len(own)}\n")
        for label in own[0].verdicts:
            cells = " | ".join(t.verdicts.get(label, "").replace("|", "\\|") for t in own)
            parts.append(f"| {label} | {cells} |\n")
    return "".join(parts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(page(trips(Path(folder))) + memory_page(*memory_trips()), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
