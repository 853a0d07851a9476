"""A team's folder: labelled galaxies, a trained model, a release; and folders of the team's own that have our names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.flows.verbs import train

SPECIFICATION = """
name = "morphology"

[catalog]
paths = ["labelled.parquet"]
id = "name"

[target]
paths = ["release/*.parquet"]

[output]
folder = "product"

[label]
column = "hubble"
classes = { early = ["E", "S0"], late = ["Sb", "Sc"] }

[features]
b_j = "bmag - jmag"
j_k = "jmag - kmag"

[[candidate]]
basis = { kind = "linear" }
[[candidate]]
basis = { kind = "polynomial", degree = 2 }
"""


def write_galaxies(path: Path, n: int, *, seed: int) -> Path:
    """Write a catalogue: early types are red in b - j; a tenth has no j."""
    rng = np.random.default_rng(seed)
    hubble = rng.choice(["E", "S0", "Sb", "Sc"], size=n)
    kmag = rng.normal(11, 1, n)
    jmag = kmag + rng.normal(1, 0.2, n)
    bmag = jmag + rng.normal(np.where(np.isin(hubble, ["E", "S0"]), 3.5, 2.5), 0.7, n)
    jmag[rng.random(n) < 0.1] = np.nan
    names = np.array([f"G{seed}-{i:05d}" for i in range(n)])
    table = {"name": names, "hubble": hubble, "bmag": bmag, "jmag": jmag, "kmag": kmag}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), path)
    return path


def make_survey(folder: Path, *, late: str = "late") -> Path:
    """Make the folder, its model trained; `late` is what late types are called."""
    folder.mkdir()
    write_galaxies(folder / "labelled.parquet", 600, seed=1)
    for field in range(2):
        write_galaxies(folder / "release" / f"field-{field}.parquet", 300, seed=2 + field)
    (folder / "spec.toml").write_text(SPECIFICATION.replace("late =", f"{json.dumps(late)} ="))
    train(folder / "spec.toml", folder / "models")
    for name in ("flows", "catalogs", "blr"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f'raise ImportError("the team\'s own {name}")\n')
    return folder
