"""A reader that shares no code with ours: STILTS (Debian's package `stilts`, in Java) reads what we wrote.

It copies our files to VOTables of text, and astropy tells what stands in them.
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from astropy.table import Table

import catalogs
from catalogs.catalog.new_columns import standard_columns

STILTS = shutil.which("stilts")
pytestmark = pytest.mark.skipif(STILTS is None, reason="there is no stilts; apt-get install stilts")

N = 50
COLUMNS = standard_columns(("early", "late"))


def survey() -> Table:
    """Return a table of what surveys publish; identifiers are beyond 2^53."""
    i = np.arange(N)
    table = Table(
        {
            "id": 2**60 + i,
            "ra": 7.1 * i,
            "mag": np.where(i % 7 == 3, np.nan, 20 + i / 10).astype(np.float32),
            "field": [f"F{n:02}" for n in i],
            "good": i % 2 == 0,
            "n_obs": (40_000 + i).astype(np.int32),
            "flux": np.stack([i, i + 0.5, -i], axis=1),
        }
    )
    for name, unit, ucd in (("ra", "deg", "pos.eq.ra;meta.main"), ("mag", "mag", "phot.mag;em.opt.B")):
        table[name].unit, table[name].description = unit, f"what {name} is"
        table[name].meta["ucd"] = ucd
    return table


def compute(batch: pa.RecordBatch) -> Mapping[str, np.ndarray[Any, Any]]:
    p = np.linspace(0, 1, batch.num_rows, dtype=np.float32)
    made: dict[str, np.ndarray[Any, Any]] = {c.name: p for c in COLUMNS}
    made["blr_class"] = np.where(p > 0.5, "late", "early")
    made["blr_flags"] = np.arange(batch.num_rows, dtype=np.int32)
    made["blr_model"] = np.full(batch.num_rows, 2**62 + 1)
    return made


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert STILTS is not None
    return subprocess.run([STILTS, *arguments], capture_output=True, text=True, check=False, timeout=300)


def test_our_votable_has_nothing_for_votlint_to_find(tmp_path: Path) -> None:
    """No more than it finds in astropy's own file of the same table."""
    survey().write(tmp_path / "survey.vot", format="votable", tabledata_format="binary2")
    cat = catalogs.open(tmp_path / "survey.vot")
    (written,) = catalogs.annotate(cat, tmp_path / "out", COLUMNS, compute, read=["id"])
    before, after = (run("votlint", str(p)).stdout.splitlines() for p in (cat.path, written))
    assert [line.partition("): ")[2] for line in after if line.startswith("ERROR")] == []
    assert len(after) <= len(before), after
